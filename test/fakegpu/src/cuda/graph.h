// SPDX-License-Identifier: Apache-2.0
// Graphs, as far as they hold memory and take time.
#ifndef FAKEGPU_CUDA_GRAPH_H
#define FAKEGPU_CUDA_GRAPH_H

#include "space.h"
#include "work.h"

// The memory of an allocation node: its address is reserved with the node, what stands behind it comes with a launch.
struct graph_memory {
    int device;
    uint64_t size;
    cu_pointer at;
    int live;       // allocated by a launch and not yet freed
    int references; // of graphs and of executables
};

struct cu_node_st {
    struct cu_node_st *next;
    int type;
    struct graph_memory *memory; // of allocation nodes
    cu_pointer freed;            // of free nodes
    struct fg_piece piece;       // of kernel nodes
};

struct cu_graph_st {
    struct cu_graph_st *next;
    struct cu_node_st *first, **last; // in the order in which they run
    size_t count;
};

// Called with the library locked.
cu_graph graph_make(struct core *core);
void graph_drop(struct core *core, cu_graph graph);
int graph_known(const struct core *core, cu_graph graph);
// Appends a node; NULL for want of host memory.
cu_node graph_append(cu_graph graph, int type);
cu_result graph_append_allocation(struct core *core, cu_graph graph, int device, size_t size, cu_node *node);
// Gives back a reference of a graph or an executable.
void graph_memory_put(struct core *core, struct graph_memory *memory);
// Frees what a launch left: cuMemFree and cuMemFreeAsync do.
cu_result graph_memory_free(struct core *core, struct allocation *allocation);

#endif

// SPDX-License-Identifier: Apache-2.0
// Graphs and their nodes.
#include "graph.h"

#include <stdlib.h>
#include <string.h>


cu_graph graph_make(struct core *core) {
    cu_graph made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->next = core->graphs;
    made->last = &made->first;
    core->graphs = made;
    return made;
}

int graph_known(const struct core *core, cu_graph graph) {
    for (cu_graph g = core->graphs; g != NULL; g = g->next) {
        if (g == graph) return 1;
    }
    return 0;
}

void graph_memory_put(struct core *core, struct graph_memory *memory) {
    if (--memory->references > 0 || memory->live) return;
    struct allocation *found = space_at(memory->at);
    if (found != NULL) space_remove(core, found);
    free(memory);
}

void graph_drop(struct core *core, cu_graph graph) {
    for (cu_graph *link = &core->graphs; *link != NULL; link = &(*link)->next) {
        if (*link != graph) continue;
        *link = graph->next;
        break;
    }
    for (cu_node n = graph->first; n != NULL;) {
        cu_node next = n->next;
        if (n->memory != NULL) graph_memory_put(core, n->memory);
        free(n);
        n = next;
    }
    free(graph);
}

cu_node graph_append(cu_graph graph, int type) {
    cu_node made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->type = type;
    *graph->last = made;
    graph->last = &made->next;
    graph->count++;
    return made;
}

cu_result graph_append_allocation(struct core *core, cu_graph graph, int device, size_t size, cu_node *node) {
    (void)core;
    struct range *range;
    size_t whole = round_up(size, PAGE_BYTES);
    if (device < 0 || size == 0 || whole < size) return CU_INVALID_VALUE;
    struct graph_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return CU_OUT_OF_MEMORY;
    cu_result result = space_single(SPACE_GRAPH, device, NULL, whole, &range);
    cu_node made = result == CU_SUCCESS ? graph_append(graph, CU_NODE_ALLOC) : NULL;
    if (made == NULL) {
        free(memory);
        return CU_OUT_OF_MEMORY;
    }
    *memory = (struct graph_memory){.device = device, .size = whole, .at = (cu_pointer)(uintptr_t)range->base, .references = 1};
    range->owner = memory;
    made->memory = memory;
    *node = made;
    return CU_SUCCESS;
}

cu_result graph_memory_free(struct core *core, struct allocation *allocation) {
    struct graph_memory *memory = allocation->range->owner;
    if (!memory->live) return CU_INVALID_VALUE;
    memory->live = 0;
    core->devices[memory->device].graph_live -= memory->size;
    memory->references++;
    graph_memory_put(core, memory);
    return CU_SUCCESS;
}

CU_API cu_result cuGraphCreate(cu_graph *graph, unsigned flags) {
    struct core *core;
    if (graph == NULL || flags != 0) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    cu_graph made = graph_make(core);
    if (made != NULL) *graph = made;
    core_leave(core);
    return made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
}

// Enters with a graph that exists.
static cu_result enter(cu_graph graph, struct core **core) {
    cu_result result = core_enter(core);
    if (result != CU_SUCCESS || graph_known(*core, graph)) return result;
    core_leave(*core);
    return CU_INVALID_VALUE;
}

CU_API cu_result cuGraphDestroy(cu_graph graph) {
    struct core *core;
    cu_result result = enter(graph, &core);
    if (result != CU_SUCCESS) return result;
    graph_drop(core, graph);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuGraphAddMemAllocNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count, cu_alloc_node *parameters) {
    struct core *core;
    (void)after, (void)count; // nodes run in the order in which they were added
    if (node == NULL || parameters == NULL || parameters->properties.type != CU_ALLOCATION_PINNED) return CU_INVALID_VALUE;
    if (parameters->properties.location.type != CU_LOCATION_DEVICE) return CU_INVALID_VALUE;
    cu_result result = enter(graph, &core);
    if (result != CU_SUCCESS) return result;
    int device = parameters->properties.location.id;
    result = core_device(core, device) == NULL ? CU_INVALID_DEVICE : graph_append_allocation(core, graph, device, parameters->size, node);
    if (result == CU_SUCCESS) parameters->pointer = (*node)->memory->at;
    core_leave(core);
    return result;
}

static cu_result append(cu_graph graph, int type, cu_node *node, struct core **core) {
    if (node == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(graph, core);
    if (result != CU_SUCCESS) return result;
    cu_node made = graph_append(graph, type);
    if (made != NULL) {
        *node = made;
        return CU_SUCCESS;
    }
    core_leave(*core);
    return CU_OUT_OF_MEMORY;
}

CU_API cu_result cuGraphAddMemFreeNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count, cu_pointer pointer) {
    struct core *core;
    (void)after, (void)count;
    cu_result result = append(graph, CU_NODE_FREE, node, &core);
    if (result != CU_SUCCESS) return result;
    (*node)->freed = pointer;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuGraphAddEmptyNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count) {
    struct core *core;
    (void)after, (void)count;
    cu_result result = append(graph, CU_NODE_EMPTY, node, &core);
    if (result == CU_SUCCESS) core_leave(core);
    return result;
}

CU_API cu_result cuGraphAddKernelNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count, const cu_kernel_node *kernel) {
    struct core *core;
    (void)after, (void)count;
    if (kernel == NULL || kernel->function == NULL) return CU_INVALID_VALUE;
    cu_result result = append(graph, CU_NODE_KERNEL, node, &core);
    if (result != CU_SUCCESS) return result;
    (*node)->piece = kernel_piece(kernel->function, kernel->parameters, kernel->extra);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuGraphAddKernelNode_v2(cu_node *node, cu_graph graph, const cu_node *after, size_t count, const cu_kernel_node_v2 *kernel) {
    return cuGraphAddKernelNode(node, graph, after, count, &kernel->first);
}

CU_API cu_result cuGraphAddNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count, cu_node_parameters *p) {
    if (p == NULL) return CU_INVALID_VALUE;
    switch (p->type) {
    case CU_NODE_KERNEL: return cuGraphAddKernelNode(node, graph, after, count, &p->kernel.first);
    case CU_NODE_EMPTY: return cuGraphAddEmptyNode(node, graph, after, count);
    case CU_NODE_ALLOC: return cuGraphAddMemAllocNode(node, graph, after, count, &p->alloc);
    case CU_NODE_FREE: return cuGraphAddMemFreeNode(node, graph, after, count, p->free);
    default: return CU_NOT_SUPPORTED;
    }
}

CU_API cu_result cuGraphAddNode_v2(cu_node *node, cu_graph graph, const cu_node *after, const void *edges, size_t count, cu_node_parameters *p) {
    (void)edges;
    return cuGraphAddNode(node, graph, after, count, p);
}

CU_API cu_result cuGraphGetNodes(cu_graph graph, cu_node *nodes, size_t *count) {
    struct core *core;
    if (count == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(graph, &core);
    if (result != CU_SUCCESS) return result;
    size_t at = 0;
    for (cu_node n = graph->first; nodes != NULL && n != NULL && at < *count; n = n->next) nodes[at++] = n;
    *count = nodes == NULL ? graph->count : at;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuGraphNodeGetType(cu_node node, int *type) {
    if (node == NULL || type == NULL) return CU_INVALID_VALUE;
    *type = node->type;
    return CU_SUCCESS;
}

CU_API cu_result cuGraphMemAllocNodeGetParams(cu_node node, cu_alloc_node *parameters) {
    if (node == NULL || parameters == NULL || node->memory == NULL) return CU_INVALID_VALUE;
    *parameters = (cu_alloc_node){.properties = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, node->memory->device}},
                                  .size = node->memory->size, .pointer = node->memory->at};
    return CU_SUCCESS;
}

CU_API cu_result cuGraphMemFreeNodeGetParams(cu_node node, cu_pointer *pointer) {
    if (node == NULL || pointer == NULL || node->type != CU_NODE_FREE) return CU_INVALID_VALUE;
    *pointer = node->freed;
    return CU_SUCCESS;
}

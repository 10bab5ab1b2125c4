// SPDX-License-Identifier: Apache-2.0
// Allocation nodes of graphs; given back by cuMemFree and a trim, or by a free node of another graph.
#include "way.h"

enum { BY_FREE = 0, BY_NODE = 1 };

static handle exec[MOST_PIECES];
static pointer at[MOST_PIECES];

static result take(int i) {
    struct alloc_node node = {.properties = {.type = 1, .location = {.type = 1, .id = 0}}, .size = way.piece};
    handle graph, made;
    must(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
    result got = cu.cuGraphAddMemAllocNode(&made, graph, NULL, 0, &node);
    if (got == SUCCESS) got = cu.cuGraphInstantiateWithFlags(&exec[i], graph, 0);
    if (got == SUCCESS) {
        got = cu.cuGraphLaunch(exec[i], NULL);
        if (got != SUCCESS) must(cu.cuGraphExecDestroy(exec[i]), "cuGraphExecDestroy");
    }
    must(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    at[i] = node.at;
    return got;
}

static void free_by_node(pointer p) {
    handle graph, made, run;
    must(cu.cuGraphCreate(&graph, 0), "cuGraphCreate");
    must(cu.cuGraphAddMemFreeNode(&made, graph, NULL, 0, p), "cuGraphAddMemFreeNode");
    must(cu.cuGraphInstantiateWithFlags(&run, graph, 0), "cuGraphInstantiate");
    must(cu.cuGraphLaunch(run, NULL), "cuGraphLaunch");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    must(cu.cuGraphExecDestroy(run), "cuGraphExecDestroy");
    must(cu.cuGraphDestroy(graph), "cuGraphDestroy");
}

static result give(int i, int by) {
    if (by == BY_NODE) {
        free_by_node(at[i]);
    } else {
        must(cu.cuMemFree(at[i]), "cuMemFree");
    }
    return cu.cuGraphExecDestroy(exec[i]);
}

static result settle(int by) {
    (void)by;
    return cu.cuDeviceGraphMemTrim(0);
}

const struct way way = {.piece = 256 * MIB, .take = take, .give = give, .settle = settle, .calls = 2};

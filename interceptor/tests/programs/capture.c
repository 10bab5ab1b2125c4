// SPDX-License-Identifier: Apache-2.0
// cuMemAllocAsync on a stream that is captured: it becomes an allocation node, and takes memory when the graph runs.
#include "way.h"

static handle stream, exec[MOST_PIECES];
static pointer at[MOST_PIECES];

static result start(void) { return cu.cuStreamCreate(&stream, 1); }

static result take(int i) {
    handle graph;
    must(cu.cuStreamBeginCapture(stream, 0), "cuStreamBeginCapture");
    result got = cu.cuMemAllocAsync(&at[i], way.piece, stream);
    must(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    if (got == SUCCESS) got = cu.cuGraphInstantiateWithFlags(&exec[i], graph, 0);
    if (got == SUCCESS) {
        got = cu.cuGraphLaunch(exec[i], stream);
        if (got != SUCCESS) must(cu.cuGraphExecDestroy(exec[i]), "cuGraphExecDestroy");
    }
    must(cu.cuGraphDestroy(graph), "cuGraphDestroy");
    return got;
}

static result give(int i, int by) {
    (void)by;
    must(cu.cuMemFreeAsync(at[i], stream), "cuMemFreeAsync");
    return cu.cuGraphExecDestroy(exec[i]);
}

static result settle(int by) {
    (void)by;
    must(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    return cu.cuDeviceGraphMemTrim(0);
}

const struct way way = {.piece = 256 * MIB, .start = start, .take = take, .give = give, .settle = settle, .calls = 1};

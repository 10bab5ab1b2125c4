// SPDX-License-Identifier: Apache-2.0
// Freeing in the order of a stream: of pools and of graphs.
#include "capture.h"
#include "graph.h"
#include "pool.h"

static cu_result free_on(struct core *core, cu_stream stream, cu_pointer pointer) {
    struct allocation *found = space_at(pointer);
    if (stream->capture != NULL) return capture_free(core, stream, pointer);
    if (found == NULL) return CU_INVALID_VALUE;
    switch (found->range->kind) {
    case SPACE_POOL: return pool_free_on(core, stream, found);
    case SPACE_GRAPH: return graph_memory_free(core, found);
    default: return CU_INVALID_VALUE;
    }
}

CU_API cu_result cuMemFreeAsync(cu_pointer pointer, cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, handle);
    result = stream == NULL ? CU_INVALID_HANDLE : pointer == 0 ? CU_SUCCESS : free_on(core, stream, pointer);
    core_leave(core);
    return result;
}

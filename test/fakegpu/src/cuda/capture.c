// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <stdlib.h>

#include "graph.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_INVALIDATED };

static __thread int thread_mode = MODE_GLOBAL;

cu_result capture_forbids(struct core *core) {
    cu_result result = CU_SUCCESS;
    if (thread_mode == MODE_RELAXED) return CU_SUCCESS;
    for (struct cu_capture *c = core->captures; c != NULL; c = c->next) {
        int own = c->thread == core_thread();
        int forbidden = own ? c->mode != MODE_RELAXED : thread_mode == MODE_GLOBAL && c->mode == MODE_GLOBAL;
        if (!forbidden) continue;
        c->invalid = 1;
        result = CU_CAPTURE_UNSUPPORTED;
    }
    return result;
}

cu_result capture_break(cu_stream stream) {
    stream->capture->invalid = 1;
    return CU_CAPTURE_UNSUPPORTED;
}

cu_result capture_allocation(struct core *core, cu_stream stream, int device, size_t size, cu_pointer *pointer) {
    cu_node node;
    if (stream->capture->invalid) return CU_CAPTURE_INVALIDATED;
    cu_result result = graph_append_allocation(core, stream->capture->graph, device, size, &node);
    if (result == CU_SUCCESS) *pointer = node->memory->at;
    return result;
}

cu_result capture_free(struct core *core, cu_stream stream, cu_pointer pointer) {
    (void)core;
    if (stream->capture->invalid) return CU_CAPTURE_INVALIDATED;
    cu_node node = graph_append(stream->capture->graph, CU_NODE_FREE);
    if (node == NULL) return CU_OUT_OF_MEMORY;
    node->freed = pointer;
    return CU_SUCCESS;
}

cu_result capture_work(cu_stream stream, const struct fg_piece *piece) {
    if (stream->capture->invalid) return CU_CAPTURE_INVALIDATED;
    cu_node node = graph_append(stream->capture->graph, CU_NODE_KERNEL);
    if (node == NULL) return CU_OUT_OF_MEMORY;
    if (piece != NULL) node->piece = *piece;
    return CU_SUCCESS;
}

// Takes the capture off all streams that joined it.
static void dissolve(struct core *core, struct cu_capture *capture) {
    for (cu_context c = core->contexts; c != NULL; c = c->next) {
        for (cu_stream s = c->streams; s != NULL; s = s->next) {
            if (s->capture == capture) s->capture = NULL;
        }
    }
    for (struct cu_capture **link = &core->captures; *link != NULL; link = &(*link)->next) {
        if (*link != capture) continue;
        *link = capture->next;
        break;
    }
}

void capture_forget(struct core *core, cu_stream stream) {
    struct cu_capture *capture = stream->capture;
    stream->capture = NULL;
    if (capture == NULL || capture->origin != stream) return;
    dissolve(core, capture);
    if (capture->own_graph) graph_drop(core, capture->graph);
    free(capture);
}

// Enters and finds the stream.
static cu_result enter(cu_stream handle, struct core **core, cu_stream *stream) {
    cu_context context;
    cu_result result = core_enter_context(core, &context);
    if (result != CU_SUCCESS) return result;
    *stream = core_stream(context, handle);
    if (*stream != NULL) return CU_SUCCESS;
    core_leave(*core);
    return CU_INVALID_HANDLE;
}

static cu_result begin(cu_stream handle, cu_graph graph, int mode) {
    static uint64_t ids; // guarded by the library's lock
    struct core *core;
    cu_stream stream;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &stream);
    if (result != CU_SUCCESS) return result;
    if (stream == stream->context->streams) {
        result = CU_CAPTURE_UNSUPPORTED; // the legacy stream cannot be captured
    } else if (stream->capture != NULL || (graph != NULL && !graph_known(core, graph))) {
        result = CU_INVALID_VALUE;
    } else {
        struct cu_capture *made = calloc(1, sizeof *made);
        cu_graph into = made != NULL && graph == NULL ? graph_make(core) : graph;
        if (made == NULL || into == NULL) {
            free(made);
            result = CU_OUT_OF_MEMORY;
        } else {
            *made = (struct cu_capture){.next = core->captures, .graph = into, .origin = stream, .own_graph = graph == NULL,
                                        .mode = mode, .thread = core_thread(), .id = ++ids};
            core->captures = made;
            stream->capture = made;
        }
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) { return begin(stream, NULL, mode); }
CU_API cu_result cuStreamBeginCapture(cu_stream stream) { return begin(stream, NULL, MODE_GLOBAL); }

CU_API cu_result cuStreamBeginCaptureToGraph(cu_stream stream, cu_graph graph, const cu_node *after, const void *edges,
                                             size_t count, int mode) {
    (void)after, (void)edges, (void)count;
    return graph == NULL ? CU_INVALID_VALUE : begin(stream, graph, mode);
}

CU_API cu_result cuStreamEndCapture(cu_stream handle, cu_graph *graph) {
    struct core *core;
    cu_stream stream;
    if (graph == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &stream);
    if (result != CU_SUCCESS) return result;
    struct cu_capture *capture = stream->capture;
    *graph = NULL;
    if (capture == NULL) {
        result = CU_INVALID_VALUE;
    } else if (capture->origin != stream) {
        result = CU_CAPTURE_UNMATCHED;
    } else if (capture->thread != core_thread() && capture->mode != MODE_RELAXED) {
        result = CU_CAPTURE_WRONG_THREAD;
    } else {
        dissolve(core, capture);
        if (capture->invalid) {
            if (capture->own_graph) graph_drop(core, capture->graph);
            result = CU_CAPTURE_INVALIDATED;
        } else {
            *graph = capture->graph;
        }
        free(capture);
    }
    core_leave(core);
    return result;
}

static int status_of(const struct cu_stream_st *stream) {
    if (stream->capture == NULL) return STATUS_NONE;
    return stream->capture->invalid ? STATUS_INVALIDATED : STATUS_ACTIVE;
}

// The legacy stream waits for all others but those that were made not to: what captures one of them.
static struct cu_capture *in_the_way(const struct core *core, cu_stream stream) {
    enum { NON_BLOCKING = 1 };
    if (stream != stream->context->streams) return NULL;
    for (struct cu_capture *c = core->captures; c != NULL; c = c->next) {
        if (c->origin->context == stream->context && !(c->origin->flags & NON_BLOCKING)) return c;
    }
    return NULL;
}

cu_result capture_implicit(struct core *core, cu_stream stream) {
    struct cu_capture *capture = in_the_way(core, stream);
    if (capture == NULL) return CU_SUCCESS;
    capture->invalid = 1;
    return CU_CAPTURE_IMPLICIT;
}

CU_API cu_result cuStreamIsCapturing(cu_stream handle, int *status) {
    struct core *core;
    cu_stream stream;
    if (status == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &stream);
    if (result != CU_SUCCESS) return result;
    if (in_the_way(core, stream) != NULL) result = CU_CAPTURE_IMPLICIT;
    if (result == CU_SUCCESS) *status = status_of(stream);
    core_leave(core);
    return result;
}

CU_API cu_result cuStreamGetCaptureInfo_v2(cu_stream handle, int *status, uint64_t *id, cu_graph *graph,
                                           const cu_node **after, size_t *count) {
    struct core *core;
    cu_stream stream;
    if (status == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &stream);
    if (result != CU_SUCCESS) return result;
    *status = status_of(stream);
    if (*status == STATUS_ACTIVE) {
        if (id != NULL) *id = stream->capture->id;
        if (graph != NULL) *graph = stream->capture->graph;
        if (after != NULL) *after = NULL;
        if (count != NULL) *count = 0;
    }
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuStreamGetCaptureInfo(cu_stream stream, int *status, uint64_t *id) {
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

CU_API cu_result cuStreamGetCaptureInfo_v3(cu_stream stream, int *status, uint64_t *id, cu_graph *graph,
                                           const cu_node **after, const void **edges, size_t *count) {
    if (edges != NULL) *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, after, count);
}

CU_API cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
    if (mode == NULL || *mode < MODE_GLOBAL || *mode > MODE_RELAXED) return CU_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CU_SUCCESS;
}

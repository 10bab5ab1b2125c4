// SPDX-License-Identifier: Apache-2.0
// Streams: each is known by the last piece of work that was queued on it.
#include <stdlib.h>

#include "capture.h"

// The calling thread's default stream, which comes with its first use.
static cu_stream own_stream(cu_context context) {
    cu_stream rest = context->streams->next;
    for (cu_stream s = rest->next; s != NULL; s = s->next) {
        if (s->thread == core_thread()) return s;
    }
    cu_stream made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    *made = (struct cu_stream_st){.next = rest->next, .context = context, .thread = core_thread()};
    rest->next = made;
    return made;
}

cu_stream core_stream(cu_context context, cu_stream handle) {
    if (handle == NULL || handle == CU_STREAM_LEGACY) return context->streams;
    if (handle == CU_STREAM_PER_THREAD) return own_stream(context);
    for (cu_stream s = context->streams; s != NULL; s = s->next) {
        if (s == handle) return s;
    }
    return NULL;
}

cu_context core_context_of(const struct core *core, cu_stream handle) {
    for (cu_context c = core->contexts; c != NULL; c = c->next) {
        for (cu_stream s = c->streams; s != NULL; s = s->next) {
            if (s == handle) return c;
        }
    }
    return NULL;
}

uint64_t core_context_last(cu_context context) {
    uint64_t last = 0;
    for (const struct cu_stream_st *s = context->streams; s != NULL; s = s->next) {
        if (s->last > last) last = s->last;
    }
    return last;
}

uint64_t core_stream_last(cu_stream stream) {
    return stream == stream->context->streams ? core_context_last(stream->context) : stream->last;
}

CU_API cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned flags, int priority) {
    struct core *core;
    cu_context context;
    if (stream == NULL || flags > 1) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream made = calloc(1, sizeof *made);
    if (made == NULL) {
        result = CU_OUT_OF_MEMORY;
    } else {
        // Behind the two that every context has.
        cu_stream rest = context->streams->next;
        *made = (struct cu_stream_st){.next = rest->next, .context = context, .flags = flags, .priority = priority};
        rest->next = made;
        *stream = made;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuStreamCreate(cu_stream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

// Enters and finds the stream.
static cu_result enter(cu_stream handle, struct core **core, cu_context *context, cu_stream *stream) {
    cu_result result = core_enter_context(core, context);
    if (result != CU_SUCCESS) return result;
    *stream = core_stream(*context, handle);
    if (*stream != NULL) return CU_SUCCESS;
    core_leave(*core);
    return CU_INVALID_HANDLE;
}

CU_API cu_result cuStreamDestroy_v2(cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    cu_stream rest = context->streams->next;
    if (stream == context->streams || stream == rest || stream->thread != NULL) {
        result = CU_INVALID_HANDLE;
    } else {
        capture_forget(core, stream);
        // Its work goes on: the context is not done before it.
        if (stream->last > rest->last) rest->last = stream->last;
        for (cu_stream *link = &context->streams; *link != NULL; link = &(*link)->next) {
            if (*link != stream) continue;
            *link = stream->next;
            break;
        }
        free(stream);
    }
    core_leave(core);
    return result;
}

// Asking a stream that is captured, or one that would have to wait for it, breaks the capture.
static cu_result ask(struct core *core, cu_stream stream) {
    return stream->capture != NULL ? capture_break(stream) : capture_implicit(core, stream);
}

CU_API cu_result cuStreamSynchronize(cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    result = ask(core, stream);
    if (result != CU_SUCCESS) {
        core_leave(core);
        return result;
    }
    core_leave_until_done(core, context->device, core_stream_last(stream), core_how(context));
    result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    core_synchronised(core);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuStreamDestroy(cu_stream stream) { return cuStreamDestroy_v2(stream); }

CU_API cu_result cuStreamQuery(cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    result = ask(core, stream);
    if (result == CU_SUCCESS && !core_done(core, context->device, core_stream_last(stream))) result = CU_NOT_READY;
    core_leave(core);
    return result;
}

CU_API cu_result cuStreamGetCtx(cu_stream handle, cu_context *out) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    if (out == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    *out = stream->context;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuStreamGetFlags(cu_stream handle, unsigned *flags) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    if (flags == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    *flags = stream->flags;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuStreamGetPriority(cu_stream handle, int *priority) {
    struct core *core;
    cu_context context;
    cu_stream stream;
    if (priority == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &context, &stream);
    if (result != CU_SUCCESS) return result;
    *priority = stream->priority;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuStreamGetCtx_v2(cu_stream stream, cu_context *context, cu_green *green) {
    if (green == NULL) return CU_INVALID_VALUE;
    *green = NULL;
    return cuStreamGetCtx(stream, context);
}

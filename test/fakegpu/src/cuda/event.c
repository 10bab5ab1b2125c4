// SPDX-License-Identifier: Apache-2.0
// Events: a point in the time of a stream.
#include <stdlib.h>

#include "capture.h"

#define EVENT_DISABLE_TIMING 2u

struct cu_event_st {
    struct cu_event_st *next;
    unsigned flags;
    int recorded;
    uint64_t when;
    uint64_t capture; // the capture that it was recorded in, 0: none
};

static struct cu_capture *capture_of(const struct core *core, uint64_t id) {
    for (struct cu_capture *c = core->captures; id != 0 && c != NULL; c = c->next) {
        if (c->id == id) return c;
    }
    return NULL;
}

void core_drop_events(cu_context context) {
    for (cu_event e = context->events; e != NULL;) {
        cu_event next = e->next;
        free(e);
        e = next;
    }
    context->events = NULL;
}

static int known(const struct core *core, cu_event event) {
    for (cu_context c = core->contexts; c != NULL; c = c->next) {
        for (cu_event e = c->events; e != NULL; e = e->next) {
            if (e == event) return 1;
        }
    }
    return 0;
}

static cu_result enter(cu_event event, struct core **core) {
    cu_result result = core_enter(core);
    if (result != CU_SUCCESS) return result;
    if (known(*core, event)) return CU_SUCCESS;
    core_leave(*core);
    return CU_INVALID_HANDLE;
}

CU_API cu_result cuEventCreate(cu_event *event, unsigned flags) {
    struct core *core;
    cu_context context;
    if (event == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_event made = calloc(1, sizeof *made);
    if (made != NULL) {
        *made = (struct cu_event_st){.next = context->events, .flags = flags};
        context->events = made;
        *event = made;
    }
    core_leave(core);
    return made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
}

CU_API cu_result cuEventDestroy_v2(cu_event event) {
    struct core *core;
    cu_result result = enter(event, &core);
    if (result != CU_SUCCESS) return result;
    for (cu_context c = core->contexts; c != NULL; c = c->next) {
        for (cu_event *link = &c->events; *link != NULL; link = &(*link)->next) {
            if (*link != event) continue;
            *link = event->next;
            break;
        }
    }
    free(event);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuEventDestroy(cu_event event) { return cuEventDestroy_v2(event); }

CU_API cu_result cuEventRecord(cu_event event, cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct cu_stream_st *stream = core_stream(context, handle);
    if (stream == NULL || !known(core, event)) {
        result = CU_INVALID_HANDLE;
    } else if (stream->capture != NULL) {
        event->capture = stream->capture->id;
    } else {
        event->capture = 0;
        uint64_t now = core_now();
        uint64_t end = stream == context->streams ? core_context_end(context) : stream->end;
        event->recorded = 1;
        event->when = end > now ? end : now;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuEventQuery(cu_event event) {
    struct core *core;
    cu_result result = enter(event, &core);
    if (result != CU_SUCCESS) return result;
    struct cu_capture *capture = capture_of(core, event->capture);
    if (capture != NULL) {
        capture->invalid = 1;
        core_leave(core);
        return CU_CAPTURED_EVENT;
    }
    uint64_t when = event->when;
    core_leave(core);
    return core_now() >= when ? CU_SUCCESS : CU_NOT_READY;
}

CU_API cu_result cuEventSynchronize(cu_event event) {
    struct core *core;
    cu_result result = enter(event, &core);
    if (result != CU_SUCCESS) return result;
    struct cu_capture *capture = capture_of(core, event->capture);
    if (capture != NULL) {
        capture->invalid = 1;
        core_leave(core);
        return CU_CAPTURED_EVENT;
    }
    uint64_t when = event->when;
    core_leave(core);
    core_wait_until(when);
    result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    core_synchronised(core);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuEventElapsedTime(float *milliseconds, cu_event start, cu_event end) {
    struct core *core;
    if (milliseconds == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(start, &core);
    if (result != CU_SUCCESS) return result;
    if (!known(core, end) || !start->recorded || !end->recorded || (start->flags | end->flags) & EVENT_DISABLE_TIMING) {
        result = CU_INVALID_HANDLE;
    } else if (core_now() < start->when || core_now() < end->when) {
        result = CU_NOT_READY;
    } else {
        *milliseconds = (float)((double)(int64_t)(end->when - start->when) / 1e6);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuStreamWaitEvent(cu_stream handle, cu_event event, unsigned flags) {
    struct core *core;
    cu_context context;
    (void)flags;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, handle);
    if (stream == NULL || !known(core, event)) {
        result = CU_INVALID_HANDLE;
    } else if (capture_of(core, event->capture) != NULL) {
        stream->capture = capture_of(core, event->capture); // it joins
    } else if (event->when > stream->end) {
        stream->end = event->when;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuEventRecordWithFlags(cu_event event, cu_stream stream, unsigned flags) {
    (void)flags;
    return cuEventRecord(event, stream);
}

CU_API cu_result cuEventElapsedTime_v2(float *milliseconds, cu_event start, cu_event end) {
    return cuEventElapsedTime(milliseconds, start, end);
}

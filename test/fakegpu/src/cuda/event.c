// SPDX-License-Identifier: Apache-2.0
// Events: a point in the time of a stream.
#include <stdlib.h>

#include "capture.h"
#include "work.h"

enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };

struct cu_event_st {
    struct cu_event_st *next, *next_pending;
    unsigned flags;
    int recorded, pending;
    int device;
    uint64_t last; // the piece of work that it comes after
    uint64_t when; // CLOCK_MONOTONIC ns; while it is pending, when it was recorded
    uint64_t capture; // the capture that it was recorded in, 0: none
};

static struct cu_capture *capture_of(const struct core *core, uint64_t id) {
    for (struct cu_capture *c = core->captures; id != 0 && c != NULL; c = c->next) {
        if (c->id == id) return c;
    }
    return NULL;
}

// Notes when the event was if what it comes after is done.
static void note(struct core *core, cu_event event) {
    uint32_t lane = core_lane(core, event->device);
    if (lane != FG_LANES) {
        if (!fg_done(&core->db, lane, event->last)) return;
        uint64_t finished = fg_finished(&core->db, lane, event->last);
        if (finished > event->when) event->when = finished;
    }
    event->pending = 0;
}

void core_note_events(struct core *core) {
    for (cu_event *link = &core->pending; *link != NULL;) {
        note(core, *link);
        if ((*link)->pending) {
            link = &(*link)->next_pending;
        } else {
            *link = (*link)->next_pending;
        }
    }
}

static void forget(struct core *core, cu_event event) {
    event->pending = 0;
    for (cu_event *link = &core->pending; *link != NULL; link = &(*link)->next_pending) {
        if (*link != event) continue;
        *link = event->next_pending;
        break;
    }
}

// Whether the event is over by now.
static int over(struct core *core, cu_event event) {
    if (!event->pending) return 1;
    if (!core_done(core, event->device, event->last)) return 0;
    core_note_events(core);
    return 1;
}

void core_drop_events(struct core *core, cu_context context) {
    for (cu_event e = context->events; e != NULL;) {
        cu_event next = e->next;
        forget(core, e);
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
    forget(core, event);
    free(event);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuEventDestroy(cu_event event) { return cuEventDestroy_v2(event); }

static void record(struct core *core, cu_event event, cu_stream stream) {
    forget(core, event);
    event->capture = 0;
    event->recorded = 1;
    event->when = fg_now();
    event->device = stream->context->device;
    event->last = core_stream_last(stream);
    uint32_t lane = core_lane(core, event->device);
    if (lane == FG_LANES || fg_done(&core->db, lane, event->last)) return;
    event->pending = 1;
    event->next_pending = core->pending;
    core->pending = event;
}

CU_API cu_result cuEventRecord(cu_event event, cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, handle);
    if (stream == NULL || !known(core, event)) {
        result = CU_INVALID_HANDLE;
    } else if (stream->capture != NULL) {
        event->capture = stream->capture->id;
    } else {
        result = capture_implicit(core, stream);
        if (result == CU_SUCCESS) record(core, event, stream);
    }
    core_leave(core);
    return result;
}

// Asking for an event that was recorded in a capture breaks it; asking for any other is among what a capture forbids.
static cu_result ask(struct core *core, const struct cu_event_st *event) {
    struct cu_capture *capture = capture_of(core, event->capture);
    if (capture == NULL) return capture_forbids(core);
    capture->invalid = 1;
    return CU_CAPTURED_EVENT;
}

CU_API cu_result cuEventQuery(cu_event event) {
    struct core *core;
    cu_result result = enter(event, &core);
    if (result != CU_SUCCESS) return result;
    result = ask(core, event);
    if (result == CU_SUCCESS && !over(core, event)) result = CU_NOT_READY;
    core_leave(core);
    return result;
}

CU_API cu_result cuEventSynchronize(cu_event event) {
    struct core *core;
    cu_result result = enter(event, &core);
    if (result != CU_SUCCESS) return result;
    result = ask(core, event);
    if (result != CU_SUCCESS || over(core, event)) {
        if (result == CU_SUCCESS) core_synchronised(core);
        core_leave(core);
        return result;
    }
    core_leave_until_done(core, event->device, event->last, event->flags & EVENT_BLOCKING_SYNC ? CORE_SLEEP : CORE_WATCH);
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
    } else if (!over(core, start) || !over(core, end)) {
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
    } else {
        result = capture_implicit(core, stream);
        if (result == CU_SUCCESS && event->pending) work_after(core, stream, event->device, event->last);
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

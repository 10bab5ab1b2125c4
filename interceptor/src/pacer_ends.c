// SPDX-License-Identifier: Apache-2.0
//
// What ends while its work may go on: functions, streams, contexts.

#include "pacer.h"
#include "real.h"

static struct pacer *pacer_of(struct process *process, int ordinal) {
    return __atomic_load_n(&process->devices[ordinal].pacer, __ATOMIC_ACQUIRE);
}

static bool paces(const struct process *process) {
    return process != NULL && __atomic_load_n(&process->pacing, __ATOMIC_RELAXED) == PACING_SOME;
}

void pacer_forget_key(struct process *process, const void *key) {
    for (int i = 0; paces(process) && i < DEVICES; i++) {
        struct pacer *pacer = pacer_of(process, i);
        if (pacer == NULL) continue;
        lock_take(&pacer->lock);
        pace_forget(&pacer->pace, (uintptr_t)key);
        lock_drop(&pacer->lock);
    }
}

// Which functions a module had is not known, and others may get their addresses.
void pacer_forget_keys(struct process *process) {
    for (int i = 0; paces(process) && i < DEVICES; i++) {
        struct pacer *pacer = pacer_of(process, i);
        if (pacer == NULL) continue;
        lock_take(&pacer->lock);
        for (uint32_t f = 0; f < PACE_FUNCTIONS; f++) pace_forget(&pacer->pace, pacer->pace.functions[f].key);
        lock_drop(&pacer->lock);
    }
}

void pacer_stream_ends(struct process *process, cu_stream stream) {
    for (int i = 0; paces(process) && i < DEVICES; i++) {
        struct pacer *pacer = pacer_of(process, i);
        if (pacer == NULL) continue;
        lock_take(&pacer->lock);
        for (uint32_t l = 0; l < pacer->pace.lanes_used; l++) {
            struct pace_lane *lane = &pacer->pace.lanes[l];
            if (lane->stream != (uintptr_t)stream) continue;
            // Its work goes on: events tell its end, and what no event covers is given its time.
            if (__atomic_load_n(&process->captures, __ATOMIC_ACQUIRE) == 0) pacer_close_batch(pacer, lane);
            lane->owner = NULL;
            __atomic_store_n(&lane->stream, PACER_NO_STREAM, __ATOMIC_RELEASE);
        }
        lock_drop(&pacer->lock);
    }
}

void pacer_context_ends(struct device *device) {
    struct pacer *pacer = __atomic_load_n(&device->pacer, __ATOMIC_ACQUIRE);
    if (pacer != NULL) lock_take(&pacer->lock);
}

void pacer_context_ended(struct device *device, cu_context context, bool ended) {
    struct pacer *pacer = __atomic_load_n(&device->pacer, __ATOMIC_ACQUIRE);
    if (pacer == NULL) return;
    for (uint32_t l = 0; ended && l < PACE_LANES; l++) {
        if (pacer->event_context[l] != context) continue;
        for (uint32_t m = 0; m < PACE_MARKS; m++) pacer->events[l][m] = NULL;
        pacer->event_context[l] = NULL;
        pace_lane_drop(&pacer->pace, &pacer->pace.lanes[l]);
    }
    lock_drop(&pacer->lock);
}

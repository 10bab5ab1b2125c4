// SPDX-License-Identifier: Apache-2.0
//
// How far the work of a device is, as its events and streams say, and what is due for it.

#include "pacer.h"
#include "real.h"

// How often the end of a slice's work is looked for: at first often, then seldom, since a kernel may take seconds.
#define DRAIN_PERIOD 40000ull
#define DRAIN_SLOW_AFTER 5000000ull
#define DRAIN_SLOW_PERIOD 200000ull
#define DRAIN_SLOWEST_AFTER 50000000ull
#define DRAIN_SLOWEST_PERIOD 1000000ull
// How often it is looked whether there is anything to run, while others want the GPU, and where the process paces itself.
#define IDLE_PERIOD 250000ull
#define SELF_IDLE_PERIOD 2000000ull

static uint64_t elapsed_before(const struct pacer *pacer, uint32_t at, const struct pace_lane *lane) {
    float milliseconds = 0;
    cu_event from = pacer->events[at][(lane->head - 1) % PACE_MARKS], to = pacer->events[at][lane->head % PACE_MARKS];
    if (lane->head == 0 || from == NULL || !HAVE(cuEventElapsedTime)) return 0;
    if (REAL(cuEventElapsedTime)(&milliseconds, from, to) != CU_OK || milliseconds < 0) return 0;
    return (uint64_t)((double)milliseconds * 1e6);
}

static void poll_events(struct pacer *pacer, uint32_t at, uint64_t now) {
    struct pace_lane *lane = &pacer->pace.lanes[at];
    while (lane->head != lane->tail && HAVE(cuEventQuery)) {
        if (REAL(cuEventQuery)(pacer->events[at][lane->head % PACE_MARKS]) == CU_NOT_READY) return;
        pace_reached(&pacer->pace, lane, elapsed_before(pacer, at, lane), now);
    }
}

// Whether the stream is empty; `asked` says whether it could be asked. Not while anything is captured: the question would end
// a capture. The default stream of a thread is another one here, and that of a stream which was destroyed may be another's.
static bool stream_empty(const struct pace_lane *lane, const struct pacer_look *look, bool *asked) {
    *asked = look->alone && lane->stream != (uintptr_t)CU_THREAD_STREAM && lane->owner != NULL && HAVE(cuStreamQuery);
    if (*asked && lane->context != look->context) {
        *asked = look->all && HAVE(cuCtxSetCurrent) && REAL(cuCtxSetCurrent)(lane->context) == CU_OK;
    }
    return *asked && REAL(cuStreamQuery)((cu_stream)(uintptr_t)lane->stream) != CU_NOT_READY;
}

void pacer_poll(struct pacer *pacer, const struct pacer_look *look) {
    for (uint32_t i = 0; i < pacer->pace.lanes_used; i++) {
        struct pace_lane *lane = &pacer->pace.lanes[i];
        if (lane->stream == 0) continue;
        poll_events(pacer, i, look->now);
        if (lane->head != lane->tail || pace_pending(lane) <= 0) continue;
        bool asked, empty = stream_empty(lane, look, &asked);
        pace_look(&pacer->pace, lane, asked, empty, look->now);
    }
}

// Whether nothing is outstanding and nothing was launched since the look before, at which it was so too.
static bool is_quiet(struct pacer *pacer, uint64_t now) {
    uint32_t launches = pace_launches(&pacer->pace);
    bool busy = pace_busy(&pacer->pace), before = pacer->quiet && launches == pacer->seen;
    pacer->quiet = !busy;
    pacer->seen = launches;
    pacer->seen_at = now;
    return before && !busy;
}

static uint64_t drain_period(uint64_t since) {
    if (since > DRAIN_SLOWEST_AFTER) return DRAIN_SLOWEST_PERIOD;
    return since > DRAIN_SLOW_AFTER ? DRAIN_SLOW_PERIOD : DRAIN_PERIOD;
}

// The end of a slice: drained, or when to look again.
static uint64_t end(struct pacer *pacer, const struct pacer_look *look) {
    uint64_t now = look->now;
    pacer_poll(pacer, look);
    if (pacer->by != NULL) gate_count_overrun(pacer->by);
    if (is_quiet(pacer, now)) {
        pacer_drained(pacer, now);
        return UINT64_MAX;
    }
    return now + drain_period(now - pacer->ended_at);
}

// How often an open slice is looked at; 0: only when it ends.
static uint64_t idle_period(const struct pacer *pacer) {
    if (pacer->by == NULL) return SELF_IDLE_PERIOD;
    return gate_contended(pacer->by) ? IDLE_PERIOD : 0;
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t pacer_act(struct pacer *pacer, const struct pacer_look *look) {
    uint64_t now = look->now, period;
    if (pacer->state == PACER_IDLE) return UINT64_MAX;
    if (pacer->state == PACER_OPEN && !pacer_still_open(pacer, now)) pacer_end_slice(pacer, now);
    if (pacer->state == PACER_ENDING) return end(pacer, look);
    uint64_t until = pacer->by == NULL ? pacer->open_until : lesser(gate_open_until(pacer->by), gate_lease(pacer->process->heartbeat) + 1);
    period = idle_period(pacer);
    if (period == 0) return until;
    if (now - pacer->seen_at >= period) {
        pacer_poll(pacer, look);
        if (is_quiet(pacer, now)) {
            // What was launched between the look and the withdrawal is waited for.
            pacer_end_slice(pacer, now);
            return end(pacer, look);
        }
    }
    return lesser(until, pacer->seen_at + period);
}

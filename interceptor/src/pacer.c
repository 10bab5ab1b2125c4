// SPDX-License-Identifier: Apache-2.0
//
// The slow path of a launch: its device and lane, the gate, the bound on what is ahead of the GPU, and the events.

#include "pacer.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"
#include "real.h"
#include "topics.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

// How long a launch sleeps for what is ahead of it, and after how much waiting it renews what a program may have closed.
#define LEAST_SLEEP 30000
#define MOST_SLEEP 500000
#define RENEW_AFTER 200000000ull

uint64_t sluice_epoch = EPOCH_OF_NONE;
__thread struct pacer_cache pacer_cache[PACER_CACHED] = {[0 ... PACER_CACHED - 1] = {.stream = UINT64_MAX}};

uint64_t pacer_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

bool pacer_begin(struct process *process, struct device *device) {
    struct pacer *made = track_memory(sizeof *made);
    int count = 0;
    if (made == NULL) return false;
    madvise(made, sizeof *made, MADV_WIPEONFORK);
    made->process = process;
    made->device = device;
    made->self_word = SLUICE_GATE_CLOSED;
    made->word = &made->self_word;
    made->admitted = PACER_NOT_ADMITTED;
    for (int i = 0; i < device->share_count; i++) {
        if (share_paces(device->shares[i])) made->gates[made->gate_count++].share = device->shares[i];
    }
    pace_begin(&made->pace);
    if (!HAVE(cuDeviceGetCount) || REAL(cuDeviceGetCount)(&count) != CU_OK) count = DEVICES;
    __atomic_store_n(&process->device_count, (uint32_t)count, __ATOMIC_RELAXED);
    __atomic_store_n(&device->pacer, made, __ATOMIC_RELEASE);
    process_paces(process, PACING_UNKNOWN, PACING_SOME);
    process_paces(process, PACING_NONE, PACING_SOME);
    pacer_renew(process);
    return true;
}

void pacer_renew(struct process *process) {
    bool captures = __atomic_load_n(&process->captures, __ATOMIC_ACQUIRE) != 0;
    static uint64_t last = EPOCH_FIRST;
    uint64_t next = __atomic_add_fetch(&last, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&sluice_epoch, captures ? EPOCH_OF_NONE : next, __ATOMIC_RELEASE);
}

// Whether the default streams need no asking: there is one context.
static bool is_plain(const struct process *process) { return __atomic_load_n(&process->living, __ATOMIC_RELAXED) <= 1; }

// Finds the pacer. Where nothing is paced after the first context was seen, nobody asks again.
static bool locate(struct pacer_launch *launch) {
    struct process *process = process_limited();
    struct here here;
    launch->stream = pacer_stream(launch->named);
    if (process == NULL || stream_captures(process, launch->handle, launch->per_thread)) return false;
    bool found = device_of_stream((cu_stream)(uintptr_t)launch->stream, &here);
    if (found || __atomic_load_n(&process->contexts, __ATOMIC_RELAXED) > 0) process_paces(process, PACING_UNKNOWN, PACING_NONE);
    if (!found) return false;
    launch->pacer = __atomic_load_n(&here.device->pacer, __ATOMIC_ACQUIRE);
    launch->context = here.context;
    return launch->pacer != NULL;
}

struct pacer_hold pacer_hold(struct process *process) {
    struct pacer_hold hold = {.mode = 2, .alone = true};
    lock_take(&process->capture_lock);
    if (__atomic_load_n(&process->captures, __ATOMIC_ACQUIRE) == 0) return hold;
    lock_drop(&process->capture_lock);
    hold.alone = false;
    hold.relaxed = HAVE(cuThreadExchangeStreamCaptureMode) && REAL(cuThreadExchangeStreamCaptureMode)(&hold.mode) == CU_OK;
    return hold;
}

void pacer_release(struct process *process, const struct pacer_hold *hold) {
    int mode = hold->mode;
    if (hold->relaxed) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (hold->alone) lock_drop(&process->capture_lock);
}

// An event has to be made in the context of its stream.
static bool make_event(cu_event *event, cu_context context) {
    cu_context current = NULL;
    if (!HAVE(cuEventCreate) || REAL(cuCtxGetCurrent)(&current) != CU_OK) return false;
    bool other = current != context && HAVE(cuCtxSetCurrent);
    if (other && REAL(cuCtxSetCurrent)(context) != CU_OK) return false;
    bool made = REAL(cuEventCreate)(event, 0) == CU_OK;
    if (other) REAL(cuCtxSetCurrent)(current);
    return made;
}

static void drop_events(struct pacer *pacer, uint32_t lane, bool destroy) {
    for (uint32_t i = 0; i < PACE_MARKS; i++) {
        if (pacer->events[lane][i] != NULL && destroy && HAVE(cuEventDestroy_v2)) REAL(cuEventDestroy_v2)(pacer->events[lane][i]);
        pacer->events[lane][i] = NULL;
    }
}

static void look(struct pacer *pacer, cu_context context) {
    struct pacer_hold hold = pacer_hold(pacer->process);
    pacer_poll(pacer, &(struct pacer_look){.now = pacer_now(), .context = context, .alone = hold.alone});
    pacer_release(pacer->process, &hold);
}

// Records an event that closes the lane's batch, or begins one. Under the lock.
static void record(struct pacer *pacer, struct pace_lane *lane, bool start) {
    uint32_t at = (uint32_t)(lane - pacer->pace.lanes);
    if (!pace_mark_room(lane)) look(pacer, lane->context);
    if (!pace_mark_room(lane) || !HAVE(cuEventRecord)) return;
    struct pacer_hold hold = pacer_hold(pacer->process);
    cu_event *event = &pacer->events[at][pace_mark(&pacer->pace, lane, pacer_now(), start)];
    bool good = *event != NULL || make_event(event, lane->context);
    if (!good || REAL(cuEventRecord)(*event, (cu_stream)(uintptr_t)lane->stream) != CU_OK) pace_unmark(&pacer->pace, lane);
    pacer_release(pacer->process, &hold);
}

void pacer_close_batch(struct pacer *pacer, struct pace_lane *lane) {
    if (pace_pending(lane) > 0) record(pacer, lane, false);
}

static void find_lane(struct pacer_launch *launch) {
    struct pacer *pacer = launch->pacer;
    bool fixed = launch->stream > (uintptr_t)CU_THREAD_STREAM;
    struct pace_lane *lane = pace_lane_of(&pacer->pace, pacer_cache, launch->context, launch->stream);
    launch->lane = lane;
    if (lane == NULL) return;
    uint32_t at = (uint32_t)(lane - pacer->pace.lanes);
    if (pacer->event_context[at] != launch->context) {
        drop_events(pacer, at, true);
        pacer->event_context[at] = launch->context;
    }
    if (lane->pacer == NULL) pacer_renew(pacer->process); // another thread may have had it
    lane->pacer = pacer;
    lane->epoch = fixed || is_plain(pacer->process) ? __atomic_load_n(&sluice_epoch, __ATOMIC_ACQUIRE) : EPOCH_ASK;
    if (lane->epoch == EPOCH_OF_NONE) lane->epoch = EPOCH_ASK;
    *pacer_cached(launch->named) = (struct pacer_cache){launch->named, lane};
}

static void sleep_for(int64_t ns) {
    struct timespec time = {.tv_nsec = ns < LEAST_SLEEP ? LEAST_SLEEP : ns > MOST_SLEEP ? MOST_SLEEP : ns};
    nanosleep(&time, NULL);
}

// Waits at the gate, without the lock meanwhile. Where it is long, the bell may have been lost with its descriptor, or the process
// been taken for dead with its lock: it rings again, ever more seldom.
static void wait_at_gate(struct pacer *pacer, const struct pacer_place *place, uint64_t now, uint64_t since, uint64_t *again) {
    struct timespec time = {.tv_nsec = (long)(place->until > now ? place->until - now : 1)};
    bool remind = now - since > *again;
    if (remind) *again = 2 * (now - since);
    for (int i = 0; i < pacer->gate_count; i++) {
        if (gate_paces(&pacer->gates[i])) gate_want(&pacer->gates[i]);
        if (now - since > RENEW_AFTER) ledger_renew(&pacer->gates[i].share->ledger);
        if (remind && gate_paces(&pacer->gates[i])) gate_remind(&pacer->gates[i]);
    }
    lock_drop(&pacer->lock);
    syscall(SYS_futex, place->word, FUTEX_WAIT, place->value, &time, NULL, 0);
    lock_take(&pacer->lock);
}

static void act(struct pacer *pacer, cu_context context) {
    struct pacer_hold hold = pacer_hold(pacer->process);
    pacer_act(pacer, &(struct pacer_look){.now = pacer_now(), .context = context, .alone = hold.alone});
    pacer_release(pacer->process, &hold);
}

static void pass_gate(struct pacer_launch *launch) {
    struct pacer *pacer = launch->pacer;
    struct pacer_place place;
    uint64_t began = pacer_now(), now = began, again = RENEW_AFTER;
    if (pacer_admit(pacer, now, &place)) return;
    if (launch->lane != NULL) pacer_close_batch(pacer, launch->lane);
    pacer->waiters++;
    do {
        wait_at_gate(pacer, &place, now, began, &again);
        // The helper's work, where there is no helper.
        if (__atomic_load_n(&pacer->process->helper, __ATOMIC_ACQUIRE) == HELPER_MISSING) act(pacer, launch->context);
        now = pacer_now();
    } while (process_is_paced() && !pacer_admit(pacer, now, &place));
    pacer->waiters--;
    gate_count_wait(pacer->by == NULL ? &pacer->gates[0] : pacer->by, now - began);
}

// Waits while too much is ahead of the GPU. False where it waited: the slice may be over.
static bool pass_bound(struct pacer_launch *launch) {
    struct pacer *pacer = launch->pacer;
    uint64_t began = pacer_now(), now = began;
    int64_t first = pace_ahead(&pacer->pace, now), ahead = first;
    if (!pace_must_wait(&pacer->pace, ahead)) return true;
    while (pace_must_wait(&pacer->pace, ahead)) {
        look(pacer, launch->context);
        ahead = pace_ahead(&pacer->pace, now);
        if (!pace_must_wait(&pacer->pace, ahead)) break;
        if ((int64_t)(now - began) > pace_patience(first)) {
            pace_give_up(&pacer->pace);
            break;
        }
        lock_drop(&pacer->lock);
        sleep_for(ahead - PACE_MOST_AHEAD);
        lock_take(&pacer->lock);
        now = pacer_now();
    }
    return false;
}

// With the lock taken: what precedes the launch in its stream, and the launch itself, are accounted.
static void account(struct pacer_launch *launch) {
    struct pacer *pacer = launch->pacer;
    struct pace_lane *lane = launch->lane;
    launch->at = pace_function_at(&pacer->pace, launch->key);
    launch->mark = pace_mark_due(&pacer->pace, lane, launch->at);
    bool known = pace_known(&pacer->pace, launch->at);
    // What is measured alone must not be mixed, and on an empty queue needs a beginning.
    if (!known) pacer_close_batch(pacer, lane);
    if (launch->mark) look(pacer, launch->context);
    if (lane->head == lane->tail && lane->limit == lane->room) record(pacer, lane, true);
    pace_add(&pacer->pace, lane, launch->at);
}

bool pacer_before(struct pacer_launch *launch) {
    int kept = errno, cancel;
    bool paced;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    paced = locate(launch);
    if (paced) {
        lock_take(&launch->pacer->lock);
        do {
            find_lane(launch);
            pass_gate(launch);
        } while (!pass_bound(launch));
        find_lane(launch); // it may have been another's meanwhile
        if (launch->lane != NULL) account(launch);
        lock_drop(&launch->pacer->lock);
        paced = launch->lane != NULL;
    }
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return paced;
}

cu_result pacer_after(struct pacer_launch *launch, cu_result result) {
    if (result == CU_OK && !launch->mark) return result;
    int kept = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    lock_take(&launch->pacer->lock);
    if (launch->lane->stream == launch->stream) {
        if (result != CU_OK) pace_undo(&launch->pacer->pace, launch->lane, launch->at);
        else record(launch->pacer, launch->lane, false);
    }
    if (launch->pacer->state != PACER_IDLE) pacer_flush(launch->pacer);
    lock_drop(&launch->pacer->lock);
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return result;
}

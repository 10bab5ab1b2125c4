// SPDX-License-Identifier: Apache-2.0
//
// Slices: how one begins for this process, goes on, ends, and is drained. The arbiter's gates decide where they hold; elsewhere
// the process paces itself, by the same steps.

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"
#include "pacer.h"

// What runs may wait for a launch that waits at the gate. After that long beyond what is ahead of the GPU one is let pass, and
// others after ever longer times.
#define LENIENT_AFTER 200000000ull
#define LENIENT_MOST 5000000000ull
// How long a launch waits before it looks again whatever happens.
#define LONGEST_WAIT 50000000ull
// A process that is waiting elsewhere for its own drain looks more often.
#define DRAIN_WAIT 1000000ull

static uint32_t wants(const struct pacer *pacer) { return pacer->waiters > 0 ? SLUICE_PACE_WANTS : 0; }

static struct gate *first_holding(struct pacer *pacer, uint64_t now) {
    for (int i = 0; i < pacer->gate_count; i++) {
        if (gate_holds(&pacer->gates[i], pacer->process->heartbeat, now)) return &pacer->gates[i];
    }
    return NULL;
}

static void say(struct pacer *pacer, uint32_t launches, uint32_t bits) {
    if (pacer->by != NULL) {
        gate_say(pacer->by, launches, bits);
        return;
    }
    // Who paces itself speaks of the slice that an arbiter, should one come, has at hand.
    for (int i = 0; i < pacer->gate_count; i++) {
        struct gate *gate = &pacer->gates[i];
        gate->sequence = SLUICE_GATE_SEQUENCE(gate_word(gate));
        gate->took_part = false;
        gate_say(gate, launches, bits);
    }
}

// Hundredths of a percent that the process may use where nobody arbitrates.
static uint32_t own_rate(struct pacer *pacer) {
    uint32_t rate = 0;
    bool any = false;
    for (int i = 0; i < pacer->gate_count; i++) {
        if (!gate_paces(&pacer->gates[i])) continue;
        rate += gate_rate(&pacer->gates[i]);
        any = true;
    }
    return any ? rate : 10000; // nothing is held any more
}

static void open_slice(struct pacer *pacer, struct gate *by, uint32_t word, uint64_t until, uint64_t now) {
    pacer->by = by;
    pacer->open_until = until;
    pacer->opened_at = now;
    pacer->opened_gpu = pacer->pace.gpu_time;
    pacer->base = pacer->seen = pace_launches(&pacer->pace);
    pacer->seen_at = now;
    pacer->quiet = false;
    pacer->state = PACER_OPEN;
    if (by != NULL) {
        by->sequence = SLUICE_GATE_SEQUENCE(word);
        by->took_part = true;
        by->drained = by->overrun = false;
    }
    gate_count_slice(by == NULL ? &pacer->gates[0] : by);
    say(pacer, 0, SLUICE_PACE_RUNS);
    __atomic_store_n(&pacer->word, by == NULL ? &pacer->self_word : gate_word_at(by), __ATOMIC_RELAXED);
    __atomic_store_n(&pacer->admitted, word, __ATOMIC_RELEASE);
    helper_start(pacer->process);
    helper_call(pacer->process);
}

static bool open_self(struct pacer *pacer, uint64_t now) {
    pacer->rate = own_rate(pacer);
    uint64_t until = pace_self_open(&pacer->self, now, pacer->rate);
    if (until == 0) return false;
    uint32_t word = (pacer->self_word & ~7u) + 8u + SLUICE_GATE_OPEN;
    __atomic_store_n(&pacer->self_word, word, __ATOMIC_RELEASE);
    open_slice(pacer, NULL, word, until, now);
    return true;
}

bool pacer_still_open(struct pacer *pacer, uint64_t now) {
    if (pacer->by != NULL) {
        return gate_word(pacer->by) == pacer->admitted && now < gate_open_until(pacer->by) &&
               gate_holds(pacer->by, pacer->process->heartbeat, now);
    }
    if (first_holding(pacer, now) != NULL) return false;
    if (now < pacer->open_until) return true;
    // All of the GPU is the process's: the next window begins where this one ends.
    if (pacer->rate < 10000 || (pacer->rate = own_rate(pacer)) < 10000) return false;
    pacer->open_until = pace_self_open(&pacer->self, now, pacer->rate);
    return true;
}

static void begin_ending(struct pacer *pacer, uint64_t now) {
    int64_t ahead = pace_ahead(&pacer->pace, now);
    pacer->state = PACER_ENDING;
    pacer->ended_at = now;
    pacer->quiet = false;
    pacer->lenience = LENIENT_AFTER;
    pacer->lenient_at = now + LENIENT_AFTER + (ahead > 0 ? 2 * (uint64_t)ahead : 0);
}

void pacer_end_slice(struct pacer *pacer, uint64_t now) {
    __atomic_store_n(&pacer->admitted, PACER_NOT_ADMITTED, __ATOMIC_SEQ_CST);
    uint32_t closed = (pacer->self_word & ~7u) + SLUICE_GATE_CLOSED;
    if (pacer->by == NULL) __atomic_store_n(&pacer->self_word, closed, __ATOMIC_RELEASE);
    begin_ending(pacer, now);
    say(pacer, pace_launches(&pacer->pace) - pacer->base, SLUICE_PACE_RUNS | wants(pacer));
}

void pacer_flush(struct pacer *pacer) {
    struct sluice_usage *usage = gate_usage(pacer->by == NULL ? &pacer->gates[0] : pacer->by);
    uint64_t more = pacer->pace.gpu_time - pacer->flushed;
    pacer->flushed += more;
    if (usage == NULL) return;
    if (more > 0) ledger_count(&usage->gpu_time, more);
    __atomic_store_n(&usage->longest, pacer->pace.longest, __ATOMIC_RELAXED);
}

void pacer_drained(struct pacer *pacer, uint64_t now) {
    uint64_t used = pacer->pace.gpu_time - pacer->opened_gpu, passed = now - pacer->opened_at;
    pacer_flush(pacer);
    if (pacer->by == NULL) pace_self_charge(&pacer->self, used < passed ? used : passed);
    else pacer->by->drained = true;
    pacer->state = PACER_IDLE;
    say(pacer, pace_launches(&pacer->pace) - pacer->base, SLUICE_PACE_DRAINED | wants(pacer));
    // Who waits for the end of the process's own work waits at this word.
    __atomic_store_n(&pacer->self_word, pacer->self_word + 8, __ATOMIC_RELEASE);
    if (pacer->waiters > 0) syscall(SYS_futex, &pacer->self_word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// Takes part in a slice of the tenant that went by without this process, which others of the tenant wait for.
static void join_late(struct pacer *pacer, uint64_t now) {
    for (int i = 0; i < pacer->gate_count; i++) {
        struct gate *gate = &pacer->gates[i];
        uint32_t word = gate_word(gate), sequence = SLUICE_GATE_SEQUENCE(word);
        if (SLUICE_GATE_STATE(word) == SLUICE_GATE_OPEN || gate_finish(gate, sequence) == 0) continue;
        if (gate->took_part && gate->sequence == sequence) continue;
        gate->sequence = sequence;
        gate->took_part = true;
        gate->drained = true; // but for what it may finish
        gate->overrun = false;
        pacer->by = gate;
        pacer->opened_at = now;
        pacer->opened_gpu = pacer->pace.gpu_time;
        pacer->base = pace_launches(&pacer->pace);
        return;
    }
}

// Whether a launch is let pass in a slice that is over, because another process of the tenant waits for it on another GPU.
static bool may_finish(struct pacer *pacer, uint64_t now) {
    if (pacer->state == PACER_IDLE) join_late(pacer, now);
    if (pacer->by == NULL || !gate_holds(pacer->by, pacer->process->heartbeat, now)) return false;
    if (SLUICE_GATE_SEQUENCE(gate_word(pacer->by)) != pacer->by->sequence) return false;
    uint32_t launches = pace_launches(&pacer->pace) - pacer->base;
    if (launches >= gate_finish(pacer->by, pacer->by->sequence)) return false;
    say(pacer, launches + 1, SLUICE_PACE_RUNS | wants(pacer));
    pacer->quiet = false;
    if (pacer->state == PACER_ENDING) return true;
    begin_ending(pacer, now);
    helper_call(pacer->process);
    return true;
}

// Whether a launch is let pass because what runs does not end without it, as it seems.
static bool is_lenient(struct pacer *pacer, uint64_t now) {
    if (pacer->state != PACER_ENDING || now < pacer->lenient_at) return false;
    if (2 * pacer->lenience < LENIENT_MOST) pacer->lenience *= 2;
    pacer->lenient_at = now + pacer->lenience;
    say(pacer, pace_launches(&pacer->pace) - pacer->base + 1, SLUICE_PACE_RUNS | wants(pacer));
    pacer->quiet = false;
    return true;
}

static bool admitted_by_gate(struct pacer *pacer, uint64_t now) {
    for (int i = 0; i < pacer->gate_count; i++) {
        struct gate *gate = &pacer->gates[i];
        uint32_t word = gate_word(gate);
        if (!gate_holds(gate, pacer->process->heartbeat, now) || !gate_admits(gate, word, now)) continue;
        open_slice(pacer, gate, word, 0, now);
        return true;
    }
    return false;
}

bool pacer_admit(struct pacer *pacer, uint64_t now, struct pacer_place *place) {
    struct gate *holds = first_holding(pacer, now);
    *place = (struct pacer_place){.word = &pacer->self_word, .value = pacer->self_word, .until = now + LONGEST_WAIT};
    if (holds != NULL) {
        place->word = gate_word_at(holds);
        place->value = gate_word(holds);
    }
    if (pacer->state == PACER_OPEN) {
        if (pacer_still_open(pacer, now)) return true;
        pacer_end_slice(pacer, now);
        helper_call(pacer->process);
    }
    if (may_finish(pacer, now) || is_lenient(pacer, now)) return true;
    if (pacer->state == PACER_ENDING) {
        place->until = now + DRAIN_WAIT;
        return false;
    }
    if (holds != NULL) return admitted_by_gate(pacer, now);
    if (open_self(pacer, now)) return true;
    place->until = pace_next_window(now);
    return false;
}

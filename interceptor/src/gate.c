// SPDX-License-Identifier: Apache-2.0
//
// Reading a gate, and answering.

#include "gate.h"

#include <stddef.h>

static const struct sluice_gate *words(const struct gate *gate) {
    return gate->share->limits == NULL ? NULL : &gate->share->limits->gate;
}

bool gate_paces(const struct gate *gate) { return share_paces(gate->share); }

uint64_t gate_lease(const struct sluice_heartbeat *heartbeat) {
    return heartbeat == NULL ? 0 : __atomic_load_n(&heartbeat->now, __ATOMIC_ACQUIRE) + SLUICE_LEASE_NS;
}

const uint32_t *gate_word_at(const struct gate *gate) { return words(gate) == NULL ? NULL : &words(gate)->word; }

uint32_t gate_word(const struct gate *gate) {
    const uint32_t *word = gate_word_at(gate);
    return word == NULL ? SLUICE_GATE_NONE : __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

bool gate_holds(const struct gate *gate, const struct sluice_heartbeat *heartbeat, uint64_t now) {
    if (heartbeat == NULL || now > gate_lease(heartbeat) || !gate_paces(gate)) return false;
    return SLUICE_GATE_STATE(gate_word(gate)) != SLUICE_GATE_NONE;
}

uint64_t gate_open_until(const struct gate *gate) {
    return words(gate) == NULL ? 0 : __atomic_load_n(&words(gate)->open_until, __ATOMIC_ACQUIRE);
}

bool gate_contended(const struct gate *gate) {
    return words(gate) != NULL && (__atomic_load_n(&words(gate)->flags, __ATOMIC_ACQUIRE) & SLUICE_GATE_CONTENDED) != 0;
}

bool gate_admits(const struct gate *gate, uint32_t word, uint64_t now) {
    if (SLUICE_GATE_STATE(word) != SLUICE_GATE_OPEN || now >= gate_open_until(gate)) return false;
    return !(gate->drained && gate->sequence == SLUICE_GATE_SEQUENCE(word));
}

uint32_t gate_finish(const struct gate *gate, uint32_t sequence) {
    if (words(gate) == NULL) return 0;
    uint64_t finish = __atomic_load_n(&words(gate)->finish, __ATOMIC_ACQUIRE);
    return SLUICE_FINISH_SEQUENCE(finish) == sequence ? SLUICE_FINISH_LAUNCHES(finish) : 0;
}

uint32_t gate_rate(const struct gate *gate) {
    uint32_t share = share_compute(gate->share), processes = ledger_working(&gate->share->ledger);
    if (share == 0) share = 100; // one point
    uint32_t rate = share / (processes == 0 ? 1 : processes);
    return rate == 0 ? 1 : rate;
}

void gate_say(struct gate *gate, uint32_t launches, uint32_t bits) {
    uint64_t *pace = ledger_pace(&gate->share->ledger);
    uint32_t sequence = gate->sequence;
    if (pace == NULL) return;
    __atomic_store_n(pace, (uint64_t)launches << 32 | (uint64_t)(sequence << 3) | bits, __ATOMIC_RELEASE);
    if (bits & SLUICE_PACE_DRAINED) bell_ring(&gate->bell, gate->share->directory);
}

void gate_want(struct gate *gate) {
    uint64_t *pace = ledger_pace(&gate->share->ledger);
    if (pace == NULL) return;
    uint64_t said = __atomic_load_n(pace, __ATOMIC_ACQUIRE);
    if (said & SLUICE_PACE_WANTS) return;
    if (SLUICE_PACE_BITS(said) == 0) {
        gate->sequence = SLUICE_GATE_SEQUENCE(gate_word(gate));
        gate->took_part = false;
        said = (uint64_t)(gate->sequence << 3);
    }
    __atomic_store_n(pace, said | SLUICE_PACE_WANTS, __ATOMIC_RELEASE);
    bell_ring(&gate->bell, gate->share->directory);
}

void gate_remind(struct gate *gate) { bell_ring(&gate->bell, gate->share->directory); }

struct sluice_usage *gate_usage(const struct gate *gate) { return gate->share->ledger.page; }

void gate_count_slice(const struct gate *gate) {
    if (gate_usage(gate) != NULL) ledger_count(&gate_usage(gate)->slices, 1);
}

void gate_count_wait(const struct gate *gate, uint64_t waited) {
    if (gate_usage(gate) == NULL) return;
    ledger_count(&gate_usage(gate)->gate_wait, waited);
    ledger_count(&gate_usage(gate)->gate_waits, 1);
}

void gate_count_overrun(struct gate *gate) {
    if (gate->overrun || SLUICE_GATE_STATE(gate_word(gate)) != SLUICE_GATE_OVERRUN) return;
    gate->overrun = true;
    if (gate_usage(gate) != NULL) ledger_count(&gate_usage(gate)->overruns, 1);
}

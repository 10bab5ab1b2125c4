// SPDX-License-Identifier: Apache-2.0
//
// The gate of one share: what the node's arbiter says in the limits page, and what this process says in its slot.

#ifndef SLUICE_GATE_H
#define SLUICE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "bell.h"
#include "share.h"

struct gate {
    struct share *share;
    struct bell bell;
    uint32_t sequence; // of the slice that this process last spoke of
    bool took_part;    // in that slice, admitted by this gate
    bool drained;      // it has said that it is drained of that
    bool overrun;      // that slice was counted as overrun
};

// Whether the share holds the process's time on the GPU at all, and whether the arbiter does: not without a fresh heartbeat.
bool gate_paces(const struct gate *gate);
bool gate_holds(const struct gate *gate, const struct sluice_heartbeat *heartbeat, uint64_t now);
// Until when that is so.
uint64_t gate_lease(const struct sluice_heartbeat *heartbeat);

// The futex, and its value. Without an agent there is none: NULL and NONE.
const uint32_t *gate_word_at(const struct gate *gate);
uint32_t gate_word(const struct gate *gate);
uint64_t gate_open_until(const struct gate *gate);
bool gate_contended(const struct gate *gate);
// Whether this process may launch: the gate is open, and it has not said that it is done with that slice.
bool gate_admits(const struct gate *gate, uint32_t word, uint64_t now);
// How many launches may be completed in the slice of that sequence although it is over.
uint32_t gate_finish(const struct gate *gate, uint32_t sequence);
// The share in hundredths of a percent, divided by the processes of it that have work.
uint32_t gate_rate(const struct gate *gate);

// What the process says. WANTS that is new, and DRAINED, ring the bell.
void gate_say(struct gate *gate, uint32_t launches, uint32_t bits);
void gate_want(struct gate *gate);
// Rings the bell although nothing is new.
void gate_remind(struct gate *gate);

// The counters of the share; NULL where there are none.
struct sluice_usage *gate_usage(const struct gate *gate);
// Counts a slice; time that a launch waited; a slice that has overrun, once.
void gate_count_slice(const struct gate *gate);
void gate_count_wait(const struct gate *gate, uint64_t waited);
void gate_count_overrun(struct gate *gate);

#endif // SLUICE_GATE_H

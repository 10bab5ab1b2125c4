// SPDX-License-Identifier: Apache-2.0
//
// Shares: a limit and its ledger. Under the agent they are found below /run/sluice and must be genuine; alone, one is made of
// the environment's figures and a ledger in /dev/shm.

#ifndef SLUICE_SHARE_H
#define SLUICE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/sluice_abi.h"
#include "ledger.h"

struct share {
    const struct sluice_limits *limits; // the agent's page; NULL alone
    uint64_t fixed_limit, fixed_context; // alone
    uint32_t fixed_compute;              // alone: hundredths of a percent, 0 where the time is not held
    char directory[160];
    bool joined;
    struct ledger ledger;
};

// The most shares that a process can meet.
#define SHARES 64

// Finds the genuine shares of this container, ordered by (claim uid, result index). Says how many; `ignored` counts what
// only looks like one.
int share_find_all(struct share shares[SHARES], const char *own_path, unsigned *ignored);

// Maps the node's heartbeat; NULL where there is no genuine one.
const struct sluice_heartbeat *share_heartbeat(const char *own_path);

// Opens and joins a share's ledger at the first use of its device. False with a reason.
bool share_join(struct share *share, const char **reason);

// Opens a share's ledger to look at, without joining; likewise for the environment's share of a device, if it was ever made.
bool share_look(struct share *share);
bool share_look_alone(struct share *share, const char *group, const unsigned char uuid[16]);

// Makes the share of a device that the environment limits, and joins it.
bool share_join_alone(struct share *share, const char *group, const unsigned char uuid[16], uint64_t limit,
                      uint64_t context, const char **reason);

static inline uint64_t share_limit(const struct share *share) {
    return share->limits == NULL ? share->fixed_limit : __atomic_load_n(&share->limits->memory_limit, __ATOMIC_ACQUIRE);
}

static inline uint64_t share_context(const struct share *share) {
    return share->limits == NULL ? share->fixed_context : __atomic_load_n(&share->limits->context, __ATOMIC_ACQUIRE);
}

static inline uint64_t share_overhead(const struct share *share) {
    return share->limits == NULL ? 0 : __atomic_load_n(&share->limits->overhead, __ATOMIC_ACQUIRE);
}

static inline bool share_enforces(const struct share *share) {
    return share->limits == NULL ||
           (__atomic_load_n(&share->limits->enforce, __ATOMIC_ACQUIRE) & SLUICE_ENFORCE_MEMORY) != 0;
}

// Whether the share holds its processes' time on the GPU, and what it grants in hundredths of a percent.
static inline bool share_paces(const struct share *share) {
    return share->limits == NULL ? share->fixed_compute != 0
                                 : share->limits->version >= 2 &&
                                       (__atomic_load_n(&share->limits->enforce, __ATOMIC_ACQUIRE) & SLUICE_ENFORCE_COMPUTE) != 0;
}

static inline uint32_t share_compute(const struct share *share) {
    return share->limits == NULL ? share->fixed_compute : __atomic_load_n(&share->limits->compute_share, __ATOMIC_ACQUIRE);
}

#endif // SLUICE_SHARE_H

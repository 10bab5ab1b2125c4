// SPDX-License-Identifier: Apache-2.0
//
// The ledger of one share: a file that all its processes map, in which each has a slot (see sluice_abi.h).
//
// Taking and giving back are a compare-and-swap inside the process's own credit. Credit grows under a byte-range lock, which
// the kernel drops when its holder dies; at the limit the holder takes back what others have not used, then what dead
// processes held. So the sum of credits never passes the limit, and what fits is never refused.

#ifndef SLUICE_LEDGER_H
#define SLUICE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../include/sluice_abi.h"
#include "lock.h"

struct ledger {
    struct sluice_usage *page; // NULL where the ledger could not be opened
    char path[192];            // to open it again, should the program close what it does not know
    int fd;
    dev_t device; // of the file, to know our descriptor by
    ino_t inode;
    struct sluice_lock lock; // around the slow path
    int cancel;              // whether the thread in the slow path may be cancelled elsewhere
    int slot;                // -1 without one
    uint64_t stamp;
    uint32_t seen_limit; // the limit in units by which the credit was given
    uint32_t held;       // what this process holds, in units, should its slot be lost
    uint64_t exported, imported; // the same for what it exports and imports, in bytes
    uint64_t waited;     // ns for the growth byte
};

// Maps a ledger that lies complete at a path. False, with a reason, where it does not.
bool ledger_open(struct ledger *ledger, const char *path, const char **reason);
void ledger_close(struct ledger *ledger);

// Registers the process; the first one fixes the limit where no agent gives it (limit 0 leaves that alone). False where no
// slot is free or another limit is in force.
bool ledger_join(struct ledger *ledger, uint64_t fixed_limit, const char **reason);

// Takes units under a limit: all of them, or none; with `some` as many as fit. Says how many.
uint32_t ledger_take(struct ledger *ledger, uint32_t units, uint32_t limit, bool some);
// Takes units whatever the limit says: they are held already, and the ledger has to know.
void ledger_force(struct ledger *ledger, uint32_t units);
// Gives back at most so many units; says how many the process held.
uint32_t ledger_give(struct ledger *ledger, uint32_t units);

// What all living processes hold, in bytes, and what nobody living pays for.
uint64_t ledger_used(struct ledger *ledger);

// Memory that passes between processes. ledger_import says whether a living exporter of the share pays for it.
void ledger_export(struct ledger *ledger, uint64_t bytes);
void ledger_unexport(struct ledger *ledger, uint64_t bytes);
bool ledger_import(struct ledger *ledger, uint64_t bytes);
void ledger_unimport(struct ledger *ledger, uint64_t bytes);

// The inode of this process's PID namespace, 0 when unknown.
uint32_t ledger_pid_namespace(void);

// Whether the process of a slot lives.
bool ledger_lives(struct ledger *ledger, unsigned slot);

// The word of this process's pacing; a process that was taken for dead registers again. NULL without a slot.
uint64_t *ledger_pace(struct ledger *ledger);
// Registers again what a program that closes descriptors has lost.
void ledger_renew(struct ledger *ledger);
// How many living processes of the share have work for the GPU, this one always counted.
uint32_t ledger_working(struct ledger *ledger);

static inline void ledger_count(uint64_t *counter, uint64_t by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

#endif // SLUICE_LEDGER_H

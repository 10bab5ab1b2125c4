// SPDX-License-Identifier: Apache-2.0
//
// The bell beside a ledger: a FIFO that calls the node's arbiter.

#ifndef SLUICE_BELL_H
#define SLUICE_BELL_H

#include <stdint.h>
#include <sys/types.h>

struct bell {
    int fd; // 0: not open
    dev_t device;
    ino_t inode;
};

// Rings, if somebody listens. It never waits, and raises no signal.
void bell_ring(struct bell *bell, const char *directory);

#endif // SLUICE_BELL_H

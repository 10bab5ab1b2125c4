// SPDX-License-Identifier: Apache-2.0
//
// Whose limits hold in this process. It follows from where the library was loaded, never from what is mounted now: a
// program that hides its share must not be unlimited by that.

#ifndef SLUICE_MODE_H
#define SLUICE_MODE_H

#include <stdbool.h>
#include <stdint.h>

enum mode {
    MODE_INERT,  // no limit was asked for
    MODE_AGENT,  // loaded from the agent's path: shares below /run/sluice, and nothing without one
    MODE_ALONE,  // SLUICE_MEMORY_LIMIT or SLUICE_COMPUTE_LIMIT
};

#define MODE_SHARE_ROOT "/run/sluice"

// Finds the mode. `path` is where this library was loaded from.
enum mode mode_find(const char *path);

// What the environment says in MODE_ALONE; NULL for a limit that it does not give.
const char *mode_limits(void);
const char *mode_compute(void);
const char *mode_group(void);
// The context's figure from the environment, or the safe one.
uint64_t mode_context(void);

// What a context is charged until somebody has measured one.
#define MODE_CONTEXT_DEFAULT (640ull << 20)

#endif // SLUICE_MODE_H

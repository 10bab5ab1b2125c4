// SPDX-License-Identifier: Apache-2.0
//
// The one thread of a paced process: it ends slices in time, waits until their work is done, and says so.

#ifndef SLUICE_HELPER_H
#define SLUICE_HELPER_H

#include "process.h"

enum helper { HELPER_NONE, HELPER_RUNS, HELPER_MISSING, HELPER_STOPS };

// Starts the thread at the first work, unless it runs or cannot be had.
void helper_start(struct process *process);
// There is something to watch.
void helper_call(struct process *process);

#endif // SLUICE_HELPER_H

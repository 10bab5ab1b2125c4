// SPDX-License-Identifier: Apache-2.0
// Processes that hold a GPU. The caller holds the lock.
#ifndef FAKEGPU_PROC_H
#define FAKEGPU_PROC_H

#include "state.h"

// The start time of a process, 0 when there is none.
uint64_t fg_process_start(unsigned pid);
// The PID namespace of this process.
uint64_t fg_own_pid_ns(void);
// The PID of a record's process as this process would name it; where it cannot be seen from here, as it names itself.
unsigned fg_proc_pid(struct fg_db *db, int slot);

// Frees a record, and what its process held of others' memory.
void fg_proc_free(struct fg_db *db, int slot);
// Frees the records of processes that are gone.
void fg_proc_reap(struct fg_db *db);
// Whether a process is on the GPU; with ids other than FG_NO_INSTANCE, in that instance.
int fg_proc_any(struct fg_db *db, unsigned gpu, unsigned gi, unsigned ci);
// Bytes that are held there, shared ones once.
uint64_t fg_proc_bytes(struct fg_db *db, unsigned gpu, unsigned gi, unsigned ci);
// What NVML tells for the process: its own, and the shared memory for which it pays.
uint64_t fg_proc_own_bytes(struct fg_db *db, int slot);
// Takes a record; its slot, or -1 when the table is full.
int fg_proc_add(struct fg_db *db, const struct fg_proc *record);

int fg_proc_matches(const struct fg_proc *record, unsigned gpu, unsigned gi, unsigned ci);

#endif

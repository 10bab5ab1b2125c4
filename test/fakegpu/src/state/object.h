// SPDX-License-Identifier: Apache-2.0
// Memory that processes share. The caller holds the lock.
#ifndef FAKEGPU_OBJECT_H
#define FAKEGPU_OBJECT_H

#include "state.h"

// Makes an object that the process of the slot holds; its number, or -1 when the table is full.
int fg_object_add(struct fg_db *db, int slot, uint64_t bytes);
// The process of the slot holds it too; 0, or -1 when too many do.
int fg_object_hold(struct fg_db *db, int object, int slot);
// It no longer does. What nobody holds is gone.
void fg_object_drop(struct fg_db *db, int object, int slot);
// How many objects the process of the slot holds.
int fg_object_held(struct fg_db *db, int slot);
// A process is gone: it holds nothing.
void fg_object_forget(struct fg_db *db, int slot);
// Bytes of objects on the GPU (as fg_proc_bytes) after those are gone that nobody holds.
uint64_t fg_object_bytes(struct fg_db *db, unsigned gpu, unsigned gi);
// Bytes for which the process of the slot pays.
uint64_t fg_object_paid(struct fg_db *db, int slot);

#endif

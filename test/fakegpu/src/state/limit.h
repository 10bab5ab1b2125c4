// SPDX-License-Identifier: Apache-2.0
// Memory limits of cgroups, as drivers from R615 on keep them. The caller holds the lock, unless it is said otherwise.
#ifndef FAKEGPU_LIMIT_H
#define FAKEGPU_LIMIT_H

#include "state.h"

// Whether the driver knows them.
int fg_limits_known(const struct fg_state *state);

// The path of a cgroup below the root, from the one in the file system; 0 where it is outside or too long.
int fg_limit_path(const struct fg_state *state, const char *path, char below[FG_CGROUP]);

// The limits of exactly that cgroup; NULL where none were ever set.
struct fg_limit *fg_limit_find(struct fg_db *db, unsigned gpu, const char *cgroup);
// Sets them, (0, FG_NO_LIMIT) for none; -1 when the table is full. The identity is the directory's.
int fg_limit_set(struct fg_db *db, unsigned gpu, const char *cgroup, uint64_t identity, uint64_t soft, uint64_t hard);
// Tells a directory from one that has its name, or its inode, later; 0 where there is none.
uint64_t fg_directory_identity(const char *path);
// Forgets those of cgroups that are gone. Only who sees the node's file system can say which.
void fg_limit_sweep(struct fg_db *db);
// What processes of the cgroup hold, those of cgroups below it too where limits nest.
uint64_t fg_limit_used(struct fg_db *db, unsigned gpu, const char *cgroup);

// Whether the process of the slot may take so many bytes more.
int fg_limit_allows(struct fg_db *db, int slot, uint64_t bytes);
// The limit that the process of the slot is shown as a GPU's memory, its own cgroup's: 0 where there is none.
uint64_t fg_limit_shown(struct fg_db *db, int slot, unsigned gpu, uint64_t *used);
// Whether any limit is set. Needs no lock.
int fg_limits_set(const struct fg_state *state);

// Waits until the process of the slot, this one, knows its cgroup, where any limits are set. It gives up after a while.
// Called without the lock.
void fg_locate(struct fg_db *db, int slot);
// Tells a process its cgroup; NULL says that it has none.
void fg_tell_cgroup(struct fg_db *db, int slot, const char *cgroup);

#endif

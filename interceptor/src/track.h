// SPDX-License-Identifier: Apache-2.0
//
// What this process holds: a concurrent table from a pointer or handle to what was charged for it. It takes its memory from
// the kernel, never from the program's allocator.

#ifndef SLUICE_TRACK_H
#define SLUICE_TRACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

// What a key is; keys of different kinds never meet.
enum track_kind {
    TRACK_NOTHING,
    TRACK_POINTER,  // memory by address
    TRACK_ARRAY,    // arrays and mipmapped arrays
    TRACK_CONTEXT,  // contexts: device and the bytes charged; flags is its number
    TRACK_GREEN,    // green contexts
    TRACK_LIMIT,    // what raised limits of a context cost
    TRACK_PAGE,     // a page that small blocks share; bytes counts them
    TRACK_PHYSICAL, // handles of physical memory; owner is its record, bytes counts references
    TRACK_MAPPING,  // addresses where physical memory is mapped; owner is its record
    TRACK_BINDING,  // physical memory in a multicast object, which is the owner; bytes is the memory's record
    TRACK_POOL,     // memory pools; owner is its record
    TRACK_ASYNC,    // memory of a pool by address; owner is the pool's record
    TRACK_EXEC,     // executable graphs: the most that their nodes allocate
    TRACK_IMPORT,   // memory of other processes by address
    TRACK_EXPORT,   // own memory that was exported, by address
    TRACK_EXTERNAL, // memory of other programming interfaces
    TRACK_MODULE,   // modules and libraries
};

struct track_entry {
    uint64_t key;
    uint64_t bytes;
    void *owner; // the context that takes it along when it dies, or a record
    uint16_t kind;
    int16_t device; // ordinal
    uint32_t flags; // of the topic
};

#define TRACK_SHARDS 32

struct track_table {
    struct track_shard {
        struct sluice_lock lock;
        uint32_t count, room; // room is a power of two, or 0
        struct track_entry *entries;
        uint8_t apart[40]; // a cache line each
    } shards[TRACK_SHARDS];
};

// Adds or replaces. False where there is no memory for it.
bool track_put(struct track_table *table, const struct track_entry *entry);
// Copies an entry; takes it out.
bool track_get(struct track_table *table, enum track_kind kind, uint64_t key, struct track_entry *entry);
bool track_take(struct track_table *table, enum track_kind kind, uint64_t key, struct track_entry *entry);
// Adds to an entry's bytes, which is made at first and taken out at zero. Says the new value; UINT64_MAX without memory.
uint64_t track_add(struct track_table *table, const struct track_entry *entry, int64_t change);
// Takes out one entry of a kind that has that owner (any kind: TRACK_NOTHING); false where none is left.
bool track_take_owned(struct track_table *table, enum track_kind kind, const void *owner, struct track_entry *entry);

// Memory from the kernel; NULL where there is none.
void *track_memory(size_t size);
void track_release(void *memory, size_t size);

#endif // SLUICE_TRACK_H

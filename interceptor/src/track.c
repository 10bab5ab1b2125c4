// SPDX-License-Identifier: Apache-2.0
//
// A hash table in shards: open addressing, linear probing, entries moved back when one goes.

#include "track.h"

#include <errno.h>
#include <sys/mman.h>

#define FIRST_ROOM 128u

void *track_memory(size_t size) {
    int kept = errno;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = kept;
    return memory == MAP_FAILED ? NULL : memory;
}

void track_release(void *memory, size_t size) {
    int kept = errno;
    munmap(memory, size);
    errno = kept;
}

static uint64_t mix(uint64_t kind, uint64_t key) {
    uint64_t hash = (key ^ kind << 59) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

static struct track_shard *shard_of(struct track_table *table, uint64_t hash) {
    return &table->shards[hash >> 40 & (TRACK_SHARDS - 1)];
}

static struct track_entry *find(const struct track_shard *shard, uint64_t hash, uint64_t kind, uint64_t key) {
    if (shard->room == 0) return NULL;
    for (uint32_t i = (uint32_t)hash & (shard->room - 1);; i = (i + 1) & (shard->room - 1)) {
        struct track_entry *entry = &shard->entries[i];
        if (entry->kind == TRACK_NOTHING) return NULL;
        if (entry->key == key && entry->kind == kind) return entry;
    }
}

static void place(struct track_entry *entries, uint32_t room, const struct track_entry *entry) {
    uint32_t i = (uint32_t)mix(entry->kind, entry->key) & (room - 1);
    while (entries[i].kind != TRACK_NOTHING) i = (i + 1) & (room - 1);
    entries[i] = *entry;
}

static bool grow(struct track_shard *shard) {
    uint32_t room = shard->room == 0 ? FIRST_ROOM : 2 * shard->room;
    struct track_entry *entries = track_memory(room * sizeof *entries);
    if (entries == NULL) return false;
    for (uint32_t i = 0; i < shard->room; i++) {
        if (shard->entries[i].kind != TRACK_NOTHING) place(entries, room, &shard->entries[i]);
    }
    if (shard->entries != NULL) track_release(shard->entries, shard->room * sizeof *entries);
    shard->entries = entries;
    shard->room = room;
    return true;
}

static bool put(struct track_shard *shard, uint64_t hash, const struct track_entry *entry) {
    struct track_entry *found = find(shard, hash, entry->kind, entry->key);
    if (found != NULL) {
        *found = *entry;
        return true;
    }
    if (4 * (shard->count + 1) > 3 * shard->room && !grow(shard)) return false;
    place(shard->entries, shard->room, entry);
    shard->count++;
    return true;
}

// Closes the gap that an entry leaves, so that whatever was placed beyond it is still found.
static void erase(struct track_shard *shard, struct track_entry *entry) {
    const uint32_t mask = shard->room - 1;
    uint32_t gap = (uint32_t)(entry - shard->entries);
    for (uint32_t i = (gap + 1) & mask; shard->entries[i].kind != TRACK_NOTHING; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)mix(shard->entries[i].kind, shard->entries[i].key) & mask;
        if (((i - home) & mask) < ((i - gap) & mask)) continue;
        shard->entries[gap] = shard->entries[i];
        gap = i;
    }
    shard->entries[gap] = (struct track_entry){0};
    shard->count--;
}

bool track_put(struct track_table *table, const struct track_entry *entry) {
    uint64_t hash = mix(entry->kind, entry->key);
    struct track_shard *shard = shard_of(table, hash);
    lock_take(&shard->lock);
    bool done = put(shard, hash, entry);
    lock_drop(&shard->lock);
    return done;
}

bool track_get(struct track_table *table, enum track_kind kind, uint64_t key, struct track_entry *entry) {
    uint64_t hash = mix(kind, key);
    struct track_shard *shard = shard_of(table, hash);
    lock_take(&shard->lock);
    const struct track_entry *found = find(shard, hash, kind, key);
    if (found != NULL) *entry = *found;
    lock_drop(&shard->lock);
    return found != NULL;
}

bool track_take(struct track_table *table, enum track_kind kind, uint64_t key, struct track_entry *entry) {
    uint64_t hash = mix(kind, key);
    struct track_shard *shard = shard_of(table, hash);
    lock_take(&shard->lock);
    struct track_entry *found = find(shard, hash, kind, key);
    if (found != NULL) {
        *entry = *found;
        erase(shard, found);
    }
    lock_drop(&shard->lock);
    return found != NULL;
}

uint64_t track_add(struct track_table *table, const struct track_entry *entry, int64_t change) {
    uint64_t hash = mix(entry->kind, entry->key), now = UINT64_MAX;
    struct track_shard *shard = shard_of(table, hash);
    lock_take(&shard->lock);
    struct track_entry *found = find(shard, hash, entry->kind, entry->key);
    if (found != NULL) {
        now = found->bytes += (uint64_t)change;
        if (now == 0) erase(shard, found);
    } else if (change > 0) {
        struct track_entry made = *entry;
        made.bytes = (uint64_t)change;
        if (put(shard, hash, &made)) now = made.bytes;
    }
    lock_drop(&shard->lock);
    return now;
}

bool track_take_owned(struct track_table *table, enum track_kind kind, const void *owner, struct track_entry *entry) {
    for (int s = 0; s < TRACK_SHARDS; s++) {
        struct track_shard *shard = &table->shards[s];
        lock_take(&shard->lock);
        for (uint32_t i = 0; i < shard->room; i++) {
            struct track_entry *at = &shard->entries[i];
            if (at->kind == TRACK_NOTHING || at->owner != owner) continue;
            if (kind != TRACK_NOTHING && at->kind != kind) continue;
            *entry = *at;
            erase(shard, at);
            lock_drop(&shard->lock);
            return true;
        }
        lock_drop(&shard->lock);
    }
    return false;
}

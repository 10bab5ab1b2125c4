// SPDX-License-Identifier: Apache-2.0

#include "../src/track.h"

#include <pthread.h>
#include <string.h>

#include "check.h"

static struct track_table table;

static void test_entries(void) {
    struct track_entry entry = {.key = 42, .kind = TRACK_POINTER, .bytes = 7, .owner = &table}, got;
    CHECK(track_put(&table, &entry), "there is memory");
    CHECK(!track_get(&table, TRACK_ARRAY, 42, &got), "kinds do not meet");
    CHECK(track_get(&table, TRACK_POINTER, 42, &got) && got.bytes == 7, "what was put is found");
    entry.bytes = 8;
    track_put(&table, &entry);
    CHECK(track_take(&table, TRACK_POINTER, 42, &got) && got.bytes == 8, "a second put replaces");
    CHECK(!track_take(&table, TRACK_POINTER, 42, &got), "what was taken is gone");
}

static void test_counts(void) {
    struct track_entry entry = {.key = 5, .kind = TRACK_PAGE}, got;
    CHECK(track_add(&table, &entry, 1) == 1 && track_add(&table, &entry, 1) == 2, "counts go up");
    CHECK(track_add(&table, &entry, -2) == 0 && !track_get(&table, TRACK_PAGE, 5, &got), "and are gone at zero");
    CHECK(track_add(&table, &entry, -1) == UINT64_MAX, "what is not there cannot go down");
}

static void test_many(void) {
    enum { COUNT = 50000 };
    struct track_entry got;
    for (uint64_t i = 0; i < COUNT; i++) {
        struct track_entry entry = {.key = i << 21, .kind = TRACK_POINTER, .bytes = i, .owner = i % 2 ? &table : NULL};
        track_put(&table, &entry);
    }
    int wrong = 0, owned = 0;
    for (uint64_t i = 0; i < COUNT; i += 3) wrong += !track_take(&table, TRACK_POINTER, i << 21, &got) || got.bytes != i;
    for (uint64_t i = 0; i < COUNT; i++) {
        bool found = track_get(&table, TRACK_POINTER, i << 21, &got);
        wrong += found == (i % 3 == 0) || (found && got.bytes != i);
    }
    CHECK(wrong == 0, "%d entries are wrong after every third was taken", wrong);
    while (owned < COUNT && track_take_owned(&table, TRACK_POINTER, &table, &got)) owned++;
    CHECK(owned == COUNT / 2 - (COUNT + 3) / 6, "%d entries had the owner", owned);
    for (uint64_t i = 0; i < COUNT; i += 2) track_take(&table, TRACK_POINTER, i << 21, &got);
    uint32_t left = 0;
    for (int s = 0; s < TRACK_SHARDS; s++) left += table.shards[s].count;
    CHECK(left == 0, "%u entries are left", left);
}

static void *work(void *argument) {
    uint64_t own = (uintptr_t)argument << 32, wrong = 0;
    struct track_entry got, shared = {.key = 1, .kind = TRACK_PAGE};
    for (uint64_t i = 1; i < 5000; i++) {
        struct track_entry entry = {.key = own + i, .kind = TRACK_POINTER, .bytes = i};
        track_put(&table, &entry);
        track_add(&table, &shared, 1);
        if (i % 2) wrong += !track_take(&table, TRACK_POINTER, own + i, &got) || got.bytes != i;
        track_add(&table, &shared, -1);
    }
    for (uint64_t i = 2; i < 5000; i += 2) wrong += !track_take(&table, TRACK_POINTER, own + i, &got);
    return (void *)(uintptr_t)wrong;
}

static void test_threads(void) {
    pthread_t threads[8];
    struct track_entry got;
    void *wrong;
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &wrong);
        CHECK(wrong == NULL, "a thread missed entries of its own");
    }
    CHECK(!track_get(&table, TRACK_PAGE, 1, &got), "the shared count came back to zero");
}

int main(void) {
    test_entries();
    test_counts();
    test_many();
    test_threads();
    return finish("track");
}

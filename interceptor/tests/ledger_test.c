// SPDX-License-Identifier: Apache-2.0
//
// The ledger alone, between real processes: nothing is given twice, nothing that fits is refused, and what a killed process
// held comes back.

#include "../src/ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/quota.h"
#include "check.h"

#define LIMIT 100000u

static char path[128];
static const char *reason;

static void new_file(void) {
    snprintf(path, sizeof path, "/dev/shm/sluice-ledger-test-%d", (int)getpid());
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, SLUICE_USAGE_SIZE) != 0) abort();
    close(fd);
}

static void join(struct ledger *ledger) {
    if (!ledger_open(ledger, path, &reason) || !ledger_join(ledger, 0, &reason)) {
        printf("FAIL  joining: %s\n", reason);
        _exit(1);
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Processes talk through one shared word each.
static uint32_t *words(int count) {
    return mmap(NULL, (size_t)count * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void test_one(void) {
    struct ledger ledger;
    new_file();
    join(&ledger);
    CHECK(ledger_take(&ledger, 60000, LIMIT, false) == 60000, "what fits is given");
    CHECK(ledger_take(&ledger, 40001, LIMIT, false) == 0, "one more than fits is refused whole");
    CHECK(ledger_take(&ledger, 40001, LIMIT, true) == 40000, "or given in part where that will do");
    CHECK(ledger_used(&ledger) == (uint64_t)LIMIT * SLUICE_USAGE_UNIT, "it is full");
    CHECK(ledger_give(&ledger, 50000) == 50000, "and is given back");
    CHECK(ledger_take(&ledger, 1, 50000, false) == 0, "a lowered limit holds for the next one");
    CHECK(ledger_take(&ledger, 60000, 110000, false) == 60000, "a raised one at once");
    CHECK(ledger_give(&ledger, UINT32_MAX) == 110000, "nobody gives back more than he has");
    CHECK(ledger_used(&ledger) == 0, "it is empty");
    ledger_force(&ledger, LIMIT + 1);
    CHECK(ledger_used(&ledger) == (LIMIT + 1ull) * SLUICE_USAGE_UNIT, "what is there is counted, whatever the limit");
    ledger_close(&ledger);
}

static void test_descriptor(void) {
    struct ledger ledger;
    new_file();
    join(&ledger);
    ledger_take(&ledger, 10, LIMIT, false);
    close(ledger.fd); // a program closes all it finds, and the lock is gone
    pid_t child = fork();
    if (child == 0) {
        struct ledger other;
        join(&other);
        _exit(ledger_take(&other, LIMIT, LIMIT, false) == LIMIT ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(status == 0, "another process takes what a process without a lock held");
    CHECK(ledger_take(&ledger, 5, LIMIT, false) == 5, "who was taken for dead takes part again");
    CHECK(ledger_used(&ledger) == 15 * SLUICE_USAGE_UNIT, "with all that it holds");
    CHECK(ledger.page->registered_again == 1, "and is counted");
    ledger_close(&ledger);
}

static void test_limits_fixed(void) {
    struct ledger ledger;
    new_file();
    ledger_open(&ledger, path, &reason);
    CHECK(ledger_join(&ledger, 1 << 30, &reason), "the first process fixes the limit");
    pid_t child = fork();
    if (child == 0) {
        struct ledger other;
        ledger_open(&other, path, &reason);
        bool different = ledger_join(&other, 1 << 29, &reason);
        _exit(different ? 1 : 0);
    }
    int status;
    waitpid(child, &status, 0);
    CHECK(status == 0, "another limit is refused while it lives");
    ledger_close(&ledger);
    ledger_open(&ledger, path, &reason);
    CHECK(ledger_join(&ledger, 1 << 29, &reason), "and good when it is gone");
    ledger_close(&ledger);
}

// Many processes take blocks of which not all fit; each round they all hold what they got until the parent has looked.
static void test_race(void) {
    enum { PROCESSES = 16, ROUNDS = 60, BLOCK = 9000 };
    uint32_t *got = words(PROCESSES + 2);
    uint32_t *round = &got[PROCESSES], *done = &got[PROCESSES + 1];
    new_file();
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() != 0) continue;
        struct ledger ledger;
        join(&ledger);
        for (uint32_t r = 1; r <= 2 * ROUNDS; r++) {
            while (__atomic_load_n(round, __ATOMIC_ACQUIRE) < r) sched_yield();
            if (r % 2 == 1) got[p] = ledger_take(&ledger, BLOCK, LIMIT, false);
            else ledger_give(&ledger, got[p]);
            __atomic_fetch_add(done, 1, __ATOMIC_ACQ_REL);
        }
        _exit(0);
    }
    int wrong = 0;
    for (uint32_t r = 1; r <= 2 * ROUNDS; r++) {
        __atomic_store_n(done, 0, __ATOMIC_RELEASE);
        __atomic_store_n(round, r, __ATOMIC_RELEASE);
        while (__atomic_load_n(done, __ATOMIC_ACQUIRE) < PROCESSES) sched_yield();
        uint32_t sum = 0;
        for (int p = 0; r % 2 == 1 && p < PROCESSES; p++) sum += got[p];
        if (r % 2 == 1) wrong += sum != LIMIT / BLOCK * BLOCK;
    }
    while (wait(NULL) > 0) {
    }
    CHECK(wrong == 0, "%d of %d rounds gave more or less than exactly what fits", wrong, ROUNDS);
}

static void storm_child(uint32_t seed) {
    struct ledger ledger;
    uint32_t held[8] = {0};
    join(&ledger);
    while (true) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t *one = &held[seed >> 16 & 7];
        if (*one != 0) {
            ledger_give(&ledger, *one);
            *one = 0;
        } else {
            *one = ledger_take(&ledger, 500 + (seed >> 8 & 4095), LIMIT, false);
        }
        // Whatever happens to the others, credits never pass the limit.
        uint64_t sum = 0;
        for (unsigned i = 0; i < SLUICE_USAGE_SLOTS && (seed >> 20 & 15) == 0; i++) {
            sum += quota_held(__atomic_load_n(&ledger.page->slots[i].word, __ATOMIC_ACQUIRE));
        }
        if (sum > LIMIT + 8 * 4600 * 4) _exit(3); // slots are not read at one moment
    }
}

// Processes are killed while they take and give; afterwards all of it can be taken.
static void test_storm(int milliseconds) {
    enum { PROCESSES = 12 };
    pid_t children[PROCESSES];
    uint32_t kills = 0, seed = 1;
    int status, gone = 0;
    new_file();
    for (int p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        if (children[p] == 0) storm_child((uint32_t)p * 77u + 5u);
    }
    uint64_t end = now() + (uint64_t)milliseconds * 1000000u;
    while (now() < end) {
        struct timespec moment = {.tv_nsec = 3000000};
        nanosleep(&moment, NULL);
        seed = seed * 1664525u + 1013904223u;
        int p = (int)(seed >> 16) % PROCESSES;
        kill(children[p], SIGKILL);
        waitpid(children[p], &status, 0);
        gone += WIFEXITED(status);
        kills++;
        children[p] = fork();
        if (children[p] == 0) storm_child(seed);
    }
    for (int p = 0; p < PROCESSES; p++) {
        kill(children[p], SIGKILL);
        waitpid(children[p], &status, 0);
    }
    struct ledger ledger;
    join(&ledger);
    uint64_t began = now();
    CHECK(ledger_used(&ledger) == 0, "the dead hold nothing");
    uint32_t taken = ledger_take(&ledger, LIMIT, LIMIT, false);
    CHECK(taken == LIMIT, "all comes back after %u kills", kills);
    CHECK(now() - began < 1000000000u, "within a second");
    CHECK(gone == 0, "%d processes saw too much given", gone);
    printf("      %u kills, %llu slots cleared\n", kills, (unsigned long long)ledger.page->reaped);
    ledger_close(&ledger);
}

static void test_exports(void) {
    struct ledger ledger;
    uint32_t *step = words(2);
    int status;
    new_file();
    join(&ledger);
    pid_t child = fork();
    if (child == 0) {
        struct ledger exporter;
        join(&exporter);
        uint32_t taken = ledger_take(&exporter, 1000, LIMIT, false);
        ledger_export(&exporter, 1000 * SLUICE_USAGE_UNIT);
        __atomic_store_n(step, taken == 1000 ? 1 : 2, __ATOMIC_RELEASE);
        pause();
    }
    while (__atomic_load_n(step, __ATOMIC_ACQUIRE) == 0) sched_yield();
    CHECK(!ledger_import(&ledger, 1001 * SLUICE_USAGE_UNIT), "more than is exported is paid by who imports it");
    CHECK(ledger_import(&ledger, 1000 * SLUICE_USAGE_UNIT), "what is exported is free");
    CHECK(ledger_used(&ledger) == 1000 * SLUICE_USAGE_UNIT, "it counts once");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK(ledger_take(&ledger, LIMIT, LIMIT, false) == 0, "a dead exporter's memory is still there");
    CHECK(ledger_used(&ledger) == 1000 * SLUICE_USAGE_UNIT, "and counts on");
    ledger_unimport(&ledger, 1000 * SLUICE_USAGE_UNIT);
    CHECK(ledger_used(&ledger) == 0 && ledger_take(&ledger, LIMIT, LIMIT, false) == LIMIT, "until the last import ends");
    ledger_close(&ledger);
}

static void *take_once(void *ledger) {
    ledger_take(ledger, 70000, LIMIT, false);
    pthread_testcancel();
    return NULL;
}

// A thread that is cancelled while it waits for another process leaves nothing locked.
static void test_cancelled(void) {
    uint32_t *step = words(1);
    struct ledger ledger;
    pthread_t thread;
    void *ending;
    new_file();
    join(&ledger);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct flock growth = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLUICE_USAGE_GROWTH_BYTE, .l_len = 1};
        __atomic_store_n(step, fcntl(fd, F_SETLK, &growth) == 0 ? 1 : 2, __ATOMIC_RELEASE);
        while (__atomic_load_n(step, __ATOMIC_ACQUIRE) != 3) sched_yield();
        _exit(0);
    }
    while (__atomic_load_n(step, __ATOMIC_ACQUIRE) == 0) sched_yield();
    CHECK(pthread_create(&thread, NULL, take_once, &ledger) == 0, "a thread begins");
    while (__atomic_load_n(&ledger.lock.word, __ATOMIC_ACQUIRE) == 0) sched_yield(); // until it is in the slow path
    for (uint64_t until = now() + 10000000; now() < until;) sched_yield();
    pthread_cancel(thread);
    __atomic_store_n(step, 3, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, &ending) == 0 && ending == PTHREAD_CANCELED, "it was cancelled");
    waitpid(child, NULL, 0);
    CHECK(lock_try(&ledger.lock), "nothing is locked");
    lock_drop(&ledger.lock);
    ledger_give(&ledger, 70000);
    CHECK(ledger_take(&ledger, LIMIT, LIMIT, false) == LIMIT, "and everything can be taken");
    ledger_close(&ledger);
}

int main(int count, char **arguments) {
    test_one();
    test_descriptor();
    test_limits_fixed();
    test_exports();
    test_cancelled();
    test_race();
    test_storm(count > 1 ? atoi(arguments[1]) : 2000);
    unlink(path);
    return finish("ledger");
}

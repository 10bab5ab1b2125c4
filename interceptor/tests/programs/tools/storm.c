// SPDX-License-Identifier: Apache-2.0
//
// Processes that are killed while they allocate: storm PROCESSES SECONDS MIB EVERY_MS. A killed one is replaced. Prints how
// long allocations took, and after all have been killed how long it takes until one process can have again what one alone
// gets (RECOVER_MIB, 0: not tried).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum { BUCKETS = 100000, BUCKET_NS = 1000, PIECES = 4 }; // microseconds up to 100 ms, the last holds the rest

struct shared {
    uint64_t took[BUCKETS], longest_ns;
    long calls, refused, errors;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int begin(void) {
    handle context;
    driver_reach();
    return cu.cuInit(0) == SUCCESS && cu.cuDevicePrimaryCtxRetain(&context, 0) == SUCCESS && cu.cuCtxSetCurrent(context) == SUCCESS;
}

static void note(struct shared *s, uint64_t ns, result error) {
    uint64_t bucket = ns / BUCKET_NS < BUCKETS ? ns / BUCKET_NS : BUCKETS - 1, longest = s->longest_ns;
    __atomic_fetch_add(&s->took[bucket], 1, __ATOMIC_RELAXED);
    while (ns > longest && !__atomic_compare_exchange_n(&s->longest_ns, &longest, ns, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    __atomic_fetch_add(&s->calls, 1, __ATOMIC_RELAXED);
    if (error == OUT_OF_MEMORY) __atomic_fetch_add(&s->refused, 1, __ATOMIC_RELAXED);
    if (error != SUCCESS && error != OUT_OF_MEMORY) __atomic_fetch_add(&s->errors, 1, __ATOMIC_RELAXED);
}

static void work(struct shared *s, size_t size) {
    pointer at[PIECES] = {0};
    while (!begin()) _exit(1); // no room for its context
    for (unsigned i = 0;; i++) {
        pointer *p = &at[i % PIECES];
        if (*p != 0) cu.cuMemFree(*p);
        *p = 0;
        uint64_t start = now_ns();
        result error = cu.cuMemAlloc(p, size);
        note(s, now_ns() - start, error);
    }
}

static pid_t start(struct shared *s, size_t size) {
    pid_t child = fork();
    if (child == 0) work(s, size);
    return child;
}

static long recover(size_t size) {
    pid_t child = fork();
    if (child == 0) {
        pointer at;
        uint64_t from = now_ns();
        int ready = begin();
        while (now_ns() - from < 5000000000u && !ready) ready = begin();
        while (ready && now_ns() - from < 5000000000u) {
            if (cu.cuMemAlloc(&at, size) == SUCCESS) _exit((int)((now_ns() - from) / 20000000u)); // in 20 ms
        }
        _exit(255);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) < 255 ? WEXITSTATUS(status) * 20L : -1;
}

static uint64_t percentile(const struct shared *s, double part) {
    uint64_t sum = 0, wanted = (uint64_t)((double)s->calls * part);
    for (int i = 0; i < BUCKETS; i++) {
        sum += s->took[i];
        if (sum >= wanted) return (uint64_t)i;
    }
    return BUCKETS;
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    int processes = atoi(arguments[1]), kills = 0;
    size_t size = (size_t)atoi(arguments[3]) * MIB;
    uint64_t end = now_ns() + (uint64_t)atoi(arguments[2]) * 1000000000u;
    struct timespec pause = {.tv_nsec = atol(arguments[4]) * 1000000};
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t *children = calloc((size_t)processes, sizeof *children);
    if (s == MAP_FAILED || children == NULL) return 1;
    for (int i = 0; i < processes; i++) children[i] = start(s, size);
    for (unsigned i = 0; now_ns() < end; i++) {
        int victim = (int)(i * 7u % (unsigned)processes);
        nanosleep(&pause, NULL);
        kill(children[victim], SIGKILL);
        waitpid(children[victim], NULL, 0);
        children[victim] = start(s, size);
        kills++;
    }
    for (int i = 0; i < processes; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    long recovered = atoi(arguments[5]) > 0 ? recover((size_t)atoi(arguments[5]) * MIB) : 0;
    printf("{\"kills\":%d,\"calls\":%ld,\"refused\":%ld,\"errors\":%ld,\"p50Us\":%llu,\"p99Us\":%llu,\"longestUs\":%llu,\"recoveredMs\":%ld}\n",
           kills, s->calls, s->refused, s->errors, (unsigned long long)percentile(s, 0.5), (unsigned long long)percentile(s, 0.99),
           (unsigned long long)s->longest_ns / 1000, recovered);
    return 0;
}

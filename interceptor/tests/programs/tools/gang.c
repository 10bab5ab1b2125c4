// SPDX-License-Identifier: Apache-2.0
//
// Collectives, as of a job on several GPUs: gang SECONDS MICROSECONDS DEVICES ID [--processes]. Each rank, a thread or a process
// with a device of its own, launches kernels that spin until the same one of every other rank runs, four ahead. Prints one line
// of JSON: collectives that completed, and the longest time between two. IDs of two programs at once lie 2^32 apart.
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum { MOST_RANKS = 16, DEPTH = 4 };

// What the ranks share, processes too.
struct shared {
    atomic_int ready, error;
    atomic_long last; // the collective after which all end
    atomic_long done;
    atomic_ullong longest_ns;
};

static struct shared *shared;
static double seconds;
static unsigned long long us, first_id;
static int ranks;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static result begin(int rank, handle *function, handle *stream, handle *events) {
    handle context, module;
    result error = cu.cuDevicePrimaryCtxRetain(&context, rank);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuModuleLoadData(&module, "any");
    if (error == SUCCESS) error = cu.cuModuleGetFunction(function, module, "fakegpu_peer");
    if (error == SUCCESS) error = cu.cuStreamCreate(stream, 1);
    for (int i = 0; error == SUCCESS && i < DEPTH; i++) error = cu.cuEventCreate(&events[i], 3);
    return error;
}

static void noted(uint64_t *before) {
    uint64_t now = now_ns();
    if (now - *before > atomic_load(&shared->longest_ns)) atomic_store(&shared->longest_ns, now - *before);
    *before = now;
    atomic_fetch_add(&shared->done, 1);
}

static result collectives(int rank, handle function, handle stream, handle *events) {
    uint64_t start = now_ns(), before = start;
    result error = SUCCESS;
    for (long i = 0; error == SUCCESS && i <= atomic_load(&shared->last) + DEPTH; i++) {
        if (i >= DEPTH) error = cu.cuEventSynchronize(events[i % DEPTH]);
        if (error == SUCCESS && i >= DEPTH && rank == 0) noted(&before);
        if (i > atomic_load(&shared->last)) continue;
        // Nobody can be further ahead than the others by more than what it has queued.
        if (rank == 0 && atomic_load(&shared->last) == INT_MAX && (double)(now_ns() - start) > seconds * 1e9) atomic_store(&shared->last, i + DEPTH);
        unsigned long long id = first_id + (unsigned long long)i, parties = (unsigned long long)ranks;
        void *parameters[] = {&id, &parties, &us};
        if (error == SUCCESS) error = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
        if (error == SUCCESS) error = cu.cuEventRecord(events[i % DEPTH], stream);
    }
    return error;
}

static void *run(void *argument) {
    int rank = (int)(intptr_t)argument;
    handle function, stream, events[DEPTH];
    result error = begin(rank, &function, &stream, events);
    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->ready) < ranks) usleep(1000);
    if (error == SUCCESS) error = collectives(rank, function, stream, events);
    if (error != SUCCESS) atomic_store(&shared->error, error);
    return NULL;
}

static void in_threads(void) {
    pthread_t threads[MOST_RANKS];
    if (cu.cuInit(0) != SUCCESS) exit(3);
    for (int i = 1; i < ranks; i++) {
        if (pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) != 0) exit(4);
    }
    run((void *)0);
    for (int i = 1; i < ranks; i++) pthread_join(threads[i], NULL);
}

static void in_processes(void) {
    for (int i = 0; i < ranks; i++) {
        pid_t child = fork();
        if (child < 0) exit(4);
        if (child > 0) continue;
        if (cu.cuInit(0) != SUCCESS) exit(3);
        run((void *)(intptr_t)i);
        exit(0);
    }
    for (int i = 0, status; i < ranks; i++) {
        if (wait(&status) < 0 || status != 0) atomic_store(&shared->error, 999);
    }
}

int main(int count, char **arguments) {
    if (count < 5) return 2;
    seconds = atof(arguments[1]);
    us = strtoull(arguments[2], NULL, 10);
    ranks = atoi(arguments[3]);
    first_id = strtoull(arguments[4], NULL, 10) << 32;
    if (ranks < 1 || ranks > MOST_RANKS) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 4;
    atomic_store(&shared->last, INT_MAX);
    driver_reach();
    if (arguments[5] != NULL && strcmp(arguments[5], "--processes") == 0) in_processes();
    else in_threads();
    printf("{\"error\":%d,\"done\":%ld,\"longestGapUs\":%llu}\n", atomic_load(&shared->error), atomic_load(&shared->done),
           atomic_load(&shared->longest_ns) / 1000);
    return atomic_load(&shared->error);
}

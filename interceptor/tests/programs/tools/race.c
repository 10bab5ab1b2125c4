// SPDX-License-Identifier: Apache-2.0
//
// Processes that race for the last of the limit: race PROCESSES ROUNDS MIB. In each round all allocate one block at the same
// moment, then all free. Prints the least and the most that got theirs in a round, and the errors of the others.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

struct shared {
    pthread_barrier_t barrier;
    int got[10000], other_errors, broken;
};

static void wait_for_all(struct shared *s) { pthread_barrier_wait(&s->barrier); }

static void run(struct shared *s, int rounds, size_t size) {
    handle context;
    driver_reach();
    int good = cu.cuInit(0) == SUCCESS && cu.cuDevicePrimaryCtxRetain(&context, 0) == SUCCESS && cu.cuCtxSetCurrent(context) == SUCCESS;
    if (!good) __atomic_fetch_add(&s->broken, 1, __ATOMIC_RELAXED);
    for (int round = 0; round < rounds; round++) {
        pointer at = 0;
        wait_for_all(s);
        result error = good ? cu.cuMemAlloc(&at, size) : OUT_OF_MEMORY;
        if (error == SUCCESS) __atomic_fetch_add(&s->got[round], 1, __ATOMIC_RELAXED);
        if (error != SUCCESS && error != OUT_OF_MEMORY) __atomic_fetch_add(&s->other_errors, 1, __ATOMIC_RELAXED);
        wait_for_all(s);
        if (error == SUCCESS && cu.cuMemFree(at) != SUCCESS) __atomic_fetch_add(&s->broken, 1, __ATOMIC_RELAXED);
    }
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int processes = atoi(arguments[1]), rounds = atoi(arguments[2]);
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t across;
    if (s == MAP_FAILED || rounds > 10000) return 1;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->barrier, &across, (unsigned)processes);
    for (int i = 0; i < processes; i++) {
        if (fork() != 0) continue;
        run(s, rounds, (size_t)atoi(arguments[3]) * MIB);
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
    int least = processes, most = 0;
    for (int round = 0; round < rounds; round++) {
        if (s->got[round] < least) least = s->got[round];
        if (s->got[round] > most) most = s->got[round];
    }
    printf("{\"rounds\":%d,\"least\":%d,\"most\":%d,\"otherErrors\":%d,\"broken\":%d}\n", rounds, least, most, s->other_errors, s->broken);
    return 0;
}

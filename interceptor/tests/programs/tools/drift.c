// SPDX-License-Identifier: Apache-2.0
//
// Many cycles of taking and giving back, in sizes and ways that change, in several threads at once: drift CYCLES THREADS. Out
// of memory is no error here. Prints a step before and after, and waits for a line at each, so that a reader outside can
// compare.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

enum { LIVING = 16, MOST_THREADS = 64 };

struct piece {
    int way; // 0: none
    pointer at;
    handle array;
    unsigned long long physical;
    size_t size;
};

static handle context;
static long cycles;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static result take(struct piece *p, uint64_t *state) {
    const struct physical_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    size_t pitch;
    int way = 1 + (int)(next(state) % 5);
    *p = (struct piece){.size = 1 + next(state) % (6 * MIB)};
    result got;
    switch (way) {
    case 1: got = cu.cuMemAlloc(&p->at, p->size); break;
    case 2: got = cu.cuMemAllocPitch(&p->at, &pitch, 1 + p->size % 5000, 1 + p->size % 700, 8); break;
    case 3: got = cu.cuMemAllocAsync(&p->at, p->size, NULL); break;
    case 4: {
        const struct array3d bytes = {.width = 1 + p->size % 4000, .height = 1 + p->size % 900, .format = 1, .channels = 1};
        got = cu.cuArray3DCreate(&p->array, &bytes);
        break;
    }
    default:
        p->size = (p->size / (2 * MIB) + 1) * 2 * MIB;
        got = cu.cuMemCreate(&p->physical, p->size, &properties, 0);
        break;
    }
    if (got == SUCCESS) p->way = way;
    return got;
}

static result give(struct piece *p, uint64_t *state) {
    int way = p->way;
    p->way = 0;
    switch (way) {
    case 0: return SUCCESS;
    case 1: case 2: return cu.cuMemFree(p->at);
    case 3: return next(state) % 2 ? cu.cuMemFree(p->at) : cu.cuMemFreeAsync(p->at, NULL);
    case 4: return cu.cuArrayDestroy(p->array);
    default: return cu.cuMemRelease(p->physical);
    }
}

static void tell(const char *step, long cycles, result error) {
    printf("{\"step\":\"%s\",\"cycles\":%ld,\"error\":%d}\n", step, cycles, error);
    fflush(stdout);
    if (getchar() == EOF) exit(0);
}

struct worker {
    pthread_t thread;
    uint64_t state;
    long done;
    result error;
};

static void *work(void *argument) {
    struct worker *w = argument;
    struct piece living[LIVING] = {{0}};
    result error = cu.cuCtxSetCurrent(context);
    while (error == SUCCESS && w->done < cycles) {
        struct piece *p = &living[next(&w->state) % LIVING];
        error = give(p, &w->state);
        if (error == SUCCESS) error = take(p, &w->state);
        if (error == OUT_OF_MEMORY) error = SUCCESS;
        w->done++;
    }
    for (int i = 0; error == SUCCESS && i < LIVING; i++) error = give(&living[i], &w->state);
    w->error = error;
    return NULL;
}

int main(int count, char **arguments) {
    static struct worker workers[MOST_THREADS];
    if (count != 3) return 2;
    int threads = atoi(arguments[2]) < MOST_THREADS ? atoi(arguments[2]) : MOST_THREADS;
    long done = 0;
    cycles = atol(arguments[1]) / threads;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    tell("ready", 0, error);
    for (int i = 0; i < threads; i++) {
        workers[i].state = 88172645463325252ull + (uint64_t)i * 7919;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 1;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
        if (workers[i].error != SUCCESS) error = workers[i].error;
    }
    if (error == SUCCESS) error = cu.cuCtxSynchronize();
    tell("empty", done, error);
    return 0;
}

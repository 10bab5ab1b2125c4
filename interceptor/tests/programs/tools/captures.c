// SPDX-License-Identifier: Apache-2.0
//
// Threads that capture beside threads that launch: captures SECONDS MICROSECONDS. Two capture graphs of four kernels in global
// mode, which any unsafe call of the process would break, and launch each thrice; two launch kernels. Prints one line of JSON,
// with how many kernels the GPU must have run, and waits for a line before it ends.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

enum { THREADS = 2, KERNELS = 4, LAUNCHES = 3 };

struct worker {
    pthread_t thread;
    long kernels, rounds;
    result error;
};

static handle context, function;
static unsigned long long us;
static double end;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static result launch(handle stream) {
    void *parameters[] = {&us};
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static result capture(handle stream, handle *exec) {
    handle graph;
    result error = cu.cuStreamBeginCapture(stream, 0);
    for (int i = 0; error == SUCCESS && i < KERNELS; i++) error = launch(stream);
    result ended = cu.cuStreamEndCapture(stream, &graph);
    if (error == SUCCESS) error = ended;
    if (error == SUCCESS) error = cu.cuGraphInstantiateWithFlags(exec, graph, 0);
    return error == SUCCESS ? cu.cuGraphDestroy(graph) : error;
}

static void *captures(void *argument) {
    struct worker *w = argument;
    handle stream, exec;
    w->error = cu.cuCtxSetCurrent(context);
    if (w->error == SUCCESS) w->error = cu.cuStreamCreate(&stream, 0);
    for (; w->error == SUCCESS && now() < end; w->rounds++) {
        w->error = capture(stream, &exec);
        for (int i = 0; w->error == SUCCESS && i < LAUNCHES; i++, w->kernels += KERNELS) w->error = cu.cuGraphLaunch(exec, stream);
        if (w->error == SUCCESS) w->error = cu.cuStreamSynchronize(stream);
        if (w->error == SUCCESS) w->error = cu.cuGraphExecDestroy(exec);
    }
    return NULL;
}

static void *launches(void *argument) {
    struct worker *w = argument;
    handle stream;
    w->error = cu.cuCtxSetCurrent(context);
    if (w->error == SUCCESS) w->error = cu.cuStreamCreate(&stream, 1);
    for (; w->error == SUCCESS && now() < end; w->rounds++) {
        for (int i = 0; w->error == SUCCESS && i < KERNELS; i++, w->kernels++) w->error = launch(stream);
        if (w->error == SUCCESS) w->error = cu.cuStreamSynchronize(stream);
    }
    return NULL;
}

int main(int count, char **arguments) {
    struct worker workers[2 * THREADS] = {0};
    handle module;
    if (count != 3) return 2;
    us = strtoull(arguments[2], NULL, 10);
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuModuleLoadData(&module, "any");
    if (error == SUCCESS) error = cu.cuModuleGetFunction(&function, module, "fakegpu_spin");
    if (error != SUCCESS) return error;
    end = now() + atof(arguments[1]);
    for (int i = 0; i < 2 * THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, i < THREADS ? captures : launches, &workers[i]) != 0) return 4;
    }
    long kernels = 0, rounds = 0;
    for (int i = 0; i < 2 * THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        kernels += workers[i].kernels;
        rounds += i < THREADS ? workers[i].rounds : 0;
        if (workers[i].error != SUCCESS) error = workers[i].error;
    }
    printf("{\"step\":\"done\",\"error\":%d,\"pieces\":%ld,\"by\":%ld}\n", error, kernels, rounds);
    fflush(stdout);
    getchar();
    return error;
}

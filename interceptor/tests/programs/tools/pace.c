// SPDX-License-Identifier: Apache-2.0
//
// Work for the GPU, to be paced: pace SECONDS MICROSECONDS [OPTIONS]. Launches kernels of that length, eight ahead on each stream,
// and prints one line of JSON: kernels that completed, those of each second, and what the slowest launch took.
//   --streams N      streams a thread, by turns           --threads N   threads, each with its own streams
//   --devices N      threads go to devices by turns       --per-thread  the default stream of each thread
//   --graph          graphs of four kernels               --legacy      the legacy default stream
//   --coop, --ex     by cuLaunchCooperativeKernel, by cuLaunchKernelEx
//   --request MS     one kernel every MS milliseconds, waited for: how long each waited beyond its own time is printed
//   --depth N        kernels ahead on each stream, instead of eight
//   --block          waits sleep instead of spinning
//   --at-exit        a moment of work, then the work that is told of in a handler of the program's exit
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

enum { MOST_THREADS = 64, MOST_STREAMS = 64, MOST_DEPTH = 64, MOST_SECONDS = 600, MOST_WAITS = 1 << 20, GRAPH_KERNELS = 4 };

struct options {
    double seconds, request_ms;
    unsigned long long us;
    int streams, threads, devices, depth;
    int graph, per_thread, legacy, coop, ex, block, at_exit;
};

struct worker {
    pthread_t thread;
    int number;
    handle function, streams[MOST_STREAMS], exec;
    handle events[MOST_STREAMS][MOST_DEPTH];
    unsigned long long done, longest_ns, per_second[MOST_SECONDS];
    unsigned *waits; // in microseconds
    int wait_count;
    result error;
};

static struct options options = {.streams = 1, .threads = 1, .devices = 1, .depth = 8};
static struct worker workers[MOST_THREADS];
static uint64_t began;
static pthread_barrier_t ready;

static result (*launch_per_thread)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
static result (*record_per_thread)(handle, handle);

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t when) {
    struct timespec at = {.tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static result launch(struct worker *w, handle stream) {
    void *parameters[] = {&options.us};
    if (options.graph) return cu.cuGraphLaunch(w->exec, stream);
    if (options.per_thread) return launch_per_thread(w->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    if (options.coop) return cu.cuLaunchCooperativeKernel(w->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters);
    if (!options.ex) return cu.cuLaunchKernel(w->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    struct launch how = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    return cu.cuLaunchKernelEx(&how, w->function, parameters, NULL);
}

static result record(handle event, handle stream) {
    return options.per_thread ? record_per_thread(event, stream) : cu.cuEventRecord(event, stream);
}

static result make_graph(struct worker *w) {
    handle stream, graph;
    void *parameters[] = {&options.us};
    result error = cu.cuStreamCreate(&stream, 1);
    if (error == SUCCESS) error = cu.cuStreamBeginCapture(stream, 0);
    for (int i = 0; error == SUCCESS && i < GRAPH_KERNELS; i++) {
        error = cu.cuLaunchKernel(w->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    }
    if (error == SUCCESS) error = cu.cuStreamEndCapture(stream, &graph);
    if (error == SUCCESS) error = cu.cuGraphInstantiateWithFlags(&w->exec, graph, 0);
    if (error == SUCCESS) error = cu.cuGraphDestroy(graph);
    return error == SUCCESS ? cu.cuStreamDestroy(stream) : error;
}

static result begin(struct worker *w) {
    handle context, module;
    result error = cu.cuDevicePrimaryCtxRetain(&context, w->number % options.devices);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuModuleLoadData(&module, "any");
    if (error == SUCCESS) error = cu.cuModuleGetFunction(&w->function, module, "fakegpu_spin");
    for (int s = 0; error == SUCCESS && s < options.streams; s++) {
        if (!options.legacy && !options.per_thread) error = cu.cuStreamCreate(&w->streams[s], 1);
        for (int d = 0; error == SUCCESS && d < options.depth; d++) error = cu.cuEventCreate(&w->events[s][d], options.block ? 3 : 2);
    }
    return error == SUCCESS && options.graph ? make_graph(w) : error;
}

static void count(struct worker *w, unsigned long long kernels) {
    uint64_t second = (now_ns() - began) / 1000000000u;
    w->done += kernels;
    if (second < MOST_SECONDS) w->per_second[second] += kernels;
}

static result timed_launch(struct worker *w, handle stream) {
    uint64_t start = now_ns();
    result error = launch(w, stream);
    uint64_t took = now_ns() - start;
    if (took > w->longest_ns) w->longest_ns = took;
    return error;
}

static void burn(struct worker *w, uint64_t end) {
    unsigned long long each = options.graph ? GRAPH_KERNELS : 1;
    unsigned width = (unsigned)(options.streams * options.depth);
    for (unsigned i = 0; w->error == SUCCESS && now_ns() < end; i++) {
        handle stream = w->streams[i % (unsigned)options.streams];
        handle event = w->events[i % (unsigned)options.streams][i / (unsigned)options.streams % (unsigned)options.depth];
        if (i >= width) {
            w->error = cu.cuEventSynchronize(event);
            if (w->error != SUCCESS) return;
            count(w, each);
        }
        w->error = timed_launch(w, stream);
        if (w->error == SUCCESS) w->error = record(event, stream);
    }
}

static void requests(struct worker *w, uint64_t end) {
    uint64_t every = (uint64_t)(options.request_ms * 1e6), own = options.us * (options.graph ? GRAPH_KERNELS : 1);
    for (uint64_t due = now_ns() + every; w->error == SUCCESS && due < end; due += every) {
        sleep_until(due);
        uint64_t start = now_ns();
        w->error = timed_launch(w, w->streams[0]);
        if (w->error == SUCCESS) w->error = record(w->events[0][0], w->streams[0]);
        if (w->error == SUCCESS) w->error = cu.cuEventSynchronize(w->events[0][0]);
        uint64_t took = (now_ns() - start) / 1000;
        if (w->wait_count < MOST_WAITS) w->waits[w->wait_count++] = took > own ? (unsigned)(took - own) : 0;
        count(w, options.graph ? GRAPH_KERNELS : 1);
        if (now_ns() > due + every) due = now_ns() - every; // one at a time: those that came due meanwhile are one
    }
}

static void *work(void *argument) {
    struct worker *w = argument;
    w->error = begin(w);
    if (pthread_barrier_wait(&ready) == PTHREAD_BARRIER_SERIAL_THREAD) began = now_ns();
    pthread_barrier_wait(&ready);
    uint64_t end = began + (uint64_t)(options.seconds * 1e9);
    if (w->error != SUCCESS) return NULL;
    if (options.request_ms > 0) requests(w, end);
    else burn(w, end);
    return NULL;
}

static int ascending(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static unsigned part(const unsigned *waits, int number, double which) {
    return number == 0 ? 0 : waits[(int)((double)(number - 1) * which)];
}

static int print(void) {
    unsigned long long done = 0, longest = 0;
    unsigned *waits = malloc(sizeof *waits * MOST_WAITS);
    int number = 0, error = SUCCESS;
    for (int i = 0; i < options.threads; i++) {
        done += workers[i].done;
        if (workers[i].longest_ns > longest) longest = workers[i].longest_ns;
        if (workers[i].error != SUCCESS) error = workers[i].error;
        for (int k = 0; waits != NULL && k < workers[i].wait_count && number < MOST_WAITS; k++) waits[number++] = workers[i].waits[k];
    }
    printf("{\"error\":%d,\"done\":%llu,\"perSecond\":[", error, done);
    for (int s = 0; s < (int)options.seconds && s < MOST_SECONDS; s++) {
        unsigned long long sum = 0;
        for (int i = 0; i < options.threads; i++) sum += workers[i].per_second[s];
        printf("%s%llu", s == 0 ? "" : ",", sum);
    }
    if (waits != NULL) qsort(waits, (size_t)number, sizeof *waits, ascending);
    printf("],\"longestLaunchUs\":%llu,\"requests\":%d,\"waitP50Us\":%u,\"waitP90Us\":%u,\"waitP99Us\":%u,\"waitMaxUs\":%u}\n",
           longest / 1000, number, part(waits, number, 0.5), part(waits, number, 0.9), part(waits, number, 0.99),
           part(waits, number, 1));
    fflush(stdout);
    free(waits);
    return error;
}

// The same work again, with the streams and events of a first thread.
static void at_exit(void) {
    workers[0] = (struct worker){.number = 0};
    options.seconds *= 10;
    work(&workers[0]);
    print();
}

static int number_after(char **arguments, int *at, int least, int most) {
    int value = arguments[*at + 1] == NULL ? 0 : atoi(arguments[++*at]);
    if (value >= least && value <= most) return value;
    fprintf(stderr, "pace: %s wants %d to %d\n", arguments[*at], least, most);
    exit(2);
}

static void read_options(char **arguments) {
    for (int i = 3; arguments[i] != NULL; i++) {
        const char *a = arguments[i];
        if (strcmp(a, "--streams") == 0) options.streams = number_after(arguments, &i, 1, MOST_STREAMS);
        else if (strcmp(a, "--threads") == 0) options.threads = number_after(arguments, &i, 1, MOST_THREADS);
        else if (strcmp(a, "--devices") == 0) options.devices = number_after(arguments, &i, 1, MOST_THREADS);
        else if (strcmp(a, "--depth") == 0) options.depth = number_after(arguments, &i, 1, MOST_DEPTH);
        else if (strcmp(a, "--request") == 0 && arguments[i + 1] != NULL) options.request_ms = atof(arguments[++i]);
        else if (strcmp(a, "--graph") == 0) options.graph = 1;
        else if (strcmp(a, "--per-thread") == 0) options.per_thread = 1;
        else if (strcmp(a, "--legacy") == 0) options.legacy = 1;
        else if (strcmp(a, "--coop") == 0) options.coop = 1;
        else if (strcmp(a, "--ex") == 0) options.ex = 1;
        else if (strcmp(a, "--block") == 0) options.block = 1;
        else if (strcmp(a, "--at-exit") == 0) options.at_exit = 1;
        else fprintf(stderr, "pace: what is %s\n", a), exit(2);
    }
}

static void find_per_thread(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *launches = NULL, *records = NULL;
    if (library != NULL) launches = dlsym(library, "cuLaunchKernel_ptsz");
    if (library != NULL) records = dlsym(library, "cuEventRecord_ptsz");
    if (launches == NULL || records == NULL) fprintf(stderr, "pace: no per-thread streams\n"), exit(3);
    memcpy(&launch_per_thread, &launches, sizeof launches);
    memcpy(&record_per_thread, &records, sizeof records);
}

int main(int argument_count, char **arguments) {
    if (argument_count < 3) return 2;
    options.seconds = atof(arguments[1]);
    options.us = strtoull(arguments[2], NULL, 10);
    read_options(arguments);
    driver_reach();
    if (options.per_thread) find_per_thread();
    result error = cu.cuInit(0);
    if (error != SUCCESS) return error;
    if (options.at_exit) { // before the library can have a handler of its own
        options.threads = 1;
        options.seconds /= 10;
        atexit(at_exit);
    }
    pthread_barrier_init(&ready, NULL, (unsigned)options.threads);
    for (int i = 0; i < options.threads; i++) {
        workers[i].number = i;
        workers[i].waits = options.request_ms > 0 ? calloc(MOST_WAITS, sizeof *workers[i].waits) : NULL;
        if (i > 0 && pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 1;
    }
    work(&workers[0]);
    for (int i = 1; i < options.threads; i++) pthread_join(workers[i].thread, NULL);
    return options.at_exit ? 0 : print();
}

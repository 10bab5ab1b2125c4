// SPDX-License-Identifier: Apache-2.0
//
// What a preloaded library costs a program that does nothing with it: startup LIBRARY TIMES PROGRAM. Runs the program by turns
// without and with the library and prints the least and the median of both, in microseconds.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double run(char *program, char **environment) {
    char *arguments[] = {program, NULL};
    pid_t child;
    int status;
    double start = now_us();
    if (posix_spawn(&child, program, NULL, NULL, arguments, environment) != 0 || waitpid(child, &status, 0) != child || status != 0) exit(1);
    return now_us() - start;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    enum { MOST = 10000 };
    static double without[MOST], with[MOST];
    char preload[4096];
    if (count != 4) return 2;
    int times = atoi(arguments[2]) < MOST ? atoi(arguments[2]) : MOST;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", arguments[1]);
    char *plain[] = {"SLUICE_MEMORY_LIMIT=10Gi", NULL}, *loaded[] = {"SLUICE_MEMORY_LIMIT=10Gi", preload, NULL};
    for (int i = 0; i < times; i++) {
        without[i] = run(arguments[3], plain);
        with[i] = run(arguments[3], loaded);
    }
    qsort(without, (size_t)times, sizeof without[0], ascending);
    qsort(with, (size_t)times, sizeof with[0], ascending);
    printf("{\"leastWithout\":%.1f,\"leastWith\":%.1f,\"medianWithout\":%.1f,\"medianWith\":%.1f}\n", without[0], with[0],
           without[times / 2], with[times / 2]);
    return 0;
}

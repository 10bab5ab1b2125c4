// SPDX-License-Identifier: Apache-2.0
//
// Drives a way to hold memory in steps. After each it prints one line of JSON and waits for a line on its input, so that a
// reader outside can look at what the process holds:
//   {"step":"ready"}  a context exists
//   {"step":"full","by":N}  pieces were taken until one was refused, with how many, their bytes and the error
//   {"step":"empty","by":N}  they were given back in that way
// A first argument limits the number of pieces.
#include "way.h"

#include <stdio.h>
#include <stdlib.h>

void must(result got, const char *what) {
    if (got == SUCCESS) return;
    printf("{\"step\":\"failed\",\"call\":\"%s\",\"error\":%d}\n", what, got);
    exit(1);
}

static void tell(const char *step, int by, int pieces, result error) {
    size_t free_bytes = 0, total = 0, device_total = 0;
    must(cu.cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    must(cu.cuDeviceTotalMem(&device_total, 0), "cuDeviceTotalMem");
    printf("{\"step\":\"%s\",\"by\":%d,\"pieces\":%d,\"bytes\":%zu,\"error\":%d,\"free\":%zu,\"total\":%zu,\"deviceTotal\":%zu}\n",
           step, by, pieces, (size_t)pieces * way.piece, error, free_bytes, total, device_total);
    fflush(stdout);
    if (getchar() == EOF) exit(0);
}

static int take_all(int most, result *error) {
    int taken = 0;
    *error = SUCCESS;
    while (taken < most && (*error = way.take(taken)) == SUCCESS) taken++;
    return taken;
}

int main(int count, char **arguments) {
    handle context;
    result error;
    int most = way.most > 0 ? way.most : MOST_PIECES;
    if (count > 1 && atoi(arguments[1]) < most) most = atoi(arguments[1]);
    driver_reach();
    must(cu.cuInit(0), "cuInit");
    must(cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (way.start != NULL) must(way.start(), "start");
    tell("ready", -1, 0, SUCCESS);
    for (int by = 0; by < way.calls; by++) {
        int taken = take_all(most, &error);
        tell("full", by, taken, error);
        for (int i = taken; i-- > 0;) must(way.give(i, by), "give");
        if (way.settle != NULL) must(way.settle(by), "settle");
        tell("empty", by, 0, SUCCESS);
    }
    int taken = take_all(most, &error);
    tell("full", way.calls, taken, error);
    return 0; // the process ends holding it all
}

// SPDX-License-Identifier: Apache-2.0
//
// The same call many times, for counting instructions and system calls: calls launch|alloc|async TIMES.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static handle function;

static result launch(void) { return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static result alloc(void) {
    pointer at;
    result got = cu.cuMemAlloc(&at, 4 * MIB);
    return got == SUCCESS ? cu.cuMemFree(at) : got;
}

static result async(void) {
    pointer at;
    result got = cu.cuMemAllocAsync(&at, 4 * MIB, NULL);
    return got == SUCCESS ? cu.cuMemFreeAsync(at, NULL) : got;
}

int main(int count, char **arguments) {
    handle context, module;
    if (count != 3) return 2;
    result (*call)(void) = strcmp(arguments[1], "launch") == 0 ? launch : strcmp(arguments[1], "alloc") == 0 ? alloc : async;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuModuleLoadData(&module, "any");
    if (error == SUCCESS) error = cu.cuModuleGetFunction(&function, module, "fakegpu_empty");
    for (long i = 0; error == SUCCESS && i < atol(arguments[2]); i++) error = call();
    return error;
}

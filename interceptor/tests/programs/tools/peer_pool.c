// SPDX-License-Identifier: Apache-2.0
//
// Memory of another device than the current one: peer_pool pool|vmm. With the first device current, takes 256 MiB pieces of
// the second until it is refused, prints a step, and waits for a line.
#include <stdio.h>
#include <string.h>

#include "driver.h"

int main(int count, char **arguments) {
    enum { OTHER = 1 };
    const struct pool_properties properties = {.type = 1, .location = {.type = 1, .id = OTHER}};
    const struct physical_properties physical = {.type = 1, .location = {.type = 1, .id = OTHER}};
    handle context, pool = NULL;
    if (count != 2) return 2;
    int by_pool = strcmp(arguments[1], "pool") == 0, pieces = 0;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS && by_pool) error = cu.cuMemPoolCreate(&pool, &properties);
    while (error == SUCCESS && pieces < 1000) {
        pointer at;
        unsigned long long made;
        error = by_pool ? cu.cuMemAllocFromPoolAsync(&at, 256 * MIB, pool, NULL) : cu.cuMemCreate(&made, 256 * MIB, &physical, 0);
        pieces += error == SUCCESS;
    }
    printf("{\"step\":\"full\",\"pieces\":%d,\"bytes\":%zu,\"error\":%d}\n", pieces, (size_t)pieces * 256 * MIB, error);
    fflush(stdout);
    (void)getchar();
    return 0;
}

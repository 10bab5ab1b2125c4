// SPDX-License-Identifier: Apache-2.0
// cuMemAllocAsync from a pool of one's own that was made the device's current one.
#include "way.h"

static pointer at[MOST_PIECES];

static result start(void) {
    const struct pool_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    handle pool;
    result got = cu.cuMemPoolCreate(&pool, &properties);
    return got == SUCCESS ? cu.cuDeviceSetMemPool(0, pool) : got;
}

static result take(int i) { return cu.cuMemAllocAsync(&at[i], way.piece, NULL); }

static result give(int i, int by) {
    (void)by;
    return cu.cuMemFreeAsync(at[i], NULL);
}

static result settle(int by) {
    (void)by;
    return cu.cuCtxSynchronize();
}

const struct way way = {.piece = 256 * MIB, .start = start, .take = take, .give = give, .settle = settle, .calls = 1};

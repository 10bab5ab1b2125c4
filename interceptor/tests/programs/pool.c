// SPDX-License-Identifier: Apache-2.0
// cuMemAllocFromPoolAsync from a pool of one's own that keeps all it has; it gives it back when trimmed or destroyed.
#include "way.h"

enum { RELEASE_THRESHOLD = 4, BY_TRIM = 0, BY_DESTROY = 1 };

static pointer at[MOST_PIECES];
static handle pool;

static result start(void) {
    const struct pool_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    uint64_t all = UINT64_MAX;
    result got = cu.cuMemPoolCreate(&pool, &properties);
    return got == SUCCESS ? cu.cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &all) : got;
}

static result take(int i) { return cu.cuMemAllocFromPoolAsync(&at[i], way.piece, pool, NULL); }

static result give(int i, int by) {
    (void)by;
    return cu.cuMemFreeAsync(at[i], NULL);
}

static result settle(int by) {
    result got = cu.cuCtxSynchronize();
    if (got != SUCCESS) return got;
    if (by == BY_TRIM) return cu.cuMemPoolTrimTo(pool, 0);
    got = cu.cuMemPoolDestroy(pool);
    return got == SUCCESS ? start() : got;
}

const struct way way = {.piece = 256 * MIB, .start = start, .take = take, .give = give, .settle = settle, .calls = 2};

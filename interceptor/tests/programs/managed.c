// SPDX-License-Identifier: Apache-2.0
// cuMemAllocManaged. The driver itself never refuses it for want of device memory.
#include "way.h"

enum { ATTACH_GLOBAL = 1 };

static pointer at[MOST_PIECES];

static result take(int i) {
    result got = cu.cuMemAllocManaged(&at[i], way.piece, ATTACH_GLOBAL);
    return got == SUCCESS ? cu.cuMemPrefetchAsync(at[i], way.piece, 0, NULL) : got;
}

static result give(int i, int by) {
    (void)by;
    return cu.cuMemFree(at[i]);
}

const struct way way = {.piece = 256 * MIB, .most = 700, .take = take, .give = give, .calls = 1};

// SPDX-License-Identifier: Apache-2.0
// cuMemAlloc of blocks that the driver packs into pages: two of them fill one.
#include "way.h"

static pointer at[MOST_PIECES];

static result take(int i) { return cu.cuMemAlloc(&at[i], way.piece); }

static result give(int i, int by) {
    (void)by;
    return cu.cuMemFree(at[i]);
}

// Enough to reach a small limit, and few enough for a short test.
const struct way way = {.piece = MIB, .most = 8000, .take = take, .give = give, .calls = 1};

// SPDX-License-Identifier: Apache-2.0
// cuMemAllocAsync from the default pool; freed in the stream's order, or by cuMemFree.
#include "way.h"

static pointer at[MOST_PIECES];

static result take(int i) { return cu.cuMemAllocAsync(&at[i], way.piece, NULL); }

static result give(int i, int by) { return by == 0 ? cu.cuMemFreeAsync(at[i], NULL) : cu.cuMemFree(at[i]); }

static result settle(int by) { return by == 0 ? cu.cuStreamSynchronize(NULL) : SUCCESS; }

const struct way way = {.piece = 256 * MIB, .take = take, .give = give, .settle = settle, .calls = 2};

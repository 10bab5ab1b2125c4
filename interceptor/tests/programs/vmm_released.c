// SPDX-License-Identifier: Apache-2.0
// cuMemCreate, mapped, and the handle released at once: the mapping alone holds the memory. PyTorch's expandable segments,
// NCCL and llama.cpp do this.
#include "way.h"

static pointer at[MOST_PIECES];

static result take(int i) {
    const struct physical_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    unsigned long long physical;
    result got = cu.cuMemCreate(&physical, way.piece, &properties, 0);
    if (got != SUCCESS) return got;
    must(cu.cuMemAddressReserve(&at[i], way.piece, 0, 0, 0), "cuMemAddressReserve");
    must(cu.cuMemMap(at[i], way.piece, 0, physical, 0), "cuMemMap");
    return cu.cuMemRelease(physical);
}

static result give(int i, int by) {
    (void)by;
    must(cu.cuMemUnmap(at[i], way.piece), "cuMemUnmap");
    return cu.cuMemAddressFree(at[i], way.piece);
}

const struct way way = {.piece = 256 * MIB, .take = take, .give = give, .calls = 1};

// SPDX-License-Identifier: Apache-2.0
// cuMemCreate, mapped; given back in each order, also with a handle that was retained from the mapping.
#include "way.h"

enum { UNMAP_THEN_RELEASE, RELEASE_THEN_UNMAP, RETAIN_THEN_ALL, ORDERS };

static unsigned long long physical[MOST_PIECES];
static pointer at[MOST_PIECES];

static result take(int i) {
    const struct physical_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    const struct access access = {.location = {.type = 1, .id = 0}, .flags = 3};
    result got = cu.cuMemCreate(&physical[i], way.piece, &properties, 0);
    if (got != SUCCESS) return got;
    must(cu.cuMemAddressReserve(&at[i], way.piece, 0, 0, 0), "cuMemAddressReserve");
    must(cu.cuMemMap(at[i], way.piece, 0, physical[i], 0), "cuMemMap");
    return cu.cuMemSetAccess(at[i], way.piece, &access, 1);
}

static result give(int i, int by) {
    unsigned long long again = 0;
    if (by == RETAIN_THEN_ALL) must(cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at[i]), "retain");
    if (by != UNMAP_THEN_RELEASE) must(cu.cuMemRelease(physical[i]), "cuMemRelease");
    must(cu.cuMemUnmap(at[i], way.piece), "cuMemUnmap");
    if (by == UNMAP_THEN_RELEASE) must(cu.cuMemRelease(physical[i]), "cuMemRelease");
    if (by == RETAIN_THEN_ALL) must(cu.cuMemRelease(again), "cuMemRelease of the retained handle");
    return cu.cuMemAddressFree(at[i], way.piece);
}

const struct way way = {.piece = 256 * MIB, .take = take, .give = give, .calls = ORDERS};

// SPDX-License-Identifier: Apache-2.0
// Modules of 64 MiB, brought to the device by a launch.
#include "way.h"

#include <stdlib.h>
#include <string.h>

static char *image;
static handle at[MOST_PIECES];

static result start(void) {
    image = malloc(way.piece + 1);
    if (image == NULL) return OUT_OF_MEMORY;
    memset(image, '/', way.piece);
    image[way.piece] = '\0';
    return SUCCESS;
}

static result take(int i) {
    handle function;
    result got = cu.cuModuleLoadData(&at[i], image);
    if (got != SUCCESS) return got;
    must(cu.cuModuleGetFunction(&function, at[i], "fakegpu_empty"), "cuModuleGetFunction");
    got = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (got != SUCCESS) must(cu.cuModuleUnload(at[i]), "cuModuleUnload");
    return got;
}

static result give(int i, int by) {
    (void)by;
    return cu.cuModuleUnload(at[i]);
}

const struct way way = {.piece = 64 * MIB, .start = start, .take = take, .give = give, .calls = 1};

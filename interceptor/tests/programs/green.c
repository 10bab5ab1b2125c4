// SPDX-License-Identifier: Apache-2.0
// Green contexts. What one costs comes back with the primary context only.
#include "way.h"

enum { MULTIPROCESSORS = 1, DEFAULT_STREAM = 1 };

static handle at[MOST_PIECES], description;
static unsigned char resource[1024];

static result start(void) {
    result got = cu.cuDeviceGetDevResource(0, resource, MULTIPROCESSORS);
    return got == SUCCESS ? cu.cuDevResourceGenerateDesc(&description, resource, 1) : got;
}

static result take(int i) { return cu.cuGreenCtxCreate(&at[i], description, 0, DEFAULT_STREAM); }

static result give(int i, int by) {
    (void)by;
    return cu.cuGreenCtxDestroy(at[i]);
}

static result settle(int by) {
    handle context;
    (void)by;
    must(cu.cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
    must(cu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    return cu.cuCtxSetCurrent(context);
}

const struct way way = {.piece = 6 * MIB, .most = 100, .start = start, .take = take, .give = give, .settle = settle, .calls = 1};

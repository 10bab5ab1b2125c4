// SPDX-License-Identifier: Apache-2.0
// cuImportExternalMemory: memory that another API made, which nobody else counts.
#include "way.h"

#include <fcntl.h>

static handle at[MOST_PIECES];

static result take(int i) {
    struct external from = {.type = 1, .size = way.piece};
    from.from.fd = open("/dev/null", O_RDWR | O_CLOEXEC); // the driver closes it when it takes it
    return cu.cuImportExternalMemory(&at[i], &from);
}

static result give(int i, int by) {
    (void)by;
    return cu.cuDestroyExternalMemory(at[i]);
}

const struct way way = {.piece = 256 * MIB, .take = take, .give = give, .calls = 1};

// SPDX-License-Identifier: Apache-2.0
//
// Where the kernel says that this library was loaded from.

#ifndef SLUICE_OWN_H
#define SLUICE_OWN_H

#include <stdbool.h>
#include <sys/types.h>

struct own_mapping {
    dev_t device;
    char path[256]; // as this process's mounts name it
};

// Looks the library up among the process's mappings. False where /proc does not tell.
bool own_mapping(struct own_mapping *mapping);

#endif // SLUICE_OWN_H

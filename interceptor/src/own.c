// SPDX-License-Identifier: Apache-2.0
//
// The library's own line in /proc/self/maps. The loader's name for the library is only how somebody spelled it.

#include "own.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

bool own_mapping(struct own_mapping *mapping) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end, here = (unsigned long)(uintptr_t)&own_mapping;
        unsigned major, minor;
        mapping->path[0] = '\0';
        if (sscanf(line, "%lx-%lx %*s %*s %x:%x %*u %255[^\n]", &start, &end, &major, &minor, mapping->path) < 4) continue;
        if (here < start || here >= end) continue;
        mapping->device = makedev(major, minor);
        found = true;
    }
    if (maps != NULL) fclose(maps);
    return found;
}

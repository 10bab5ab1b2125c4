// SPDX-License-Identifier: Apache-2.0
// Fills the table of driver functions in the way that this build is for.
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver cu;

#if defined(REACH_LINK)

#define IMPORT(base, symbol, version, parameters) result symbol parameters;
DRIVER(IMPORT)

void driver_reach(void) {
#define FILL(base, symbol, version, parameters) cu.base = symbol;
    DRIVER(FILL)
}

#else

static void need(void *found, const char *name, void *place) {
    if (found == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(3);
    }
    memcpy(place, &found, sizeof found);
}

static void *open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library != NULL) return library;
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
}

#if defined(REACH_DLSYM)

void driver_reach(void) {
    void *library = open_driver();
#define FILL(base, symbol, version, parameters) need(dlsym(library, #symbol), #symbol, &cu.base);
    DRIVER(FILL)
}

#elif defined(REACH_LOOKUP)

// The default stream of such programs: the legacy one, or with 2 each thread's own.
#ifndef LOOKUP_FLAGS
#define LOOKUP_FLAGS 0
#endif

// No function has a variant for the threads' own streams before this version.
static int version_for(int version) { return LOOKUP_FLAGS != 0 && version < 7000 ? 7000 : version; }

void driver_reach(void) {
    result (*look_up)(const char *, void **, int, uint64_t, int *);
    need(dlsym(open_driver(), "cuGetProcAddress_v2"), "cuGetProcAddress_v2", &look_up);
    // The runtime asks for the look-up itself first, and goes on with what it gets.
    void *found = NULL;
    look_up("cuGetProcAddress", &found, 12000, 0, NULL);
    need(found, "cuGetProcAddress", &look_up);
#define FILL(base, symbol, version, parameters)                               \
    found = NULL;                                                             \
    look_up(#base, &found, version_for(version), LOOKUP_FLAGS, NULL);         \
    need(found, #base, &cu.base);
    DRIVER(FILL)
}

#else
#error "one of REACH_LINK, REACH_DLSYM and REACH_LOOKUP has to be defined"
#endif
#endif

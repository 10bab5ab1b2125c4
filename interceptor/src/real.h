// SPDX-License-Identifier: Apache-2.0
//
// The driver's own functions. They are found by walking the loaded objects and their symbol tables: that needs no dlsym,
// works on every C library from 2.17 on, and never meets another library's replacement.

#ifndef SLUICE_REAL_H
#define SLUICE_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

// One number for each function of hooks.def, those that are replaced first.
enum function {
#define CUDA_HOOK(symbol, base, version, stream) AT_##symbol,
#define NVML_HOOK(symbol) AT_##symbol,
#include "hooks.def"
    HOOK_COUNT,
    BEFORE_CALLS = HOOK_COUNT - 1,
#define CUDA_CALL(symbol) AT_##symbol,
#define NVML_CALL(symbol) AT_##symbol,
#include "hooks.def"
    FUNCTION_COUNT
};

// The addresses, NULL for what the loaded driver lacks. Filled by real_find.
extern void *sluice_real[FUNCTION_COUNT] __attribute__((visibility("hidden")));

static inline void *real_address(enum function at) { return __atomic_load_n(&sluice_real[at], __ATOMIC_RELAXED); }

// The driver's own function, typed: REAL(cuMemAlloc_v2)(&pointer, size). HAVE says whether there is one.
#define REAL(symbol) ((__typeof__(&symbol))real_address(AT_##symbol))
#define HAVE(symbol) (real_address(AT_##symbol) != NULL)

// Looks for the driver and the management library among the loaded objects, once each until one of them is reloaded.
// Says whether the one that a function belongs to is there.
bool real_find(enum function at);

// The driver's function of a hook that a program called directly, found if it was not yet; NULL where there is none.
void *real_needed(enum function at);

// The C library's dlsym, and the pthread_create that the program has; older C libraries keep it in a library of its own, and where
// that is not loaded there is none.
void *real_dlsym(void);
void *real_pthread_create(void);

// Whether an address lies in this library, and the path that it was loaded by, "" when unknown.
bool real_is_own(const void *address);
void real_own_path(char *path, size_t size);

#endif // SLUICE_REAL_H

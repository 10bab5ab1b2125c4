// SPDX-License-Identifier: Apache-2.0
//
// Which function a program gets that asks by name. The C library, or the driver, is always asked first and with the
// caller's own arguments, so every status, error and missing name stays theirs; only an answer that is the address of a
// function which the library replaces becomes the replacement.

#include "dispatch.h"

#include <dlfcn.h>
#include <string.h>

#include "export.h"
#include "process.h"
#include "symbol_table.h"

struct hook {
    const char *name;
    const char *missing; // a name that nothing has, for an error message that reads right
    const char *base;    // NULL for what cuGetProcAddress does not know
    void *replacement;
};

static const struct hook hooks[HOOK_COUNT] = {
#define CUDA_HOOK(symbol, base, version, stream) [AT_##symbol] = {#symbol, #symbol " ", #base, (void *)symbol},
#define NVML_HOOK(symbol) [AT_##symbol] = {#symbol, #symbol " ", NULL, (void *)symbol},
#include "hooks.def"
};

EARLY static const struct hook *hook_named(const char *name) {
    // Most look-ups are of other names and end at the first letters.
    if (!(name[0] == 'c' && name[1] == 'u') && !(name[0] == 'n' && name[1] == 'v' && name[2] == 'm')) return NULL;
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (strcmp(hooks[i].name, name) == 0) return &hooks[i];
    }
    return NULL;
}

void *dlsym(void *handle, const char *name);

typedef void *dlsym_function(void *, const char *);

// Without the sanitizers' checks: their own start asks for names before their shadow memory exists.
EARLY __attribute__((used, visibility("hidden"))) struct dlsym_answer
sluice_dlsym_answer(void *handle, const char *name) {
    dlsym_function *ask = (dlsym_function *)real_dlsym();
    if (ask == NULL) return (struct dlsym_answer){NULL, NULL};
    const struct hook *hook = name == NULL ? NULL : hook_named(name);
    if (hook == NULL) return (struct dlsym_answer){(void *)ask, name};
    enum function at = (enum function)(hook - hooks);
    bool there = real_find(at);
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
        // Without a driver the only thing to find is our own export, which must not look like one.
        return (struct dlsym_answer){(void *)ask, there ? name : hook->missing};
    }
    void *found = ask(handle, name);
    if (found == NULL) return (struct dlsym_answer){NULL, NULL};
    if (!there && real_is_own(found)) return (struct dlsym_answer){(void *)ask, hook->missing};
    if (found == real_address(at) && process_hands_out()) found = hook->replacement;
    return (struct dlsym_answer){NULL, found};
}

// The replacement of what cuGetProcAddress answered. The address says which variant it is, beyond any reading of versions
// and flags; one that is no known variant is left alone and counted.
static void *replace(const char *base, void *address) {
    bool known_base = false;
    if (base == NULL || address == NULL || real_is_own(address)) return address;
    for (int i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].base == NULL) continue;
        // Some functions answer to two names, so the address alone decides.
        if (real_address((enum function)i) == address) return hooks[i].replacement;
        known_base |= strcmp(hooks[i].base, base) == 0;
    }
    if (known_base) process_count_unknown(base);
    return address;
}

EXPORT cu_result cuGetProcAddress(const char *name, void **address, int version, uint64_t flags) {
    __typeof__(&cuGetProcAddress) real = NEEDED(cuGetProcAddress);
    if (real == NULL) return CU_SYMBOL_NOT_FOUND;
    cu_result result = real(name, address, version, flags);
    if (result == CU_OK && address != NULL && process_hands_out()) *address = replace(name, *address);
    return result;
}

EXPORT cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
    __typeof__(&cuGetProcAddress_v2) real = NEEDED(cuGetProcAddress_v2);
    if (real == NULL) return CU_SYMBOL_NOT_FOUND;
    cu_result result = real(name, address, version, flags, status);
    if (result == CU_OK && address != NULL && process_hands_out()) *address = replace(name, *address);
    return result;
}

// SPDX-License-Identifier: Apache-2.0
// A second preloaded library, as tracers are: it has an allocation call of its own, finds the next by RTLD_NEXT and passes on.
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

__attribute__((visibility("default"))) int cuMemAlloc_v2(unsigned long long *at, size_t size) {
    int (*next)(unsigned long long *, size_t);
    void *found = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (found == NULL) return 999; // CUDA_ERROR_UNKNOWN
    memcpy(&next, &found, sizeof next);
    return next(at, size);
}

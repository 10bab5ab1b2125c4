// SPDX-License-Identifier: Apache-2.0
//
// On a machine with a GPU: whether cuGetProcAddress answers with the addresses that the driver's symbol table has. The
// library recognises variants by that. Prints each name, version and flag whose answer is none of the known symbols.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *symbol, *base;
} hooks[] = {
#define CUDA_HOOK(symbol, base, version, stream) {#symbol, #base},
#include "../../src/hooks.def"
};

typedef int lookup(const char *, void **, int, uint64_t, int *);

int main(void) {
    static const int versions[] = {2000, 3020, 4000, 4010, 5000, 7000, 10000, 10020, 11000, 11020, 11040, 12000, 12020, 12040, 12050, 12080, 13000};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) return printf("no driver: %s\n", dlerror()), 1;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    lookup *find = (lookup *)dlsym(driver, "cuGetProcAddress_v2");
    int asked = 0, unknown = 0, count = (int)(sizeof hooks / sizeof hooks[0]);
    for (int i = 0; i < count; i++) {
        if (dlsym(driver, hooks[i].symbol) == NULL) printf("missing  %s\n", hooks[i].symbol);
        for (unsigned v = 0; v < sizeof versions / sizeof versions[0]; v++) {
            for (uint64_t flags = 0; flags < 3; flags++) {
                void *address = NULL;
                int status = -1, known = 0;
                if (find(hooks[i].base, &address, versions[v], flags, &status) != 0 || address == NULL) continue;
                asked++;
                for (int k = 0; k < count; k++) known |= strcmp(hooks[k].base, hooks[i].base) == 0 && dlsym(driver, hooks[k].symbol) == address;
                if (known) continue;
                Dl_info info = {0};
                dladdr(address, &info);
                printf("unknown  %s %d %d: %p %s\n", hooks[i].base, versions[v], (int)flags, address, info.dli_sname ? info.dli_sname : "?");
                unknown++;
            }
        }
    }
    printf("%d answers, %d of no known variant\n", asked, unknown);
    return unknown > 0;
}

// SPDX-License-Identifier: Apache-2.0
// Makes one MIG device of three slices on the first GPU, whose MIG mode is on.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { THREE_SLICES = 2, ENGINES_SHARED = 0, INFO_ROOM = 64 };

static void find(void *library, const char *name, void *place) {
    void *found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) exit(3);
    memcpy(place, &found, sizeof found);
}

int main(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    result (*init)(void), (*by_index)(unsigned, handle *), (*gpu_profile)(handle, unsigned, unsigned *);
    result (*make_gpu)(handle, unsigned, handle *), (*compute_profile)(handle, unsigned, unsigned, unsigned *);
    result (*make_compute)(handle, unsigned, handle *);
    unsigned info[INFO_ROOM]; // the profile's id comes first
    handle device, gpu_instance, compute_instance;
    find(library, "nvmlInit_v2", &init);
    find(library, "nvmlDeviceGetHandleByIndex_v2", &by_index);
    find(library, "nvmlDeviceGetGpuInstanceProfileInfo", &gpu_profile);
    find(library, "nvmlDeviceCreateGpuInstance", &make_gpu);
    find(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo", &compute_profile);
    find(library, "nvmlGpuInstanceCreateComputeInstance", &make_compute);
    if (init() != SUCCESS || by_index(0, &device) != SUCCESS || gpu_profile(device, THREE_SLICES, info) != SUCCESS) return 4;
    if (make_gpu(device, info[0], &gpu_instance) != SUCCESS) return 5;
    if (compute_profile(gpu_instance, THREE_SLICES, ENGINES_SHARED, info) != SUCCESS) return 6;
    return make_compute(gpu_instance, info[0], &compute_instance) == SUCCESS ? 0 : 7;
}

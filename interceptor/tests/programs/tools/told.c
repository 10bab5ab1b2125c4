// SPDX-License-Identifier: Apache-2.0
//
// What a process is told of its devices, by CUDA and by NVML: told [MIB [COPIES]]. It allocates that much on its first device,
// prints for each CUDA device and each NVML device its memory, and for NVML the processes on it, as one line of JSON, and
// waits for a line.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process_info {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
};
struct nvml {
    result (*init)(void), (*count)(unsigned *), (*by_index)(unsigned, handle *);
    result (*uuid)(handle, char *, unsigned);
    result (*memory)(handle, struct memory *), (*memory_v2)(handle, struct memory_v2 *);
    result (*processes)(handle, unsigned *, struct process_info *);
};

static void find(void *library, const char *name, void *place) {
    void *found = dlsym(library, name);
    if (found == NULL) exit(3);
    memcpy(place, &found, sizeof found);
}

static void open_nvml(struct nvml *nvml) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL) exit(3);
    find(library, "nvmlInit_v2", &nvml->init);
    find(library, "nvmlDeviceGetCount_v2", &nvml->count);
    find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index);
    find(library, "nvmlDeviceGetUUID", &nvml->uuid);
    find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    find(library, "nvmlDeviceGetMemoryInfo_v2", &nvml->memory_v2);
    find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes);
}

static void tell_nvml(const struct nvml *nvml) {
    unsigned devices = 0;
    if (nvml->init() != SUCCESS || nvml->count(&devices) != SUCCESS) exit(4);
    printf("],\"nvml\":[");
    for (unsigned i = 0; i < devices; i++) {
        struct memory m = {0};
        struct memory_v2 v2 = {.version = (unsigned)sizeof v2 | 2u << 24};
        struct process_info list[64];
        unsigned count = 64;
        char uuid[96] = "";
        handle device;
        if (nvml->by_index(i, &device) != SUCCESS || nvml->uuid(device, uuid, sizeof uuid) != SUCCESS) exit(4);
        if (nvml->memory(device, &m) != SUCCESS || nvml->memory_v2(device, &v2) != SUCCESS) exit(4);
        if (nvml->processes(device, &count, list) != SUCCESS) exit(4);
        printf("%s{\"uuid\":\"%s\",\"total\":%llu,\"used\":%llu,\"free\":%llu,\"total2\":%llu,\"used2\":%llu,\"free2\":%llu,\"processes\":[",
               i > 0 ? "," : "", uuid, m.total, m.used, m.free, v2.total, v2.used, v2.free);
        for (unsigned p = 0; p < count; p++) {
            printf("%s{\"pid\":%u,\"bytes\":%llu}", p > 0 ? "," : "", list[p].pid, list[p].used);
        }
        printf("]}");
    }
}

int main(int count, char **arguments) {
    handle context;
    pointer at;
    struct nvml nvml;
    int devices = 0;
    size_t bytes = count > 1 ? (size_t)atoi(arguments[1]) * MIB : 0;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDeviceGetCount(&devices);
    printf("{\"pid\":%d,\"error\":%d,\"cuda\":[", getpid(), error);
    for (int i = 0; i < devices; i++) {
        size_t free_bytes = 0, total = 0, device_total = 0;
        if (cu.cuDevicePrimaryCtxRetain(&context, i) != SUCCESS || cu.cuCtxSetCurrent(context) != SUCCESS) exit(5);
        if (i == 0 && bytes > 0 && cu.cuMemAlloc(&at, bytes) != SUCCESS) exit(5);
        if (cu.cuMemGetInfo(&free_bytes, &total) != SUCCESS || cu.cuDeviceTotalMem(&device_total, i) != SUCCESS) exit(5);
        printf("%s{\"total\":%zu,\"free\":%zu,\"deviceTotal\":%zu}", i > 0 ? "," : "", total, free_bytes, device_total);
    }
    open_nvml(&nvml);
    tell_nvml(&nvml);
    printf("]}\n");
    fflush(stdout);
    (void)getchar();
    return 0;
}

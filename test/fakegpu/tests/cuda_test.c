// SPDX-License-Identifier: Apache-2.0
// The CUDA driver: devices, contexts, memory, time. What it holds NVML shows.
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "cuda_api.h"
#include "nvml_api.h"

#define MIB (1ull << 20)
#define CONTEXT (518 * MIB)

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static unsigned long long held_on(unsigned index) {
    nv_device gpu;
    nv_memory_v2 memory = {.version = NV_STRUCT_VERSION(nv_memory_v2, 2)};
    nvmlDeviceGetHandleByIndex_v2(index, &gpu);
    return nvmlDeviceGetMemoryInfo_v2(gpu, &memory) == NV_SUCCESS ? memory.used : ~0ull;
}

static void devices(void) {
    int count, version, value;
    char name[96];
    size_t total;
    cu_device device;
    CHECK_CODE("before init there are no devices", CU_NOT_INITIALIZED, cuDeviceGetCount(&count));
    CHECK("the version is told before init", cuDriverGetVersion(&version) == CU_SUCCESS && version == 13000);
    CHECK_CODE("it starts", CU_SUCCESS, cuInit(0));
    CHECK("both GPUs are seen", cuDeviceGetCount(&count) == CU_SUCCESS && count == 2);
    CHECK_CODE("a third is no device", CU_INVALID_DEVICE, cuDeviceGet(&device, 2));
    CHECK("a device has its name", cuDeviceGetName(name, sizeof name, 0) == CU_SUCCESS && strcmp(name, "NVIDIA H100 80GB HBM3") == 0);
    CHECK("its memory is what the driver leaves", cuDeviceTotalMem_v2(&total, 0) == CU_SUCCESS && total == 81152 * MIB);
    CHECK("it tells its multiprocessors", cuDeviceGetAttribute(&value, 16, 0) == CU_SUCCESS && value == 132);
    cu_uuid uuid;
    char text[96], start[16];
    nv_device gpu;
    nvmlDeviceGetHandleByIndex_v2(1, &gpu);
    nvmlDeviceGetUUID(gpu, text, sizeof text);
    cuDeviceGetUuid_v2(&uuid, 1);
    snprintf(start, sizeof start, "%02x%02x%02x%02x", (unsigned char)uuid.bytes[0], (unsigned char)uuid.bytes[1],
             (unsigned char)uuid.bytes[2], (unsigned char)uuid.bytes[3]);
    CHECK("it has the UUID that NVML tells", strncmp(text + 4, start, 8) == 0);
}

static void contexts(void) {
    cu_context own, primary, same, current;
    cu_pointer pointer;
    CHECK_CODE("without a context there is no memory", CU_INVALID_CONTEXT, cuMemAlloc_v2(&pointer, 1));
    CHECK_CODE("the primary context is retained", CU_SUCCESS, cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK("NVML shows what a context costs", held_on(0) == CONTEXT);
    CHECK("retained again it is the same", cuDevicePrimaryCtxRetain(&same, 0) == CU_SUCCESS && same == primary);
    CHECK_CODE("a context of one's own is made", CU_SUCCESS, cuCtxCreate_v2(&own, 0, 1));
    CHECK("and is current", cuCtxGetCurrent(&current) == CU_SUCCESS && current == own);
    cuCtxPushCurrent_v2(primary);
    CHECK("one pushed is", cuCtxGetCurrent(&current) == CU_SUCCESS && current == primary);
    CHECK("popped, the one below is again", cuCtxPopCurrent_v2(&current) == CU_SUCCESS && current == primary &&
                                                cuCtxGetCurrent(&current) == CU_SUCCESS && current == own);
    CHECK_CODE("it is destroyed", CU_SUCCESS, cuCtxDestroy_v2(own));
    CHECK_CODE("once", CU_INVALID_CONTEXT, cuCtxDestroy_v2(own));
    CHECK("its device is free again", held_on(1) == 0);
    cuDevicePrimaryCtxRelease_v2(0);
    CHECK("the primary lives while it is retained", held_on(0) == CONTEXT);
    cuDevicePrimaryCtxRelease_v2(0);
    CHECK("and goes with the last release", held_on(0) == 0);
}

static void memory(void) {
    cu_context context;
    cu_pointer big, small, other, refused = 42;
    size_t free_bytes, total;
    unsigned values[4] = {1, 2, 3, 4}, read[4] = {0};
    unsigned char bytes[8];
    cuCtxCreate_v2(&context, 0, 0);
    CHECK_CODE("memory is allocated", CU_SUCCESS, cuMemAlloc_v2(&big, 1000 * MIB + 1));
    CHECK("whole pages of it are charged", held_on(0) == CONTEXT + 1002 * MIB);
    CHECK_CODE("small pieces too", CU_SUCCESS, cuMemAlloc_v2(&small, 100));
    CHECK_CODE("and another", CU_SUCCESS, cuMemAlloc_v2(&other, 100));
    CHECK("which share a page", held_on(0) == CONTEXT + 1004 * MIB && other - small == 512);
    cuMemGetInfo_v2(&free_bytes, &total);
    CHECK("the driver tells the same", total == 81152 * MIB && total - free_bytes == CONTEXT + 1004 * MIB);
    CHECK_CODE("more than there is is refused", CU_OUT_OF_MEMORY, cuMemAlloc_v2(&refused, 80000 * MIB));
    CHECK("and changes nothing", refused == 42 && held_on(0) == CONTEXT + 1004 * MIB);
    cuMemcpyHtoD_v2(small, values, sizeof values);
    cuMemcpyDtoD_v2(big + 64, small, sizeof values);
    cuMemcpyDtoH_v2(read, big + 64, sizeof read);
    CHECK("what is copied in is copied out", memcmp(values, read, sizeof read) == 0);
    cuMemsetD32_v2(small, 7, 4);
    cuMemcpyDtoH_v2(read, small, sizeof read);
    CHECK("what is set is read", read[0] == 7 && read[3] == 7);
    CHECK_CODE("the far end of a large allocation can be written", CU_SUCCESS, cuMemsetD8_v2(big + 999 * MIB, 1, 8));
    CHECK_CODE("and read", CU_SUCCESS, cuMemcpyDtoH_v2(bytes, big + 999 * MIB, sizeof bytes));
    CHECK_CODE("copying beyond an allocation is invalid", CU_INVALID_VALUE, cuMemcpyDtoH_v2(values, small + 96, 16));
    CHECK_CODE("freeing within one is invalid", CU_INVALID_VALUE, cuMemFree_v2(big + 512));
    CHECK_CODE("memory is freed", CU_SUCCESS, cuMemFree_v2(big));
    CHECK_CODE("once", CU_INVALID_VALUE, cuMemFree_v2(big));
    CHECK("and given back", held_on(0) == CONTEXT + 2 * MIB);
    cuCtxDestroy_v2(context);
    CHECK("a context gives back what was not freed", held_on(0) == 0);
}

static void kernels(void) {
    cu_context context;
    cu_module module;
    cu_function spin;
    cu_stream stream;
    cu_event start, end;
    float ms = 0;
    uint64_t us = 20000;
    void *parameters[] = {&us};
    cuCtxCreate_v2(&context, 0, 0);
    CHECK_CODE("a module is loaded", CU_SUCCESS, cuModuleLoadData(&module, "any image"));
    CHECK_CODE("it has the kernel that takes time", CU_SUCCESS, cuModuleGetFunction(&spin, module, "fakegpu_spin"));
    cu_function none;
    CHECK_CODE("and not any other", CU_NOT_FOUND, cuModuleGetFunction(&none, module, "nonsense"));
    cuStreamCreate(&stream, 1);
    cuEventCreate(&start, 0);
    cuEventCreate(&end, 0);
    double began = seconds();
    cuEventRecord(start, stream);
    CHECK_CODE("a kernel is launched", CU_SUCCESS, cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    cuLaunchKernel_ptsz(spin, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
    cuEventRecord(end, stream);
    CHECK("the launch does not wait", seconds() - began < 0.015);
    CHECK_CODE("the stream is busy", CU_NOT_READY, cuStreamQuery(stream));
    nv_device gpu;
    nv_utilization rates = {0};
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    CHECK("NVML calls the GPU busy", nvmlDeviceGetUtilizationRates(gpu, &rates) == NV_SUCCESS && rates.gpu == 100);
    CHECK_CODE("it can be waited for", CU_SUCCESS, cuStreamSynchronize(stream));
    double took = seconds() - began;
    CHECK("two kernels take the time that they were asked to", took >= 0.040 && took < 0.2);
    CHECK("events tell it too", cuEventElapsedTime(&ms, start, end) == CU_SUCCESS && ms >= 39.9f && ms < 60);
    CHECK_CODE("a block that is too large is invalid", CU_INVALID_VALUE,
               cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, stream, parameters, NULL));
    cuEventDestroy_v2(start);
    cuEventDestroy_v2(end);
    cuStreamDestroy_v2(stream);
    CHECK_CODE("the module is unloaded", CU_SUCCESS, cuModuleUnload(module));
    CHECK_CODE("its kernel cannot be launched then", CU_INVALID_HANDLE,
               cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    cuCtxDestroy_v2(context);
}

static void lookup(void) {
    void *address, *newer;
    int status;
    const char *name;
    CHECK("a base name gives its newest variant", cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, &status) == CU_SUCCESS &&
                                                      address == (void *)(uintptr_t)cuMemAlloc_v2 && status == 0);
    cuGetProcAddress_v2("cuDeviceGetUuid", &address, 10000, 0, NULL);
    cuGetProcAddress_v2("cuDeviceGetUuid", &newer, 12000, 0, NULL);
    CHECK("an older program gets the older variant", address != NULL && newer != NULL && address != newer);
    cuGetProcAddress_v2("cuLaunchKernelEx", &address, 11000, 0, &status);
    CHECK("what came later is not found, with the reason", address == NULL && status == 2);
    cuGetProcAddress_v2("cuNonsense", &address, 12000, 0, &status);
    CHECK("nor what does not exist", address == NULL && status == 1);
    cuGetProcAddress_v2("cuLaunchKernel", &address, 12000, 2, &status);
    CHECK("per-thread streams have their own variant", address == (void *)(uintptr_t)cuLaunchKernel_ptsz);
    CHECK_CODE("a version beyond the driver's is invalid", CU_INVALID_VALUE,
               cuGetProcAddress_v2("cuInit", &address, 99000, 0, NULL));
    CHECK("an error has its name", cuGetErrorName(2, &name) == CU_SUCCESS && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
}

// Allocates, launches and frees in a context that all threads share.
static void *work(void *argument) {
    cu_context context = argument;
    cu_stream stream;
    cu_module module;
    cu_function spin;
    uint64_t us = 10;
    void *parameters[] = {&us};
    long good = cuCtxSetCurrent(context) == CU_SUCCESS && cuStreamCreate(&stream, 1) == CU_SUCCESS &&
                cuModuleLoadData(&module, "") == CU_SUCCESS && cuModuleGetFunction(&spin, module, "fakegpu_spin") == CU_SUCCESS;
    for (int i = 0; good && i < 200; i++) {
        cu_pointer big, small;
        unsigned value = (unsigned)i, read = 0;
        good = cuMemAlloc_v2(&big, 3 * MIB) == CU_SUCCESS && cuMemAlloc_v2(&small, 64) == CU_SUCCESS &&
               cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL) == CU_SUCCESS &&
               cuMemcpyHtoD_v2(small, &value, sizeof value) == CU_SUCCESS &&
               cuMemcpyDtoH_v2(&read, small, sizeof read) == CU_SUCCESS && read == value &&
               cuMemFree_v2(big) == CU_SUCCESS && cuMemFree_v2(small) == CU_SUCCESS;
    }
    good = good && cuStreamDestroy_v2(stream) == CU_SUCCESS;
    return (void *)good;
}

static void threads(void) {
    pthread_t thread[4];
    cu_context context;
    int good = 0;
    cuCtxCreate_v2(&context, 0, 0);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, work, context);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(thread[i], &result);
        good += result != NULL;
    }
    CHECK("threads work side by side in one context", good == 4);
    CHECK("and leave nothing", held_on(0) == CONTEXT);
    cuCtxDestroy_v2(context);
}

// Runs a piece of a test in a process of its own, which has not touched CUDA yet.
static int in_child(int (*test)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(test());
    int status = 1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int sees_one(void) {
    int count = 0;
    setenv("CUDA_VISIBLE_DEVICES", "1,7", 1);
    return !(cuInit(0) == CU_SUCCESS && cuDeviceGetCount(&count) == CU_SUCCESS && count == 1);
}

static int sees_none(void) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cuInit(0) != CU_NO_DEVICE;
}

static int dies_with_memory(void) {
    cu_context context;
    cu_pointer pointer;
    if (cuInit(0) != CU_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CU_SUCCESS) return 1;
    if (cuMemAlloc_v2(&pointer, 100 * MIB) != CU_SUCCESS || held_on(0) != CONTEXT + 100 * MIB) return 1;
    return 0;
}

static int forked_away(void) { return cuInit(0) != CU_NOT_INITIALIZED; }

int main(void) {
    fresh_node("--board h100-80gb --gpus 2");
    nvmlInit_v2();
    CHECK("CUDA_VISIBLE_DEVICES chooses, and ends at what does not exist", in_child(sees_one) == 0);
    CHECK("empty, it leaves nothing", in_child(sees_none) == 0);
    CHECK("a process that ends holding memory", in_child(dies_with_memory) == 0);
    CHECK("holds none afterwards", held_on(0) == 0);
    devices();
    contexts();
    memory();
    kernels();
    threads();
    lookup();
    CHECK("after a fork the child cannot go on", in_child(forked_away) == 0);
    nvmlShutdown();
    return finish();
}

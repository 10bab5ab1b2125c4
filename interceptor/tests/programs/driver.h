// SPDX-License-Identifier: Apache-2.0
//
// The driver as these programs reach it. DRIVER lists each function once: base name, symbol, the CUDA version whose variant
// that symbol is, parameters. By what REACH is, the table `cu` is filled
//   by linking against libcuda.so.1 (REACH_LINK),
//   by dlopen and dlsym (REACH_DLSYM), or
//   by cuGetProcAddress, as the CUDA runtime does it (REACH_LOOKUP), also with LOOKUP_FLAGS 2, as programs do whose default
//   stream is each thread's own.
#ifndef SLUICE_TESTS_DRIVER_H
#define SLUICE_TESTS_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)

typedef int result;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };
typedef unsigned long long pointer;
typedef void *handle;

struct location {
    int type, id; // type 1: device
};
struct access {
    struct location location;
    int flags; // 3: read and write
};
struct physical_properties {
    int type, handle_types;
    struct location location;
    void *windows;
    unsigned char flags[8];
};
struct pool_properties {
    int type, handle_types;
    struct location location;
    void *windows;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
struct alloc_node {
    struct pool_properties properties;
    const struct access *access;
    size_t access_count, size;
    pointer at;
};
struct array2d {
    size_t width, height;
    int format;
    unsigned channels;
};
struct array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct external {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } windows;
    } from;
    unsigned long long size;
    unsigned flags, reserved[16];
};
struct ipc {
    char bytes[64];
};
struct launch {
    unsigned gx, gy, gz, bx, by, bz, shared;
    handle stream;
    void *attributes;
    unsigned attribute_count;
};

// clang-format off
#define DRIVER(F) \
    F(cuInit, cuInit, 2000, (unsigned flags)) \
    F(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count)) \
    F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (handle *context, int device)) \
    F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (int device)) \
    F(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (int device)) \
    F(cuCtxCreate, cuCtxCreate_v2, 3020, (handle *context, unsigned flags, int device)) \
    F(cuCtxDestroy, cuCtxDestroy_v2, 4000, (handle context)) \
    F(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (handle context)) \
    F(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (handle *context)) \
    F(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
    F(cuCtxSetLimit, cuCtxSetLimit, 3010, (int limit, size_t value)) \
    F(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *bytes, int device)) \
    F(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free, size_t *total)) \
    F(cuMemAlloc, cuMemAlloc_v2, 3020, (pointer *at, size_t size)) \
    F(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, (pointer *at, size_t *pitch, size_t width, size_t height, unsigned element)) \
    F(cuMemAllocManaged, cuMemAllocManaged, 6000, (pointer *at, size_t size, unsigned flags)) \
    F(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, (pointer at, size_t size, int device, handle stream)) \
    F(cuMemFree, cuMemFree_v2, 3020, (pointer at)) \
    F(cuMemsetD8, cuMemsetD8_v2, 3020, (pointer at, unsigned char value, size_t count)) \
    F(cuMemAllocHost, cuMemAllocHost_v2, 3020, (void **at, size_t size)) \
    F(cuMemFreeHost, cuMemFreeHost, 2000, (void *at)) \
    F(cuArrayCreate, cuArrayCreate_v2, 3020, (handle *array, const struct array2d *description)) \
    F(cuArray3DCreate, cuArray3DCreate_v2, 3020, (handle *array, const struct array3d *description)) \
    F(cuArrayDestroy, cuArrayDestroy, 2000, (handle array)) \
    F(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (handle *array, const struct array3d *description, unsigned levels)) \
    F(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (handle array)) \
    F(cuStreamCreate, cuStreamCreate, 2000, (handle *stream, unsigned flags)) \
    F(cuStreamDestroy, cuStreamDestroy_v2, 4000, (handle stream)) \
    F(cuStreamSynchronize, cuStreamSynchronize, 2000, (handle stream)) \
    F(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (handle stream, int mode)) \
    F(cuStreamEndCapture, cuStreamEndCapture, 10000, (handle stream, handle *graph)) \
    F(cuMemAllocAsync, cuMemAllocAsync, 11020, (pointer *at, size_t size, handle stream)) \
    F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (pointer *at, size_t size, handle pool, handle stream)) \
    F(cuMemFreeAsync, cuMemFreeAsync, 11020, (pointer at, handle stream)) \
    F(cuMemPoolCreate, cuMemPoolCreate, 11020, (handle *pool, const struct pool_properties *properties)) \
    F(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (handle pool)) \
    F(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (handle pool, size_t keep)) \
    F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (handle pool, int attribute, void *value)) \
    F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (handle pool, int attribute, void *value)) \
    F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (handle *pool, int device)) \
    F(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (int device, handle pool)) \
    F(cuGraphCreate, cuGraphCreate, 10000, (handle *graph, unsigned flags)) \
    F(cuGraphDestroy, cuGraphDestroy, 10000, (handle graph)) \
    F(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, (handle *node, handle graph, const handle *after, size_t count, struct alloc_node *parameters)) \
    F(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, (handle *node, handle graph, const handle *after, size_t count, pointer at)) \
    F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, (handle *exec, handle graph, unsigned long long flags)) \
    F(cuGraphUpload, cuGraphUpload, 11010, (handle exec, handle stream)) \
    F(cuGraphLaunch, cuGraphLaunch, 10000, (handle exec, handle stream)) \
    F(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (handle exec)) \
    F(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (int device)) \
    F(cuMemAddressReserve, cuMemAddressReserve, 10020, (pointer *at, size_t size, size_t alignment, pointer wanted, unsigned long long flags)) \
    F(cuMemAddressFree, cuMemAddressFree, 10020, (pointer at, size_t size)) \
    F(cuMemCreate, cuMemCreate, 10020, (unsigned long long *physical, size_t size, const struct physical_properties *properties, unsigned long long flags)) \
    F(cuMemRelease, cuMemRelease, 10020, (unsigned long long physical)) \
    F(cuMemMap, cuMemMap, 10020, (pointer at, size_t size, size_t offset, unsigned long long physical, unsigned long long flags)) \
    F(cuMemUnmap, cuMemUnmap, 10020, (pointer at, size_t size)) \
    F(cuMemSetAccess, cuMemSetAccess, 10020, (pointer at, size_t size, const struct access *access, size_t count)) \
    F(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (unsigned long long *physical, void *at)) \
    F(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *out, unsigned long long physical, int type, unsigned long long flags)) \
    F(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (unsigned long long *physical, void *from, int type)) \
    F(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (struct ipc *out, pointer at)) \
    F(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, (pointer *at, struct ipc from, unsigned flags)) \
    F(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (pointer at)) \
    F(cuImportExternalMemory, cuImportExternalMemory, 10000, (handle *memory, const struct external *from)) \
    F(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (handle memory)) \
    F(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (int device, void *resource, int type)) \
    F(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (handle *description, void *resources, unsigned count)) \
    F(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (handle *green, handle description, int device, unsigned flags)) \
    F(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (handle green)) \
    F(cuModuleLoadData, cuModuleLoadData, 2000, (handle *module, const void *image)) \
    F(cuModuleUnload, cuModuleUnload, 2000, (handle module)) \
    F(cuModuleGetFunction, cuModuleGetFunction, 2000, (handle *function, handle module, const char *name)) \
    F(cuDeviceGet, cuDeviceGet, 2000, (int *device, int ordinal)) \
    F(cuEventCreate, cuEventCreate, 2000, (handle *event, unsigned flags)) \
    F(cuEventDestroy, cuEventDestroy_v2, 4000, (handle event)) \
    F(cuEventRecord, cuEventRecord, 2000, (handle event, handle stream)) \
    F(cuEventSynchronize, cuEventSynchronize, 2000, (handle event)) \
    F(cuEventQuery, cuEventQuery, 2000, (handle event)) \
    F(cuLaunchKernelEx, cuLaunchKernelEx, 11060, (const struct launch *how, handle function, void **parameters, void **extra)) \
    F(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, (handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, handle stream, void **parameters)) \
    F(cuLaunchKernel, cuLaunchKernel, 4000, (handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, handle stream, void **parameters, void **extra))
// clang-format on

struct driver {
#define DECLARE(base, symbol, version, parameters) result(*base) parameters;
    DRIVER(DECLARE)
#undef DECLARE
};

// Filled by driver_reach, which ends the program with status 3 where a function is missing.
extern struct driver cu;
void driver_reach(void);

#endif

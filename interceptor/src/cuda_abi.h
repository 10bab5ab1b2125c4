// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA driver's binary interface that the library meets, in its own declarations: building it needs no
// vendor header. tests/vendor_cuda.c compares every layout and value with the vendor's, where its header is at hand.

#ifndef SLUICE_CUDA_ABI_H
#define SLUICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_SYMBOL_NOT_FOUND = 302,
    CU_NOT_READY = 600,
};

typedef int cu_device;
typedef unsigned long long cu_ptr;
typedef unsigned int cu_ptr_v1; // before CUDA 3.2
typedef unsigned long long cu_phys;
typedef struct cu_opaque_context *cu_context;
typedef struct cu_opaque_green *cu_green;
typedef struct cu_opaque_stream *cu_stream;
typedef struct cu_opaque_event *cu_event;
typedef struct cu_opaque_array *cu_array;
typedef struct cu_opaque_mipmap *cu_mipmap;
typedef struct cu_opaque_pool *cu_pool;
typedef struct cu_opaque_graph *cu_graph;
typedef struct cu_opaque_node *cu_node;
typedef struct cu_opaque_exec *cu_exec;
typedef struct cu_opaque_module *cu_module;
typedef struct cu_opaque_function *cu_function;
typedef struct cu_opaque_library *cu_library;
typedef struct cu_opaque_external *cu_external;

typedef struct {
    unsigned char bytes[16];
} cu_uuid;

// Streams that are constants instead of handles.
#define CU_LEGACY_STREAM ((cu_stream)(uintptr_t)1)
#define CU_THREAD_STREAM ((cu_stream)(uintptr_t)2)

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} cu_array_shape;

typedef struct {
    unsigned width, height;
    int format;
    unsigned channels;
} cu_array_shape_v1;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
} cu_array3d_shape;

typedef struct {
    unsigned width, height, depth;
    int format;
    unsigned channels;
    unsigned flags;
} cu_array3d_shape_v1;

// Flags of an array: layers and faces count as depth; sparse and deferred arrays hold nothing themselves.
enum {
    CU_ARRAY_LAYERED = 0x01,
    CU_ARRAY_CUBEMAP = 0x04,
    CU_ARRAY_SPARSE = 0x40,
    CU_ARRAY_DEFERRED = 0x80,
};

// Where memory lies.
enum { CU_LOCATION_DEVICE = 1 };
typedef struct {
    int type;
    int id;
} cu_location;

typedef struct {
    int type;
    int handle_types;
    cu_location location;
    void *win32;
    unsigned char flags[8];
} cu_phys_properties;

typedef struct {
    int type;
    int handle_types;
    cu_location location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_properties;

enum {
    CU_POOL_RESERVED = 5, // bytes that the pool holds
    CU_POOL_USED = 7,     // bytes of them that are allocated
    CU_GRAPH_USED = 0,
    CU_GRAPH_RESERVED = 2,
};

typedef struct {
    cu_pool_properties properties;
    const void *access;
    size_t access_count;
    size_t bytes;
    cu_ptr address;
} cu_graph_alloc;

enum { CU_NODE_GRAPH = 4, CU_NODE_ALLOC = 10 };

typedef struct {
    unsigned char bytes[64];
} cu_ipc_handle;

typedef struct {
    unsigned char bytes[64];
} cu_pool_pointer;

typedef struct {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *object;
    } handle;
    unsigned long long size;
    unsigned flags;
    unsigned reserved[16];
} cu_external_description;

// Memory mapped into a sparse array.
typedef struct {
    int resource_type;
    void *resource; // the array or mipmapped array
    int subresource_type;
    union {
        struct {
            unsigned level, layer, x, y, z, width, height, depth;
        } tile;
        struct {
            unsigned layer;
            unsigned long long offset, size;
        } tail;
    } subresource;
    int operation;
    int handle_type;
    cu_phys handle;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
} cu_array_map;

enum { CU_MAP = 1, CU_UNMAP = 2 };

// Limits that change what a context holds.
enum { CU_LIMIT_STACK = 0, CU_LIMIT_PRINTF = 1, CU_LIMIT_HEAP = 2 };
enum { CU_ATTRIBUTE_MULTIPROCESSORS = 16, CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39 };

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    cu_stream stream;
    void *attributes;
    unsigned attribute_count;
} cu_launch_config;

// One of several launches that belong together.
typedef struct {
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    cu_stream stream;
    void **parameters;
} cu_launch_params;

typedef struct {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    cu_ptr from_device;
    cu_array from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    cu_ptr to_device;
    cu_array to_array;
    size_t to_pitch, width, height;
} cu_copy2d;

typedef struct {
    size_t from_x, from_y, from_z, from_level;
    int from_type;
    const void *from_host;
    cu_ptr from_device;
    cu_array from_array;
    void *reserved0;
    size_t from_pitch, from_height, to_x, to_y, to_z, to_level;
    int to_type;
    void *to_host;
    cu_ptr to_device;
    cu_array to_array;
    void *reserved1;
    size_t to_pitch, to_height, width, height, depth;
} cu_copy3d;

#ifndef SLUICE_DECLARED_ELSEWHERE
// clang-format off
// Finding functions.
cu_result cuGetProcAddress(const char *, void **, int, uint64_t);
cu_result cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

// Contexts.
cu_result cuCtxCreate(cu_context *, unsigned, cu_device);
cu_result cuCtxCreate_v2(cu_context *, unsigned, cu_device);
cu_result cuCtxCreate_v3(cu_context *, void *, int, unsigned, cu_device);
cu_result cuCtxCreate_v4(cu_context *, void *, unsigned, cu_device);
cu_result cuCtxDestroy(cu_context);
cu_result cuCtxDestroy_v2(cu_context);
cu_result cuCtxDetach(cu_context);
cu_result cuDevicePrimaryCtxRetain(cu_context *, cu_device);
cu_result cuDevicePrimaryCtxRelease(cu_device);
cu_result cuDevicePrimaryCtxRelease_v2(cu_device);
cu_result cuDevicePrimaryCtxReset(cu_device);
cu_result cuDevicePrimaryCtxReset_v2(cu_device);
cu_result cuGreenCtxCreate(cu_green *, void *, cu_device, unsigned);
cu_result cuGreenCtxDestroy(cu_green);
cu_result cuCtxFromGreenCtx(cu_context *, cu_green);
cu_result cuCtxSetLimit(int, size_t);
cu_result cuCtxSynchronize(void);
cu_result cuCtxSynchronize_v2(cu_context);
cu_result cuStreamSynchronize(cu_stream);
cu_result cuStreamSynchronize_ptsz(cu_stream);
cu_result cuEventSynchronize(cu_event);

// Linear memory.
cu_result cuMemAlloc(cu_ptr_v1 *, unsigned);
cu_result cuMemAlloc_v2(cu_ptr *, size_t);
cu_result cuMemAllocPitch(cu_ptr_v1 *, unsigned *, unsigned, unsigned, unsigned);
cu_result cuMemAllocPitch_v2(cu_ptr *, size_t *, size_t, size_t, unsigned);
cu_result cuMemAllocManaged(cu_ptr *, size_t, unsigned);
cu_result cuMemFree(cu_ptr_v1);
cu_result cuMemFree_v2(cu_ptr);

// What a process is told.
cu_result cuMemGetInfo(unsigned *, unsigned *);
cu_result cuMemGetInfo_v2(size_t *, size_t *);
cu_result cuDeviceTotalMem(unsigned *, cu_device);
cu_result cuDeviceTotalMem_v2(size_t *, cu_device);

// Arrays.
cu_result cuArrayCreate(cu_array *, const cu_array_shape_v1 *);
cu_result cuArrayCreate_v2(cu_array *, const cu_array_shape *);
cu_result cuArray3DCreate(cu_array *, const cu_array3d_shape_v1 *);
cu_result cuArray3DCreate_v2(cu_array *, const cu_array3d_shape *);
cu_result cuArrayDestroy(cu_array);
cu_result cuMipmappedArrayCreate(cu_mipmap *, const cu_array3d_shape *, unsigned);
cu_result cuMipmappedArrayDestroy(cu_mipmap);

// Virtual memory management.
cu_result cuMemCreate(cu_phys *, size_t, const cu_phys_properties *, unsigned long long);
cu_result cuMemRelease(cu_phys);
cu_result cuMemMap(cu_ptr, size_t, size_t, cu_phys, unsigned long long);
cu_result cuMemUnmap(cu_ptr, size_t);
cu_result cuMemRetainAllocationHandle(cu_phys *, void *);
cu_result cuMemExportToShareableHandle(void *, cu_phys, int, unsigned long long);
cu_result cuMemImportFromShareableHandle(cu_phys *, void *, int);
cu_result cuMemMapArrayAsync(cu_array_map *, unsigned, cu_stream);
cu_result cuMemMapArrayAsync_ptsz(cu_array_map *, unsigned, cu_stream);
cu_result cuMulticastBindMem(cu_phys, size_t, cu_phys, size_t, size_t, unsigned long long);
cu_result cuMulticastBindAddr(cu_phys, size_t, cu_ptr, size_t, unsigned long long);
cu_result cuMulticastUnbind(cu_phys, cu_device, size_t, size_t);

// Stream-ordered pools.
cu_result cuMemAllocAsync(cu_ptr *, size_t, cu_stream);
cu_result cuMemAllocAsync_ptsz(cu_ptr *, size_t, cu_stream);
cu_result cuMemAllocFromPoolAsync(cu_ptr *, size_t, cu_pool, cu_stream);
cu_result cuMemAllocFromPoolAsync_ptsz(cu_ptr *, size_t, cu_pool, cu_stream);
cu_result cuMemFreeAsync(cu_ptr, cu_stream);
cu_result cuMemFreeAsync_ptsz(cu_ptr, cu_stream);
cu_result cuMemPoolCreate(cu_pool *, const cu_pool_properties *);
cu_result cuMemPoolDestroy(cu_pool);
cu_result cuMemPoolTrimTo(cu_pool, size_t);
cu_result cuMemPoolExportToShareableHandle(void *, cu_pool, int, unsigned long long);
cu_result cuMemPoolExportPointer(cu_pool_pointer *, cu_ptr);
cu_result cuMemPoolImportFromShareableHandle(cu_pool *, void *, int, unsigned long long);
cu_result cuMemPoolImportPointer(cu_ptr *, cu_pool, cu_pool_pointer *);

// Graphs.
cu_result cuGraphInstantiate(cu_exec *, cu_graph, cu_node *, char *, size_t);
cu_result cuGraphInstantiate_v2(cu_exec *, cu_graph, cu_node *, char *, size_t);
cu_result cuGraphInstantiateWithFlags(cu_exec *, cu_graph, unsigned long long);
cu_result cuGraphInstantiateWithParams(cu_exec *, cu_graph, void *);
cu_result cuGraphInstantiateWithParams_ptsz(cu_exec *, cu_graph, void *);
cu_result cuGraphExecDestroy(cu_exec);
cu_result cuGraphUpload(cu_exec, cu_stream);
cu_result cuGraphUpload_ptsz(cu_exec, cu_stream);
cu_result cuGraphLaunch(cu_exec, cu_stream);
cu_result cuGraphLaunch_ptsz(cu_exec, cu_stream);
cu_result cuDeviceGraphMemTrim(cu_device);
cu_result cuStreamBeginCapture(cu_stream);
cu_result cuStreamBeginCapture_ptsz(cu_stream);
cu_result cuStreamBeginCapture_v2(cu_stream, int);
cu_result cuStreamBeginCapture_v2_ptsz(cu_stream, int);
cu_result cuStreamBeginCaptureToGraph(cu_stream, cu_graph, const cu_node *, const void *, size_t, int);
cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream, cu_graph, const cu_node *, const void *, size_t, int);
cu_result cuStreamEndCapture(cu_stream, cu_graph *);
cu_result cuStreamEndCapture_ptsz(cu_stream, cu_graph *);

// Memory of others.
cu_result cuIpcGetMemHandle(cu_ipc_handle *, cu_ptr);
cu_result cuIpcOpenMemHandle(cu_ptr *, cu_ipc_handle, unsigned);
cu_result cuIpcOpenMemHandle_v2(cu_ptr *, cu_ipc_handle, unsigned);
cu_result cuIpcCloseMemHandle(cu_ptr);
cu_result cuImportExternalMemory(cu_external *, const cu_external_description *);
cu_result cuDestroyExternalMemory(cu_external);

// Code.
cu_result cuModuleLoad(cu_module *, const char *);
cu_result cuModuleLoadData(cu_module *, const void *);
cu_result cuModuleLoadDataEx(cu_module *, const void *, unsigned, int *, void **);
cu_result cuModuleLoadFatBinary(cu_module *, const void *);
cu_result cuModuleUnload(cu_module);
cu_result cuLibraryLoadData(cu_library *, const void *, void *, void **, unsigned, void *, void **, unsigned);
cu_result cuLibraryLoadFromFile(cu_library *, const char *, void *, void **, unsigned, void *, void **, unsigned);
cu_result cuLibraryUnload(cu_library);

// Launches.
cu_result cuLaunchKernel(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, void **, void **);
cu_result cuLaunchKernel_ptsz(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, void **, void **);
cu_result cuLaunchKernelEx(const cu_launch_config *, cu_function, void **, void **);
cu_result cuLaunchKernelEx_ptsz(const cu_launch_config *, cu_function, void **, void **);
cu_result cuLaunchCooperativeKernel(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, void **);
cu_result cuLaunchCooperativeKernel_ptsz(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, void **);
cu_result cuLaunchCooperativeKernelMultiDevice(cu_launch_params *, unsigned, unsigned);
cu_result cuLaunch(cu_function);
cu_result cuLaunchGrid(cu_function, int, int);
cu_result cuLaunchGridAsync(cu_function, int, int, cu_stream);

// Copies and fills.
cu_result cuMemcpy(cu_ptr, cu_ptr, size_t);
cu_result cuMemcpy_ptds(cu_ptr, cu_ptr, size_t);
cu_result cuMemcpyAsync(cu_ptr, cu_ptr, size_t, cu_stream);
cu_result cuMemcpyAsync_ptsz(cu_ptr, cu_ptr, size_t, cu_stream);
cu_result cuMemcpyPeer(cu_ptr, cu_context, cu_ptr, cu_context, size_t);
cu_result cuMemcpyPeer_ptds(cu_ptr, cu_context, cu_ptr, cu_context, size_t);
cu_result cuMemcpyPeerAsync(cu_ptr, cu_context, cu_ptr, cu_context, size_t, cu_stream);
cu_result cuMemcpyPeerAsync_ptsz(cu_ptr, cu_context, cu_ptr, cu_context, size_t, cu_stream);
cu_result cuMemcpyDtoD(cu_ptr_v1, cu_ptr_v1, unsigned);
cu_result cuMemcpyDtoD_v2(cu_ptr, cu_ptr, size_t);
cu_result cuMemcpyDtoD_v2_ptds(cu_ptr, cu_ptr, size_t);
cu_result cuMemcpyDtoDAsync(cu_ptr_v1, cu_ptr_v1, unsigned, cu_stream);
cu_result cuMemcpyDtoDAsync_v2(cu_ptr, cu_ptr, size_t, cu_stream);
cu_result cuMemcpyDtoDAsync_v2_ptsz(cu_ptr, cu_ptr, size_t, cu_stream);
cu_result cuMemcpyDtoA(cu_array, unsigned, cu_ptr_v1, unsigned);
cu_result cuMemcpyDtoA_v2(cu_array, size_t, cu_ptr, size_t);
cu_result cuMemcpyDtoA_v2_ptds(cu_array, size_t, cu_ptr, size_t);
cu_result cuMemcpyAtoD(cu_ptr_v1, cu_array, unsigned, unsigned);
cu_result cuMemcpyAtoD_v2(cu_ptr, cu_array, size_t, size_t);
cu_result cuMemcpyAtoD_v2_ptds(cu_ptr, cu_array, size_t, size_t);
cu_result cuMemcpyAtoA(cu_array, unsigned, cu_array, unsigned, unsigned);
cu_result cuMemcpyAtoA_v2(cu_array, size_t, cu_array, size_t, size_t);
cu_result cuMemcpyAtoA_v2_ptds(cu_array, size_t, cu_array, size_t, size_t);
cu_result cuMemcpy2D(const void *);
cu_result cuMemcpy2D_v2(const cu_copy2d *);
cu_result cuMemcpy2D_v2_ptds(const cu_copy2d *);
cu_result cuMemcpy2DUnaligned(const void *);
cu_result cuMemcpy2DUnaligned_v2(const cu_copy2d *);
cu_result cuMemcpy2DUnaligned_v2_ptds(const cu_copy2d *);
cu_result cuMemcpy2DAsync(const void *, cu_stream);
cu_result cuMemcpy2DAsync_v2(const cu_copy2d *, cu_stream);
cu_result cuMemcpy2DAsync_v2_ptsz(const cu_copy2d *, cu_stream);
cu_result cuMemcpy3D(const void *);
cu_result cuMemcpy3D_v2(const cu_copy3d *);
cu_result cuMemcpy3D_v2_ptds(const cu_copy3d *);
cu_result cuMemcpy3DAsync(const void *, cu_stream);
cu_result cuMemcpy3DAsync_v2(const cu_copy3d *, cu_stream);
cu_result cuMemcpy3DAsync_v2_ptsz(const cu_copy3d *, cu_stream);
cu_result cuMemcpy3DPeer(const void *);
cu_result cuMemcpy3DPeer_ptds(const void *);
cu_result cuMemcpy3DPeerAsync(const void *, cu_stream);
cu_result cuMemcpy3DPeerAsync_ptsz(const void *, cu_stream);
cu_result cuMemcpyBatchAsync(cu_ptr *, cu_ptr *, size_t *, size_t, void *, size_t *, size_t, size_t *, cu_stream);
cu_result cuMemcpyBatchAsync_ptsz(cu_ptr *, cu_ptr *, size_t *, size_t, void *, size_t *, size_t, size_t *, cu_stream);
cu_result cuMemcpyBatchAsync_v2(cu_ptr *, cu_ptr *, size_t *, size_t, void *, size_t *, size_t, cu_stream);
cu_result cuMemcpyBatchAsync_v2_ptsz(cu_ptr *, cu_ptr *, size_t *, size_t, void *, size_t *, size_t, cu_stream);
cu_result cuMemcpy3DBatchAsync(size_t, void *, size_t *, unsigned long long, cu_stream);
cu_result cuMemcpy3DBatchAsync_ptsz(size_t, void *, size_t *, unsigned long long, cu_stream);
cu_result cuMemcpy3DBatchAsync_v2(size_t, void *, unsigned long long, cu_stream);
cu_result cuMemcpy3DBatchAsync_v2_ptsz(size_t, void *, unsigned long long, cu_stream);
cu_result cuMemsetD8(cu_ptr_v1, unsigned char, unsigned);
cu_result cuMemsetD8_v2(cu_ptr, unsigned char, size_t);
cu_result cuMemsetD8_v2_ptds(cu_ptr, unsigned char, size_t);
cu_result cuMemsetD8Async(cu_ptr, unsigned char, size_t, cu_stream);
cu_result cuMemsetD8Async_ptsz(cu_ptr, unsigned char, size_t, cu_stream);
cu_result cuMemsetD2D8(cu_ptr_v1, unsigned, unsigned char, unsigned, unsigned);
cu_result cuMemsetD2D8_v2(cu_ptr, size_t, unsigned char, size_t, size_t);
cu_result cuMemsetD2D8_v2_ptds(cu_ptr, size_t, unsigned char, size_t, size_t);
cu_result cuMemsetD2D8Async(cu_ptr, size_t, unsigned char, size_t, size_t, cu_stream);
cu_result cuMemsetD2D8Async_ptsz(cu_ptr, size_t, unsigned char, size_t, size_t, cu_stream);
cu_result cuMemsetD16(cu_ptr_v1, unsigned short, unsigned);
cu_result cuMemsetD16_v2(cu_ptr, unsigned short, size_t);
cu_result cuMemsetD16_v2_ptds(cu_ptr, unsigned short, size_t);
cu_result cuMemsetD16Async(cu_ptr, unsigned short, size_t, cu_stream);
cu_result cuMemsetD16Async_ptsz(cu_ptr, unsigned short, size_t, cu_stream);
cu_result cuMemsetD2D16(cu_ptr_v1, unsigned, unsigned short, unsigned, unsigned);
cu_result cuMemsetD2D16_v2(cu_ptr, size_t, unsigned short, size_t, size_t);
cu_result cuMemsetD2D16_v2_ptds(cu_ptr, size_t, unsigned short, size_t, size_t);
cu_result cuMemsetD2D16Async(cu_ptr, size_t, unsigned short, size_t, size_t, cu_stream);
cu_result cuMemsetD2D16Async_ptsz(cu_ptr, size_t, unsigned short, size_t, size_t, cu_stream);
cu_result cuMemsetD32(cu_ptr_v1, unsigned, unsigned);
cu_result cuMemsetD32_v2(cu_ptr, unsigned, size_t);
cu_result cuMemsetD32_v2_ptds(cu_ptr, unsigned, size_t);
cu_result cuMemsetD32Async(cu_ptr, unsigned, size_t, cu_stream);
cu_result cuMemsetD32Async_ptsz(cu_ptr, unsigned, size_t, cu_stream);
cu_result cuMemsetD2D32(cu_ptr_v1, unsigned, unsigned, unsigned, unsigned);
cu_result cuMemsetD2D32_v2(cu_ptr, size_t, unsigned, size_t, size_t);
cu_result cuMemsetD2D32_v2_ptds(cu_ptr, size_t, unsigned, size_t, size_t);
cu_result cuMemsetD2D32Async(cu_ptr, size_t, unsigned, size_t, size_t, cu_stream);
cu_result cuMemsetD2D32Async_ptsz(cu_ptr, size_t, unsigned, size_t, size_t, cu_stream);

// Streams.
cu_result cuStreamDestroy(cu_stream);
cu_result cuStreamDestroy_v2(cu_stream);

// Only called, never replaced.
cu_result cuDeviceGetUuid(cu_uuid *, cu_device);
cu_result cuDeviceGetUuid_v2(cu_uuid *, cu_device);
cu_result cuDeviceGetAttribute(int *, int, cu_device);
cu_result cuCtxGetCurrent(cu_context *);
cu_result cuCtxSetCurrent(cu_context);
cu_result cuDeviceGetCount(int *);
cu_result cuEventCreate(cu_event *, unsigned);
cu_result cuEventDestroy_v2(cu_event);
cu_result cuEventElapsedTime(float *, cu_event, cu_event);
cu_result cuEventQuery(cu_event);
cu_result cuEventRecord(cu_event, cu_stream);
cu_result cuStreamQuery(cu_stream);
cu_result cuCtxGetDevice(cu_device *);
cu_result cuCtxGetLimit(size_t *, int);
cu_result cuDevicePrimaryCtxGetState(cu_device, unsigned *, int *);
cu_result cuStreamGetCtx(cu_stream, cu_context *);
cu_result cuStreamIsCapturing(cu_stream, int *);
cu_result cuStreamIsCapturing_ptsz(cu_stream, int *);
cu_result cuThreadExchangeStreamCaptureMode(int *);
cu_result cuMemGetAddressRange_v2(cu_ptr *, size_t *, cu_ptr);
cu_result cuMemGetAllocationPropertiesFromHandle(cu_phys_properties *, cu_phys);
cu_result cuDeviceGetMemPool(cu_pool *, cu_device);
cu_result cuDeviceGetDefaultMemPool(cu_pool *, cu_device);
cu_result cuMemPoolGetAttribute(cu_pool, int, void *);
cu_result cuDeviceGetGraphMemAttribute(cu_device, int, void *);
cu_result cuGraphGetNodes(cu_graph, cu_node *, size_t *);
cu_result cuGraphNodeGetType(cu_node, int *);
cu_result cuGraphMemAllocNodeGetParams(cu_node, cu_graph_alloc *);
cu_result cuGraphChildGraphNodeGetGraph(cu_node, cu_graph *);
cu_result cuPointerGetAttribute(void *, int, cu_ptr);
// clang-format on
#endif

#endif // SLUICE_CUDA_ABI_H

// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's binary interface that is implemented here, under own names.
#ifndef FAKEGPU_CUDA_ABI_H
#define FAKEGPU_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#define CU_API __attribute__((visibility("default")))

typedef int cu_result;
enum {
    CU_SUCCESS = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_OPERATING_SYSTEM = 304,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_CONTEXT_ALREADY_IN_USE = 216,
    CU_FILE_NOT_FOUND = 301,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_DRIVER_MISMATCH = 803,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_INVALIDATED = 901,
    CU_CAPTURE_UNMATCHED = 903,
    CU_CAPTURE_IMPLICIT = 906,
    CU_CAPTURED_EVENT = 907,
    CU_CAPTURE_WRONG_THREAD = 908,
    CU_UNKNOWN = 999,
};

typedef int cu_device;
typedef unsigned long long cu_pointer;
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;

typedef struct cu_pool_st *cu_pool;
typedef struct cu_array_st *cu_array;
typedef struct cu_mipmap_st *cu_mipmap;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_node_st *cu_node;
typedef struct cu_exec_st *cu_exec;
typedef struct cu_external_st *cu_external;
typedef struct cu_green_st *cu_green;
typedef struct cu_library_st *cu_library;
typedef unsigned long long cu_physical; // the handle of a physical allocation

typedef struct {
    char bytes[16];
} cu_uuid;

enum { CU_LOCATION_DEVICE = 1, CU_LOCATION_HOST = 2, CU_LOCATION_HOST_NUMA = 3, CU_LOCATION_HOST_NUMA_CURRENT = 4 };
typedef struct {
    int type, id;
} cu_location;

typedef struct {
    cu_location location;
    int flags;
} cu_access;

enum { CU_ALLOCATION_PINNED = 1, CU_HANDLE_FD = 1 };
typedef struct {
    int type, handle_types;
    cu_location location;
    void *windows;
    unsigned char flags[8];
} cu_physical_properties;

typedef struct {
    int type, handle_types;
    cu_location location;
    void *windows;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_properties;

typedef struct {
    cu_pool_properties properties;
    const cu_access *access;
    size_t access_count;
    size_t size;
    cu_pointer pointer; // out
} cu_alloc_node;

typedef struct {
    char bytes[64];
} cu_ipc_handle;

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} cu_array_descriptor;

typedef struct {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} cu_array3d_descriptor;

typedef struct {
    int type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } windows;
    } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} cu_external_descriptor;

typedef struct {
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} cu_external_buffer;

typedef struct {
    unsigned long long offset;
    cu_array3d_descriptor array;
    unsigned levels, reserved[16];
} cu_external_mipmap;

typedef struct {
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameters, **extra;
} cu_kernel_node;

typedef struct {
    cu_kernel_node first;
    cu_function kernel;
    cu_context context;
} cu_kernel_node_v2;

enum { CU_NODE_KERNEL = 0, CU_NODE_GRAPH = 4, CU_NODE_EMPTY = 5, CU_NODE_ALLOC = 10, CU_NODE_FREE = 11 };
typedef struct {
    int type, reserved0[3];
    union {
        long long padding[29];
        cu_kernel_node_v2 kernel;
        cu_graph graph;
        cu_alloc_node alloc;
        cu_pointer free;
    };
    long long reserved2;
} cu_node_parameters;

// One side of a copy of rows.
typedef struct {
    int memory; // host, device, array, or unified: whatever lies there
    void *host;
    cu_pointer device;
    cu_array array;
    size_t pitch;
} cu_copy_side;

typedef struct {
    size_t from_x, from_y;
    cu_copy_side from;
    size_t to_x, to_y;
    cu_copy_side to;
    size_t width, height;
} cu_copy_2d;

typedef struct {
    size_t x, y, z, level;
    int memory;
    void *host;
    cu_pointer device;
    cu_array array;
    cu_context context; // of a copy between contexts
    size_t pitch, height;
} cu_copy_side_3d;

typedef struct {
    cu_copy_side_3d from, to;
    size_t width, height, depth;
} cu_copy_3d;

typedef struct {
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    cu_stream stream;
    void **parameters;
} cu_launch_parameters;

// The two streams that are constants instead of handles.
#define CU_STREAM_LEGACY ((cu_stream)(uintptr_t)1)
#define CU_STREAM_PER_THREAD ((cu_stream)(uintptr_t)2)

// cuLaunchKernel's second way to hand over arguments.
#define CU_LAUNCH_PARAM_END ((void *)(uintptr_t)0)
#define CU_LAUNCH_PARAM_BUFFER ((void *)(uintptr_t)1)
#define CU_LAUNCH_PARAM_SIZE ((void *)(uintptr_t)2)

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    cu_stream stream;
    void *attributes;
    unsigned attribute_count;
} cu_launch_config;

#endif

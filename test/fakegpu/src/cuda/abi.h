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
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_DRIVER_MISMATCH = 803,
    CU_UNKNOWN = 999,
};

typedef int cu_device;
typedef unsigned long long cu_pointer;
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;

typedef struct {
    char bytes[16];
} cu_uuid;

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

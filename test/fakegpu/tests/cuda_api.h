// SPDX-License-Identifier: Apache-2.0
// Declarations of the CUDA functions that the tests call.
#ifndef FAKEGPU_TESTS_CUDA_API_H
#define FAKEGPU_TESTS_CUDA_API_H

#include "cuda/abi.h"

cu_result cuInit(unsigned flags);
cu_result cuDriverGetVersion(int *version);
cu_result cuDeviceGetCount(int *count);
cu_result cuDeviceGet(cu_device *device, int ordinal);
cu_result cuDeviceGetName(char *name, int length, cu_device device);
cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device);
cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device);
cu_result cuDeviceGetAttribute(int *value, int id, cu_device device);
cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
cu_result cuDevicePrimaryCtxRelease_v2(cu_device device);
cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device);
cu_result cuCtxDestroy_v2(cu_context context);
cu_result cuCtxSetCurrent(cu_context context);
cu_result cuCtxGetCurrent(cu_context *context);
cu_result cuCtxPushCurrent_v2(cu_context context);
cu_result cuCtxPopCurrent_v2(cu_context *context);
cu_result cuCtxSynchronize(void);
cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t size);
cu_result cuMemFree_v2(cu_pointer pointer);
cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t size);
cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t size);
cu_result cuMemcpyDtoD_v2(cu_pointer to, cu_pointer from, size_t size);
cu_result cuMemsetD8_v2(cu_pointer to, unsigned char value, size_t count);
cu_result cuMemsetD32_v2(cu_pointer to, unsigned value, size_t count);
cu_result cuStreamCreate(cu_stream *stream, unsigned flags);
cu_result cuStreamDestroy_v2(cu_stream stream);
cu_result cuStreamSynchronize(cu_stream stream);
cu_result cuStreamQuery(cu_stream stream);
cu_result cuEventCreate(cu_event *event, unsigned flags);
cu_result cuEventDestroy_v2(cu_event event);
cu_result cuEventRecord(cu_event event, cu_stream stream);
cu_result cuEventSynchronize(cu_event event);
cu_result cuEventQuery(cu_event event);
cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags);
cu_result cuThreadExchangeStreamCaptureMode(int *mode);
cu_result cuEventElapsedTime(float *milliseconds, cu_event start, cu_event end);
cu_result cuModuleLoadData(cu_module *module, const void *image);
cu_result cuModuleUnload(cu_module module);
cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name);
cu_result cuLaunchKernel(cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                         unsigned bz, unsigned shared, cu_stream stream, void **parameters, void **extra);
cu_result cuLaunchKernel_ptsz(cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, cu_stream stream, void **parameters, void **extra);
cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status);
cu_result cuGetErrorName(cu_result code, const char **name);

#endif

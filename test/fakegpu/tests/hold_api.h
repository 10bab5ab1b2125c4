// SPDX-License-Identifier: Apache-2.0
// Declarations of the CUDA functions by which memory is held, beyond those of cuda_api.h.
#ifndef FAKEGPU_TESTS_HOLD_API_H
#define FAKEGPU_TESTS_HOLD_API_H

#include "cuda_api.h"

cu_result cuMemCreate(cu_physical *handle, size_t size, const cu_physical_properties *properties, unsigned long long flags);
cu_result cuMemRelease(cu_physical handle);
cu_result cuMemMap(cu_pointer at, size_t size, size_t offset, cu_physical handle, unsigned long long flags);
cu_result cuMemUnmap(cu_pointer at, size_t size);
cu_result cuMemAddressReserve(cu_pointer *pointer, size_t size, size_t alignment, cu_pointer wanted, unsigned long long flags);
cu_result cuMemAddressFree(cu_pointer at, size_t size);
cu_result cuMemRetainAllocationHandle(cu_physical *handle, void *address);
cu_result cuMemExportToShareableHandle(void *out, cu_physical handle, int type, unsigned long long flags);
cu_result cuMemImportFromShareableHandle(cu_physical *handle, void *descriptor, int type);
cu_result cuMemPoolGetAttribute(cu_pool pool, int attribute, void *value);
cu_result cuMemPoolSetAttribute(cu_pool pool, int attribute, void *value);
cu_result cuMemPoolCreate(cu_pool *pool, const cu_pool_properties *properties);
cu_result cuMemPoolDestroy(cu_pool pool);
cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep);
cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device);
cu_result cuMemAllocAsync(cu_pointer *pointer, size_t size, cu_stream handle);
cu_result cuMemAllocFromPoolAsync(cu_pointer *pointer, size_t size, cu_pool pool, cu_stream handle);
cu_result cuMemFreeAsync(cu_pointer pointer, cu_stream handle);
cu_result cuGraphCreate(cu_graph *graph, unsigned flags);
cu_result cuGraphDestroy(cu_graph graph);
cu_result cuGraphAddMemAllocNode(cu_node *node, cu_graph graph, const cu_node *after, size_t count, cu_alloc_node *parameters);
cu_result cuGraphInstantiateWithFlags(cu_exec *exec, cu_graph graph, unsigned long long flags);
cu_result cuGraphUpload(cu_exec exec, cu_stream stream);
cu_result cuGraphLaunch(cu_exec exec, cu_stream stream);
cu_result cuGraphExecDestroy(cu_exec exec);
cu_result cuDeviceGraphMemTrim(cu_device index);
cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode);
cu_result cuStreamEndCapture(cu_stream handle, cu_graph *graph);
cu_result cuStreamIsCapturing(cu_stream handle, int *status);
cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_descriptor *descriptor);
cu_result cuArrayDestroy(cu_array array);
cu_result cuMipmappedArrayCreate(cu_mipmap *mipmap, const cu_array3d_descriptor *descriptor, unsigned levels);
cu_result cuMipmappedArrayDestroy(cu_mipmap mipmap);
cu_result cuMemAllocManaged(cu_pointer *pointer, size_t size, unsigned flags);
cu_result cuMemPrefetchAsync(cu_pointer pointer, size_t size, cu_device device, cu_stream stream);
cu_result cuCtxSetLimit(int limit, size_t value);
cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_pointer pointer);
cu_result cuIpcOpenMemHandle_v2(cu_pointer *pointer, cu_ipc_handle handle, unsigned flags);
cu_result cuIpcCloseMemHandle(cu_pointer pointer);

cu_result cuMemcpyDtoDAsync_v2(cu_pointer to, cu_pointer from, size_t size, cu_stream stream);
cu_result cuMemcpyHtoDAsync_v2(cu_pointer to, const void *from, size_t size, cu_stream stream);
cu_result cuMemsetD8Async(cu_pointer to, unsigned char value, size_t count, cu_stream stream);
cu_result cuMemsetD2D32_v2(cu_pointer to, size_t pitch, unsigned value, size_t width, size_t height);
cu_result cuMemcpy2D_v2(const cu_copy_2d *copy);
cu_result cuMemcpy(cu_pointer to, cu_pointer from, size_t size);
cu_result cuLaunchCooperativeKernelMultiDevice(cu_launch_parameters *list, unsigned count, unsigned flags);
cu_result cuFuncSetBlockShape(cu_function function, int x, int y, int z);
cu_result cuParamSetSize(cu_function function, unsigned bytes);
cu_result cuParamSetv(cu_function function, int offset, const void *value, unsigned bytes);
cu_result cuLaunchGrid(cu_function function, int width, int height);

#endif

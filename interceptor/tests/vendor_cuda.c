// SPDX-License-Identifier: Apache-2.0
//
// Compares src/cuda_abi.h with the vendor's cuda.h: sizes, offsets and values. Compiled, never run. Our prototypes stay out,
// because both headers declare the same functions.

#include <cuda.h>

#define SLUICE_DECLARED_ELSEWHERE
#include "cuda_abi.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours " has another size than " #theirs)
#define SAME_PLACE(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field " lies elsewhere")
#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)

SAME_SIZE(cu_result, CUresult);
SAME_SIZE(cu_device, CUdevice);
SAME_SIZE(cu_ptr, CUdeviceptr);
SAME_SIZE(cu_phys, CUmemGenericAllocationHandle);
SAME_SIZE(cu_uuid, CUuuid);
SAME_SIZE(cu_array_shape, CUDA_ARRAY_DESCRIPTOR);
SAME_PLACE(cu_array_shape, format, CUDA_ARRAY_DESCRIPTOR, Format);
SAME_PLACE(cu_array_shape, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(cu_array3d_shape, CUDA_ARRAY3D_DESCRIPTOR);
SAME_PLACE(cu_array3d_shape, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_PLACE(cu_array3d_shape, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(cu_location, CUmemLocation);
SAME_SIZE(cu_phys_properties, CUmemAllocationProp);
SAME_PLACE(cu_phys_properties, location, CUmemAllocationProp, location);
SAME_SIZE(cu_pool_properties, CUmemPoolProps);
SAME_PLACE(cu_pool_properties, location, CUmemPoolProps, location);
SAME_SIZE(cu_graph_alloc, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_PLACE(cu_graph_alloc, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_PLACE(cu_graph_alloc, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
SAME_SIZE(cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(cu_pool_pointer, CUmemPoolPtrExportData);
SAME_SIZE(cu_array_map, CUarrayMapInfo);
SAME_PLACE(cu_array_map, resource, CUarrayMapInfo, resource);
SAME_PLACE(cu_array_map, subresource, CUarrayMapInfo, subresource);
SAME_PLACE(cu_array_map, operation, CUarrayMapInfo, memOperationType);
SAME_PLACE(cu_array_map, handle, CUarrayMapInfo, memHandle);
SAME_SIZE(cu_launch_config, CUlaunchConfig);
SAME_PLACE(cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_SIZE(cu_launch_params, CUDA_LAUNCH_PARAMS);
SAME_PLACE(cu_launch_params, stream, CUDA_LAUNCH_PARAMS, hStream);
SAME_SIZE(cu_copy2d, CUDA_MEMCPY2D);
SAME_PLACE(cu_copy2d, from_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_PLACE(cu_copy2d, to_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_PLACE(cu_copy2d, width, CUDA_MEMCPY2D, WidthInBytes);
SAME_SIZE(cu_copy3d, CUDA_MEMCPY3D);
SAME_PLACE(cu_copy3d, from_type, CUDA_MEMCPY3D, srcMemoryType);
SAME_PLACE(cu_copy3d, to_type, CUDA_MEMCPY3D, dstMemoryType);
SAME_PLACE(cu_copy3d, width, CUDA_MEMCPY3D, WidthInBytes);
SAME_SIZE(cu_external_description, CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
SAME_PLACE(cu_external_description, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);

SAME_VALUE(CU_OK, CUDA_SUCCESS);
SAME_VALUE(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CU_SYMBOL_NOT_FOUND, CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND);
SAME_VALUE(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_VALUE(CU_ARRAY_LAYERED, CUDA_ARRAY3D_LAYERED);
SAME_VALUE(CU_ARRAY_CUBEMAP, CUDA_ARRAY3D_CUBEMAP);
SAME_VALUE(CU_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE);
SAME_VALUE(CU_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING);
SAME_VALUE(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(CU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(CU_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
SAME_VALUE(CU_GRAPH_USED, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
SAME_VALUE(CU_GRAPH_RESERVED, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME_VALUE(CU_NODE_GRAPH, CU_GRAPH_NODE_TYPE_GRAPH);
SAME_VALUE(CU_NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME_VALUE(CU_MAP, CU_MEM_OPERATION_TYPE_MAP);
SAME_VALUE(CU_UNMAP, CU_MEM_OPERATION_TYPE_UNMAP);
SAME_VALUE(CU_LIMIT_STACK, CU_LIMIT_STACK_SIZE);
SAME_VALUE(CU_LIMIT_PRINTF, CU_LIMIT_PRINTF_FIFO_SIZE);
SAME_VALUE(CU_LIMIT_HEAP, CU_LIMIT_MALLOC_HEAP_SIZE);
SAME_VALUE(CU_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);

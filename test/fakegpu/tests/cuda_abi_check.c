// SPDX-License-Identifier: Apache-2.0
// Compiled only: the declarations of cuda/abi.h agree with the vendor's header.
#include <cuda.h>
#include <stddef.h>

// The same in both, written in another way.
#undef CU_STREAM_LEGACY
#undef CU_STREAM_PER_THREAD
#undef CU_LAUNCH_PARAM_END
#include "cuda/abi.h"

#define SAME_SIZE(own, theirs) _Static_assert(sizeof(own) == sizeof(theirs), #own " has another size")
#define SAME_PLACE(own, field, theirs, their_field) \
    _Static_assert(offsetof(own, field) == offsetof(theirs, their_field), #own "." #field " lies elsewhere")
#define SAME_CODE(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own " is another code")

SAME_SIZE(cu_location, CUmemLocation);
SAME_SIZE(cu_access, CUmemAccessDesc);
SAME_SIZE(cu_physical_properties, CUmemAllocationProp);
SAME_PLACE(cu_physical_properties, location, CUmemAllocationProp, location);
SAME_SIZE(cu_pool_properties, CUmemPoolProps);
SAME_PLACE(cu_pool_properties, max_size, CUmemPoolProps, maxSize);
SAME_SIZE(cu_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS_v1);
SAME_PLACE(cu_alloc_node, size, CUDA_MEM_ALLOC_NODE_PARAMS_v1, bytesize);
SAME_PLACE(cu_alloc_node, pointer, CUDA_MEM_ALLOC_NODE_PARAMS_v1, dptr);
SAME_SIZE(cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(cu_array_descriptor, CUDA_ARRAY_DESCRIPTOR);
SAME_SIZE(cu_array3d_descriptor, CUDA_ARRAY3D_DESCRIPTOR);
SAME_PLACE(cu_array3d_descriptor, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(cu_external_descriptor, CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
SAME_PLACE(cu_external_descriptor, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
SAME_SIZE(cu_external_buffer, CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
SAME_SIZE(cu_external_mipmap, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC);
SAME_PLACE(cu_external_mipmap, levels, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, numLevels);
SAME_SIZE(cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v1);
SAME_SIZE(cu_kernel_node_v2, CUDA_KERNEL_NODE_PARAMS_v2);
SAME_PLACE(cu_kernel_node, parameters, CUDA_KERNEL_NODE_PARAMS_v1, kernelParams);
SAME_SIZE(cu_node_parameters, CUgraphNodeParams);
SAME_PLACE(cu_node_parameters, alloc, CUgraphNodeParams, alloc);
SAME_SIZE(cu_launch_config, CUlaunchConfig);
SAME_PLACE(cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_SIZE(cu_copy_2d, CUDA_MEMCPY2D_v2);
SAME_PLACE(cu_copy_2d, from.memory, CUDA_MEMCPY2D_v2, srcMemoryType);
SAME_PLACE(cu_copy_2d, to.pitch, CUDA_MEMCPY2D_v2, dstPitch);
SAME_SIZE(cu_copy_3d, CUDA_MEMCPY3D_v2);
SAME_SIZE(cu_copy_3d, CUDA_MEMCPY3D_PEER_v1);
SAME_PLACE(cu_copy_3d, to.memory, CUDA_MEMCPY3D_v2, dstMemoryType);
SAME_PLACE(cu_copy_3d, from.height, CUDA_MEMCPY3D_PEER_v1, srcHeight);
SAME_SIZE(cu_launch_parameters, CUDA_LAUNCH_PARAMS_v1);
SAME_PLACE(cu_launch_parameters, parameters, CUDA_LAUNCH_PARAMS_v1, kernelParams);
SAME_SIZE(cu_uuid, CUuuid);
SAME_CODE(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_CODE(CU_CONTEXT_ALREADY_IN_USE, CUDA_ERROR_CONTEXT_ALREADY_IN_USE);
SAME_CODE(CU_FILE_NOT_FOUND, CUDA_ERROR_FILE_NOT_FOUND);
SAME_CODE(CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_CODE(CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_CODE(CU_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SAME_CODE(CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME_CODE(CU_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME_CODE(CU_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT);
SAME_CODE(CU_NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME_CODE(CU_NODE_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE);
SAME_CODE(CU_NODE_GRAPH, CU_GRAPH_NODE_TYPE_GRAPH);
SAME_CODE(CU_NODE_EMPTY, CU_GRAPH_NODE_TYPE_EMPTY);

// SPDX-License-Identifier: Apache-2.0
//
// Copies within a device and between devices. Those between host and device that say so are the copy engines' work and pass.

#include "paced.h"
#include "work.h"

PACED(cuMemcpy, WORK(COPY, bytes), NULL, false, (cu_ptr to, cu_ptr from, size_t bytes),
      (to, from, bytes))
PACED(cuMemcpy_ptds, WORK(COPY, bytes), NULL, true, (cu_ptr to, cu_ptr from, size_t bytes),
      (to, from, bytes))
PACED(cuMemcpyAsync, WORK(COPY, bytes), stream, false, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream),
      (to, from, bytes, stream))
PACED(cuMemcpyAsync_ptsz, WORK(COPY, bytes), stream, true, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream),
      (to, from, bytes, stream))
PACED(cuMemcpyPeer, WORK(COPY_PEER, bytes), NULL, false, (cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes),
      (to, to_context, from, from_context, bytes))
PACED(cuMemcpyPeer_ptds, WORK(COPY_PEER, bytes), NULL, true, (cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes),
      (to, to_context, from, from_context, bytes))
PACED(cuMemcpyPeerAsync, WORK(COPY_PEER, bytes), stream, false, (cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream stream),
      (to, to_context, from, from_context, bytes, stream))
PACED(cuMemcpyPeerAsync_ptsz, WORK(COPY_PEER, bytes), stream, true, (cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream stream),
      (to, to_context, from, from_context, bytes, stream))
PACED(cuMemcpyDtoD, WORK(COPY, bytes), NULL, false, (cu_ptr_v1 to, cu_ptr_v1 from, unsigned bytes),
      (to, from, bytes))
PACED(cuMemcpyDtoD_v2, WORK(COPY, bytes), NULL, false, (cu_ptr to, cu_ptr from, size_t bytes),
      (to, from, bytes))
PACED(cuMemcpyDtoD_v2_ptds, WORK(COPY, bytes), NULL, true, (cu_ptr to, cu_ptr from, size_t bytes),
      (to, from, bytes))
PACED(cuMemcpyDtoDAsync, WORK(COPY, bytes), stream, false, (cu_ptr_v1 to, cu_ptr_v1 from, unsigned bytes, cu_stream stream),
      (to, from, bytes, stream))
PACED(cuMemcpyDtoDAsync_v2, WORK(COPY, bytes), stream, false, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream),
      (to, from, bytes, stream))
PACED(cuMemcpyDtoDAsync_v2_ptsz, WORK(COPY, bytes), stream, true, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream),
      (to, from, bytes, stream))
PACED(cuMemcpyDtoA, WORK(COPY_ARRAY, bytes), NULL, false, (cu_array to, unsigned at, cu_ptr_v1 from, unsigned bytes),
      (to, at, from, bytes))
PACED(cuMemcpyDtoA_v2, WORK(COPY_ARRAY, bytes), NULL, false, (cu_array to, size_t at, cu_ptr from, size_t bytes),
      (to, at, from, bytes))
PACED(cuMemcpyDtoA_v2_ptds, WORK(COPY_ARRAY, bytes), NULL, true, (cu_array to, size_t at, cu_ptr from, size_t bytes),
      (to, at, from, bytes))
PACED(cuMemcpyAtoD, WORK(COPY_ARRAY, bytes), NULL, false, (cu_ptr_v1 to, cu_array from, unsigned at, unsigned bytes),
      (to, from, at, bytes))
PACED(cuMemcpyAtoD_v2, WORK(COPY_ARRAY, bytes), NULL, false, (cu_ptr to, cu_array from, size_t at, size_t bytes),
      (to, from, at, bytes))
PACED(cuMemcpyAtoD_v2_ptds, WORK(COPY_ARRAY, bytes), NULL, true, (cu_ptr to, cu_array from, size_t at, size_t bytes),
      (to, from, at, bytes))
PACED(cuMemcpyAtoA, WORK(COPY_ARRAY, bytes), NULL, false, (cu_array to, unsigned to_at, cu_array from, unsigned at, unsigned bytes),
      (to, to_at, from, at, bytes))
PACED(cuMemcpyAtoA_v2, WORK(COPY_ARRAY, bytes), NULL, false, (cu_array to, size_t to_at, cu_array from, size_t at, size_t bytes),
      (to, to_at, from, at, bytes))
PACED(cuMemcpyAtoA_v2_ptds, WORK(COPY_ARRAY, bytes), NULL, true, (cu_array to, size_t to_at, cu_array from, size_t at, size_t bytes),
      (to, to_at, from, at, bytes))

// SPDX-License-Identifier: Apache-2.0
//
// Copies of rectangles and boxes, and many copies at once. What names host memory is the copy engines' work and passes.

#include "paced.h"
#include "work.h"

enum { HOST = 1 };

static bool with_host2d(const cu_copy2d *copy) { return copy != NULL && (copy->from_type == HOST || copy->to_type == HOST); }
static bool with_host3d(const cu_copy3d *copy) { return copy != NULL && (copy->from_type == HOST || copy->to_type == HOST); }
static uint64_t bytes2d(const cu_copy2d *copy) { return copy == NULL ? 0 : copy->width * copy->height; }
static uint64_t bytes3d(const cu_copy3d *copy) { return copy == NULL ? 0 : copy->width * copy->height * copy->depth; }

PACED(cuMemcpy2D, WORK(COPY_2D, 0), NULL, false, (const void *copy),
      (copy))
PACED_UNLESS(cuMemcpy2D_v2, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), NULL, false, (const cu_copy2d *copy),
      (copy))
PACED_UNLESS(cuMemcpy2D_v2_ptds, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), NULL, true, (const cu_copy2d *copy),
      (copy))
PACED(cuMemcpy2DUnaligned, WORK(COPY_2D, 0), NULL, false, (const void *copy),
      (copy))
PACED_UNLESS(cuMemcpy2DUnaligned_v2, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), NULL, false, (const cu_copy2d *copy),
      (copy))
PACED_UNLESS(cuMemcpy2DUnaligned_v2_ptds, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), NULL, true, (const cu_copy2d *copy),
      (copy))
PACED(cuMemcpy2DAsync, WORK(COPY_2D, 0), stream, false, (const void *copy, cu_stream stream),
      (copy, stream))
PACED_UNLESS(cuMemcpy2DAsync_v2, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), stream, false, (const cu_copy2d *copy, cu_stream stream),
      (copy, stream))
PACED_UNLESS(cuMemcpy2DAsync_v2_ptsz, with_host2d(copy), WORK(COPY_2D, bytes2d(copy)), stream, true, (const cu_copy2d *copy, cu_stream stream),
      (copy, stream))
PACED(cuMemcpy3D, WORK(COPY_3D, 0), NULL, false, (const void *copy),
      (copy))
PACED_UNLESS(cuMemcpy3D_v2, with_host3d(copy), WORK(COPY_3D, bytes3d(copy)), NULL, false, (const cu_copy3d *copy),
      (copy))
PACED_UNLESS(cuMemcpy3D_v2_ptds, with_host3d(copy), WORK(COPY_3D, bytes3d(copy)), NULL, true, (const cu_copy3d *copy),
      (copy))
PACED(cuMemcpy3DAsync, WORK(COPY_3D, 0), stream, false, (const void *copy, cu_stream stream),
      (copy, stream))
PACED_UNLESS(cuMemcpy3DAsync_v2, with_host3d(copy), WORK(COPY_3D, bytes3d(copy)), stream, false, (const cu_copy3d *copy, cu_stream stream),
      (copy, stream))
PACED_UNLESS(cuMemcpy3DAsync_v2_ptsz, with_host3d(copy), WORK(COPY_3D, bytes3d(copy)), stream, true, (const cu_copy3d *copy, cu_stream stream),
      (copy, stream))
PACED(cuMemcpy3DPeer, WORK(COPY_PEER, 0), NULL, false, (const void *copy),
      (copy))
PACED(cuMemcpy3DPeer_ptds, WORK(COPY_PEER, 0), NULL, true, (const void *copy),
      (copy))
PACED(cuMemcpy3DPeerAsync, WORK(COPY_PEER, 0), stream, false, (const void *copy, cu_stream stream),
      (copy, stream))
PACED(cuMemcpy3DPeerAsync_ptsz, WORK(COPY_PEER, 0), stream, true, (const void *copy, cu_stream stream),
      (copy, stream))
PACED(cuMemcpyBatchAsync, WORK(COPY_BATCH, count), stream, false, (cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, size_t *failed, cu_stream stream),
      (to, from, sizes, count, attributes, indices, attribute_count, failed, stream))
PACED(cuMemcpyBatchAsync_ptsz, WORK(COPY_BATCH, count), stream, true, (cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, size_t *failed, cu_stream stream),
      (to, from, sizes, count, attributes, indices, attribute_count, failed, stream))
PACED(cuMemcpyBatchAsync_v2, WORK(COPY_BATCH, count), stream, false, (cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, cu_stream stream),
      (to, from, sizes, count, attributes, indices, attribute_count, stream))
PACED(cuMemcpyBatchAsync_v2_ptsz, WORK(COPY_BATCH, count), stream, true, (cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, cu_stream stream),
      (to, from, sizes, count, attributes, indices, attribute_count, stream))
PACED(cuMemcpy3DBatchAsync, WORK(COPY_BATCH, count), stream, false, (size_t count, void *copies, size_t *failed, unsigned long long flags, cu_stream stream),
      (count, copies, failed, flags, stream))
PACED(cuMemcpy3DBatchAsync_ptsz, WORK(COPY_BATCH, count), stream, true, (size_t count, void *copies, size_t *failed, unsigned long long flags, cu_stream stream),
      (count, copies, failed, flags, stream))
PACED(cuMemcpy3DBatchAsync_v2, WORK(COPY_BATCH, count), stream, false, (size_t count, void *copies, unsigned long long flags, cu_stream stream),
      (count, copies, flags, stream))
PACED(cuMemcpy3DBatchAsync_v2_ptsz, WORK(COPY_BATCH, count), stream, true, (size_t count, void *copies, unsigned long long flags, cu_stream stream),
      (count, copies, flags, stream))

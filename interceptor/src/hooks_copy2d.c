// SPDX-License-Identifier: Apache-2.0
//
// Copies of rectangles and boxes, and many copies at once. What names host memory is the copy engines' work and passes.

#include "export.h"
#include "paced.h"
#include "work.h"

enum { HOST = 1 };

static bool with_host2d(const cu_copy2d *copy) { return copy != NULL && (copy->from_type == HOST || copy->to_type == HOST); }
static bool with_host3d(const cu_copy3d *copy) { return copy != NULL && (copy->from_type == HOST || copy->to_type == HOST); }

EXPORT cu_result cuMemcpy2D(const void *copy) {
    DRIVER(cuMemcpy2D);
    PACED(WORK(COPY_2D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy2D_v2(const cu_copy2d *copy) {
    DRIVER(cuMemcpy2D_v2);
    if (with_host2d(copy)) return real(copy);
    PACED(WORK(COPY_2D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy2D_v2_ptds(const cu_copy2d *copy) {
    DRIVER(cuMemcpy2D_v2_ptds);
    if (with_host2d(copy)) return real(copy);
    PACED(WORK(COPY_2D, 0), NULL, true, real(copy));
}

EXPORT cu_result cuMemcpy2DUnaligned(const void *copy) {
    DRIVER(cuMemcpy2DUnaligned);
    PACED(WORK(COPY_2D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy2DUnaligned_v2(const cu_copy2d *copy) {
    DRIVER(cuMemcpy2DUnaligned_v2);
    if (with_host2d(copy)) return real(copy);
    PACED(WORK(COPY_2D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy2DUnaligned_v2_ptds(const cu_copy2d *copy) {
    DRIVER(cuMemcpy2DUnaligned_v2_ptds);
    if (with_host2d(copy)) return real(copy);
    PACED(WORK(COPY_2D, 0), NULL, true, real(copy));
}

EXPORT cu_result cuMemcpy2DAsync(const void *copy, cu_stream stream) {
    DRIVER(cuMemcpy2DAsync);
    PACED(WORK(COPY_2D, 0), stream, false, real(copy, stream));
}

EXPORT cu_result cuMemcpy2DAsync_v2(const cu_copy2d *copy, cu_stream stream) {
    DRIVER(cuMemcpy2DAsync_v2);
    if (with_host2d(copy)) return real(copy, stream);
    PACED(WORK(COPY_2D, 0), stream, false, real(copy, stream));
}

EXPORT cu_result cuMemcpy2DAsync_v2_ptsz(const cu_copy2d *copy, cu_stream stream) {
    DRIVER(cuMemcpy2DAsync_v2_ptsz);
    if (with_host2d(copy)) return real(copy, stream);
    PACED(WORK(COPY_2D, 0), stream, true, real(copy, stream));
}

EXPORT cu_result cuMemcpy3D(const void *copy) {
    DRIVER(cuMemcpy3D);
    PACED(WORK(COPY_3D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy3D_v2(const cu_copy3d *copy) {
    DRIVER(cuMemcpy3D_v2);
    if (with_host3d(copy)) return real(copy);
    PACED(WORK(COPY_3D, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy3D_v2_ptds(const cu_copy3d *copy) {
    DRIVER(cuMemcpy3D_v2_ptds);
    if (with_host3d(copy)) return real(copy);
    PACED(WORK(COPY_3D, 0), NULL, true, real(copy));
}

EXPORT cu_result cuMemcpy3DAsync(const void *copy, cu_stream stream) {
    DRIVER(cuMemcpy3DAsync);
    PACED(WORK(COPY_3D, 0), stream, false, real(copy, stream));
}

EXPORT cu_result cuMemcpy3DAsync_v2(const cu_copy3d *copy, cu_stream stream) {
    DRIVER(cuMemcpy3DAsync_v2);
    if (with_host3d(copy)) return real(copy, stream);
    PACED(WORK(COPY_3D, 0), stream, false, real(copy, stream));
}

EXPORT cu_result cuMemcpy3DAsync_v2_ptsz(const cu_copy3d *copy, cu_stream stream) {
    DRIVER(cuMemcpy3DAsync_v2_ptsz);
    if (with_host3d(copy)) return real(copy, stream);
    PACED(WORK(COPY_3D, 0), stream, true, real(copy, stream));
}

EXPORT cu_result cuMemcpy3DPeer(const void *copy) {
    DRIVER(cuMemcpy3DPeer);
    PACED(WORK(COPY_PEER, 0), NULL, false, real(copy));
}

EXPORT cu_result cuMemcpy3DPeer_ptds(const void *copy) {
    DRIVER(cuMemcpy3DPeer_ptds);
    PACED(WORK(COPY_PEER, 0), NULL, true, real(copy));
}

EXPORT cu_result cuMemcpy3DPeerAsync(const void *copy, cu_stream stream) {
    DRIVER(cuMemcpy3DPeerAsync);
    PACED(WORK(COPY_PEER, 0), stream, false, real(copy, stream));
}

EXPORT cu_result cuMemcpy3DPeerAsync_ptsz(const void *copy, cu_stream stream) {
    DRIVER(cuMemcpy3DPeerAsync_ptsz);
    PACED(WORK(COPY_PEER, 0), stream, true, real(copy, stream));
}

EXPORT cu_result cuMemcpyBatchAsync(cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, size_t *failed, cu_stream stream) {
    DRIVER(cuMemcpyBatchAsync);
    PACED(WORK(COPY_BATCH, count), stream, false, real(to, from, sizes, count, attributes, indices, attribute_count, failed, stream));
}

EXPORT cu_result cuMemcpyBatchAsync_ptsz(cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, size_t *failed, cu_stream stream) {
    DRIVER(cuMemcpyBatchAsync_ptsz);
    PACED(WORK(COPY_BATCH, count), stream, true, real(to, from, sizes, count, attributes, indices, attribute_count, failed, stream));
}

EXPORT cu_result cuMemcpyBatchAsync_v2(cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, cu_stream stream) {
    DRIVER(cuMemcpyBatchAsync_v2);
    PACED(WORK(COPY_BATCH, count), stream, false, real(to, from, sizes, count, attributes, indices, attribute_count, stream));
}

EXPORT cu_result cuMemcpyBatchAsync_v2_ptsz(cu_ptr *to, cu_ptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices, size_t attribute_count, cu_stream stream) {
    DRIVER(cuMemcpyBatchAsync_v2_ptsz);
    PACED(WORK(COPY_BATCH, count), stream, true, real(to, from, sizes, count, attributes, indices, attribute_count, stream));
}

EXPORT cu_result cuMemcpy3DBatchAsync(size_t count, void *copies, size_t *failed, unsigned long long flags, cu_stream stream) {
    DRIVER(cuMemcpy3DBatchAsync);
    PACED(WORK(COPY_BATCH, count), stream, false, real(count, copies, failed, flags, stream));
}

EXPORT cu_result cuMemcpy3DBatchAsync_ptsz(size_t count, void *copies, size_t *failed, unsigned long long flags, cu_stream stream) {
    DRIVER(cuMemcpy3DBatchAsync_ptsz);
    PACED(WORK(COPY_BATCH, count), stream, true, real(count, copies, failed, flags, stream));
}

EXPORT cu_result cuMemcpy3DBatchAsync_v2(size_t count, void *copies, unsigned long long flags, cu_stream stream) {
    DRIVER(cuMemcpy3DBatchAsync_v2);
    PACED(WORK(COPY_BATCH, count), stream, false, real(count, copies, flags, stream));
}

EXPORT cu_result cuMemcpy3DBatchAsync_v2_ptsz(size_t count, void *copies, unsigned long long flags, cu_stream stream) {
    DRIVER(cuMemcpy3DBatchAsync_v2_ptsz);
    PACED(WORK(COPY_BATCH, count), stream, true, real(count, copies, flags, stream));
}

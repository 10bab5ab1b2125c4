// SPDX-License-Identifier: Apache-2.0
//
// Copies within a device and between devices. Those between host and device that say so are the copy engines' work and pass.

#include "export.h"
#include "paced.h"
#include "work.h"

EXPORT cu_result cuMemcpy(cu_ptr to, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpy);
    PACED(WORK(COPY, bytes), NULL, false, real(to, from, bytes));
}

EXPORT cu_result cuMemcpy_ptds(cu_ptr to, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpy_ptds);
    PACED(WORK(COPY, bytes), NULL, true, real(to, from, bytes));
}

EXPORT cu_result cuMemcpyAsync(cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyAsync);
    PACED(WORK(COPY, bytes), stream, false, real(to, from, bytes, stream));
}

EXPORT cu_result cuMemcpyAsync_ptsz(cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyAsync_ptsz);
    PACED(WORK(COPY, bytes), stream, true, real(to, from, bytes, stream));
}

EXPORT cu_result cuMemcpyPeer(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes) {
    DRIVER(cuMemcpyPeer);
    PACED(WORK(COPY_PEER, bytes), NULL, false, real(to, to_context, from, from_context, bytes));
}

EXPORT cu_result cuMemcpyPeer_ptds(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes) {
    DRIVER(cuMemcpyPeer_ptds);
    PACED(WORK(COPY_PEER, bytes), NULL, true, real(to, to_context, from, from_context, bytes));
}

EXPORT cu_result cuMemcpyPeerAsync(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyPeerAsync);
    PACED(WORK(COPY_PEER, bytes), stream, false, real(to, to_context, from, from_context, bytes, stream));
}

EXPORT cu_result cuMemcpyPeerAsync_ptsz(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyPeerAsync_ptsz);
    PACED(WORK(COPY_PEER, bytes), stream, true, real(to, to_context, from, from_context, bytes, stream));
}

EXPORT cu_result cuMemcpyDtoD(cu_ptr_v1 to, cu_ptr_v1 from, unsigned bytes) {
    DRIVER(cuMemcpyDtoD);
    PACED(WORK(COPY, bytes), NULL, false, real(to, from, bytes));
}

EXPORT cu_result cuMemcpyDtoD_v2(cu_ptr to, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpyDtoD_v2);
    PACED(WORK(COPY, bytes), NULL, false, real(to, from, bytes));
}

EXPORT cu_result cuMemcpyDtoD_v2_ptds(cu_ptr to, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpyDtoD_v2_ptds);
    PACED(WORK(COPY, bytes), NULL, true, real(to, from, bytes));
}

EXPORT cu_result cuMemcpyDtoDAsync(cu_ptr_v1 to, cu_ptr_v1 from, unsigned bytes, cu_stream stream) {
    DRIVER(cuMemcpyDtoDAsync);
    PACED(WORK(COPY, bytes), stream, false, real(to, from, bytes, stream));
}

EXPORT cu_result cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyDtoDAsync_v2);
    PACED(WORK(COPY, bytes), stream, false, real(to, from, bytes, stream));
}

EXPORT cu_result cuMemcpyDtoDAsync_v2_ptsz(cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream) {
    DRIVER(cuMemcpyDtoDAsync_v2_ptsz);
    PACED(WORK(COPY, bytes), stream, true, real(to, from, bytes, stream));
}

EXPORT cu_result cuMemcpyDtoA(cu_array to, unsigned at, cu_ptr_v1 from, unsigned bytes) {
    DRIVER(cuMemcpyDtoA);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, at, from, bytes));
}

EXPORT cu_result cuMemcpyDtoA_v2(cu_array to, size_t at, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpyDtoA_v2);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, at, from, bytes));
}

EXPORT cu_result cuMemcpyDtoA_v2_ptds(cu_array to, size_t at, cu_ptr from, size_t bytes) {
    DRIVER(cuMemcpyDtoA_v2_ptds);
    PACED(WORK(COPY_ARRAY, bytes), NULL, true, real(to, at, from, bytes));
}

EXPORT cu_result cuMemcpyAtoD(cu_ptr_v1 to, cu_array from, unsigned at, unsigned bytes) {
    DRIVER(cuMemcpyAtoD);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, from, at, bytes));
}

EXPORT cu_result cuMemcpyAtoD_v2(cu_ptr to, cu_array from, size_t at, size_t bytes) {
    DRIVER(cuMemcpyAtoD_v2);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, from, at, bytes));
}

EXPORT cu_result cuMemcpyAtoD_v2_ptds(cu_ptr to, cu_array from, size_t at, size_t bytes) {
    DRIVER(cuMemcpyAtoD_v2_ptds);
    PACED(WORK(COPY_ARRAY, bytes), NULL, true, real(to, from, at, bytes));
}

EXPORT cu_result cuMemcpyAtoA(cu_array to, unsigned to_at, cu_array from, unsigned at, unsigned bytes) {
    DRIVER(cuMemcpyAtoA);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, to_at, from, at, bytes));
}

EXPORT cu_result cuMemcpyAtoA_v2(cu_array to, size_t to_at, cu_array from, size_t at, size_t bytes) {
    DRIVER(cuMemcpyAtoA_v2);
    PACED(WORK(COPY_ARRAY, bytes), NULL, false, real(to, to_at, from, at, bytes));
}

EXPORT cu_result cuMemcpyAtoA_v2_ptds(cu_array to, size_t to_at, cu_array from, size_t at, size_t bytes) {
    DRIVER(cuMemcpyAtoA_v2_ptds);
    PACED(WORK(COPY_ARRAY, bytes), NULL, true, real(to, to_at, from, at, bytes));
}

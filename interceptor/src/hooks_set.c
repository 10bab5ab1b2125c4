// SPDX-License-Identifier: Apache-2.0
//
// Fills.

#include "export.h"
#include "paced.h"
#include "work.h"

EXPORT cu_result cuMemsetD8(cu_ptr_v1 to, unsigned char value, unsigned count) {
    DRIVER(cuMemsetD8);
    PACED(WORK(SET, count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD8_v2(cu_ptr to, unsigned char value, size_t count) {
    DRIVER(cuMemsetD8_v2);
    PACED(WORK(SET, count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD8_v2_ptds(cu_ptr to, unsigned char value, size_t count) {
    DRIVER(cuMemsetD8_v2_ptds);
    PACED(WORK(SET, count), NULL, true, real(to, value, count));
}

EXPORT cu_result cuMemsetD8Async(cu_ptr to, unsigned char value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD8Async);
    PACED(WORK(SET, count), stream, false, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD8Async_ptsz(cu_ptr to, unsigned char value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD8Async_ptsz);
    PACED(WORK(SET, count), stream, true, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD2D8(cu_ptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned height) {
    DRIVER(cuMemsetD2D8);
    PACED(WORK(SET_2D, width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D8_v2(cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D8_v2);
    PACED(WORK(SET_2D, width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D8_v2_ptds(cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D8_v2_ptds);
    PACED(WORK(SET_2D, width * height), NULL, true, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D8Async(cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D8Async);
    PACED(WORK(SET_2D, width * height), stream, false, real(to, pitch, value, width, height, stream));
}

EXPORT cu_result cuMemsetD2D8Async_ptsz(cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D8Async_ptsz);
    PACED(WORK(SET_2D, width * height), stream, true, real(to, pitch, value, width, height, stream));
}

EXPORT cu_result cuMemsetD16(cu_ptr_v1 to, unsigned short value, unsigned count) {
    DRIVER(cuMemsetD16);
    PACED(WORK(SET, 2 * count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD16_v2(cu_ptr to, unsigned short value, size_t count) {
    DRIVER(cuMemsetD16_v2);
    PACED(WORK(SET, 2 * count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD16_v2_ptds(cu_ptr to, unsigned short value, size_t count) {
    DRIVER(cuMemsetD16_v2_ptds);
    PACED(WORK(SET, 2 * count), NULL, true, real(to, value, count));
}

EXPORT cu_result cuMemsetD16Async(cu_ptr to, unsigned short value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD16Async);
    PACED(WORK(SET, 2 * count), stream, false, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD16Async_ptsz(cu_ptr to, unsigned short value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD16Async_ptsz);
    PACED(WORK(SET, 2 * count), stream, true, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD2D16(cu_ptr_v1 to, unsigned pitch, unsigned short value, unsigned width, unsigned height) {
    DRIVER(cuMemsetD2D16);
    PACED(WORK(SET_2D, 2 * width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D16_v2(cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D16_v2);
    PACED(WORK(SET_2D, 2 * width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D16_v2_ptds(cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D16_v2_ptds);
    PACED(WORK(SET_2D, 2 * width * height), NULL, true, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D16Async(cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D16Async);
    PACED(WORK(SET_2D, 2 * width * height), stream, false, real(to, pitch, value, width, height, stream));
}

EXPORT cu_result cuMemsetD2D16Async_ptsz(cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D16Async_ptsz);
    PACED(WORK(SET_2D, 2 * width * height), stream, true, real(to, pitch, value, width, height, stream));
}

EXPORT cu_result cuMemsetD32(cu_ptr_v1 to, unsigned value, unsigned count) {
    DRIVER(cuMemsetD32);
    PACED(WORK(SET, 4 * count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD32_v2(cu_ptr to, unsigned value, size_t count) {
    DRIVER(cuMemsetD32_v2);
    PACED(WORK(SET, 4 * count), NULL, false, real(to, value, count));
}

EXPORT cu_result cuMemsetD32_v2_ptds(cu_ptr to, unsigned value, size_t count) {
    DRIVER(cuMemsetD32_v2_ptds);
    PACED(WORK(SET, 4 * count), NULL, true, real(to, value, count));
}

EXPORT cu_result cuMemsetD32Async(cu_ptr to, unsigned value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD32Async);
    PACED(WORK(SET, 4 * count), stream, false, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD32Async_ptsz(cu_ptr to, unsigned value, size_t count, cu_stream stream) {
    DRIVER(cuMemsetD32Async_ptsz);
    PACED(WORK(SET, 4 * count), stream, true, real(to, value, count, stream));
}

EXPORT cu_result cuMemsetD2D32(cu_ptr_v1 to, unsigned pitch, unsigned value, unsigned width, unsigned height) {
    DRIVER(cuMemsetD2D32);
    PACED(WORK(SET_2D, 4 * width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D32_v2(cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D32_v2);
    PACED(WORK(SET_2D, 4 * width * height), NULL, false, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D32_v2_ptds(cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height) {
    DRIVER(cuMemsetD2D32_v2_ptds);
    PACED(WORK(SET_2D, 4 * width * height), NULL, true, real(to, pitch, value, width, height));
}

EXPORT cu_result cuMemsetD2D32Async(cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D32Async);
    PACED(WORK(SET_2D, 4 * width * height), stream, false, real(to, pitch, value, width, height, stream));
}

EXPORT cu_result cuMemsetD2D32Async_ptsz(cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height, cu_stream stream) {
    DRIVER(cuMemsetD2D32Async_ptsz);
    PACED(WORK(SET_2D, 4 * width * height), stream, true, real(to, pitch, value, width, height, stream));
}

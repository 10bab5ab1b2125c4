// SPDX-License-Identifier: Apache-2.0
// Setting memory to a value.
#include <string.h>

#include "copy.h"

// Rows of `count` values of `width` bytes, `pitch` bytes apart.
static cu_result fill(cu_pointer to, size_t pitch, unsigned value, size_t width, size_t count, size_t rows, cu_stream stream) {
    struct copy c;
    size_t size, all;
    if (to % width != 0 || __builtin_mul_overflow(width, count, &size) || __builtin_mul_overflow(size, rows, &all)) return CU_INVALID_VALUE;
    if (all == 0) return CU_SUCCESS;
    if (rows > 1 && pitch < size) return CU_INVALID_VALUE;
    cu_result result = copy_begin(&c, stream, 0);
    if (result != CU_SUCCESS) return result;
    for (size_t row = 0; result == CU_SUCCESS && row < rows; row++) {
        struct place place;
        result = copy_place(c.core, to + row * pitch, size, &place);
        if (result != CU_SUCCESS || c.stream->capture != NULL) continue;
        for (size_t i = 0; i < count && (i + 1) * width <= place.real; i++) memcpy(place.at + i * width, &value, width);
    }
    return copy_end(&c, result, all);
}

#define SET(bits, type)                                                                                                          \
    CU_API cu_result cuMemsetD##bits##_v2(cu_pointer to, type value, size_t count) {                                             \
        return fill(to, 0, value, bits / 8, count, 1, CU_STREAM_LEGACY);                                                         \
    }                                                                                                                            \
    CU_API cu_result cuMemsetD##bits##Async(cu_pointer to, type value, size_t count, cu_stream stream) {                         \
        return fill(to, 0, value, bits / 8, count, 1, stream);                                                                   \
    }                                                                                                                            \
    CU_API cu_result cuMemsetD2D##bits##_v2(cu_pointer to, size_t pitch, type value, size_t width, size_t height) {              \
        return fill(to, pitch, value, bits / 8, width, height, CU_STREAM_LEGACY);                                                \
    }                                                                                                                            \
    CU_API cu_result cuMemsetD2D##bits##Async(cu_pointer to, size_t pitch, type value, size_t width, size_t height, cu_stream s) { \
        return fill(to, pitch, value, bits / 8, width, height, s);                                                               \
    }

SET(8, unsigned char)
SET(16, unsigned short)
SET(32, unsigned)

// SPDX-License-Identifier: Apache-2.0
//
// Fills.

#include "paced.h"
#include "work.h"

PACED(cuMemsetD8, WORK(SET, count), NULL, false, (cu_ptr_v1 to, unsigned char value, unsigned count),
      (to, value, count))
PACED(cuMemsetD8_v2, WORK(SET, count), NULL, false, (cu_ptr to, unsigned char value, size_t count),
      (to, value, count))
PACED(cuMemsetD8_v2_ptds, WORK(SET, count), NULL, true, (cu_ptr to, unsigned char value, size_t count),
      (to, value, count))
PACED(cuMemsetD8Async, WORK(SET, count), stream, false, (cu_ptr to, unsigned char value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD8Async_ptsz, WORK(SET, count), stream, true, (cu_ptr to, unsigned char value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD2D8, WORK(SET_2D, width * height), NULL, false, (cu_ptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D8_v2, WORK(SET_2D, width * height), NULL, false, (cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D8_v2_ptds, WORK(SET_2D, width * height), NULL, true, (cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D8Async, WORK(SET_2D, width * height), stream, false, (cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))
PACED(cuMemsetD2D8Async_ptsz, WORK(SET_2D, width * height), stream, true, (cu_ptr to, size_t pitch, unsigned char value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))
PACED(cuMemsetD16, WORK(SET, 2 * count), NULL, false, (cu_ptr_v1 to, unsigned short value, unsigned count),
      (to, value, count))
PACED(cuMemsetD16_v2, WORK(SET, 2 * count), NULL, false, (cu_ptr to, unsigned short value, size_t count),
      (to, value, count))
PACED(cuMemsetD16_v2_ptds, WORK(SET, 2 * count), NULL, true, (cu_ptr to, unsigned short value, size_t count),
      (to, value, count))
PACED(cuMemsetD16Async, WORK(SET, 2 * count), stream, false, (cu_ptr to, unsigned short value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD16Async_ptsz, WORK(SET, 2 * count), stream, true, (cu_ptr to, unsigned short value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD2D16, WORK(SET_2D, 2 * width * height), NULL, false, (cu_ptr_v1 to, unsigned pitch, unsigned short value, unsigned width, unsigned height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D16_v2, WORK(SET_2D, 2 * width * height), NULL, false, (cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D16_v2_ptds, WORK(SET_2D, 2 * width * height), NULL, true, (cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D16Async, WORK(SET_2D, 2 * width * height), stream, false, (cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))
PACED(cuMemsetD2D16Async_ptsz, WORK(SET_2D, 2 * width * height), stream, true, (cu_ptr to, size_t pitch, unsigned short value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))
PACED(cuMemsetD32, WORK(SET, 4 * count), NULL, false, (cu_ptr_v1 to, unsigned value, unsigned count),
      (to, value, count))
PACED(cuMemsetD32_v2, WORK(SET, 4 * count), NULL, false, (cu_ptr to, unsigned value, size_t count),
      (to, value, count))
PACED(cuMemsetD32_v2_ptds, WORK(SET, 4 * count), NULL, true, (cu_ptr to, unsigned value, size_t count),
      (to, value, count))
PACED(cuMemsetD32Async, WORK(SET, 4 * count), stream, false, (cu_ptr to, unsigned value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD32Async_ptsz, WORK(SET, 4 * count), stream, true, (cu_ptr to, unsigned value, size_t count, cu_stream stream),
      (to, value, count, stream))
PACED(cuMemsetD2D32, WORK(SET_2D, 4 * width * height), NULL, false, (cu_ptr_v1 to, unsigned pitch, unsigned value, unsigned width, unsigned height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D32_v2, WORK(SET_2D, 4 * width * height), NULL, false, (cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D32_v2_ptds, WORK(SET_2D, 4 * width * height), NULL, true, (cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height),
      (to, pitch, value, width, height))
PACED(cuMemsetD2D32Async, WORK(SET_2D, 4 * width * height), stream, false, (cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))
PACED(cuMemsetD2D32Async_ptsz, WORK(SET_2D, 4 * width * height), stream, true, (cu_ptr to, size_t pitch, unsigned value, size_t width, size_t height, cu_stream stream),
      (to, pitch, value, width, height, stream))

// SPDX-License-Identifier: Apache-2.0
// The first versions of functions that later got wider parameters: sizes and device addresses had 32 bits.
#include "core.h"

#define FIRST(name, parameters, later, wide, arguments) \
    cu_result later wide;                               \
    CU_API cu_result name parameters { return later arguments; }

FIRST(cuMemFree, (unsigned pointer), cuMemFree_v2,
      (cu_pointer pointer), (pointer))
FIRST(cuMemAllocHost, (void **pointer, unsigned size), cuMemAllocHost_v2,
      (void **pointer, size_t size), (pointer, size))
FIRST(cuMemHostRegister, (void *pointer, size_t size, unsigned flags), cuMemHostRegister_v2,
      (void *pointer, size_t size, unsigned flags), (pointer, size, flags))
FIRST(cuMemcpyHtoD, (unsigned to, const void *from, unsigned size), cuMemcpyHtoD_v2,
      (cu_pointer to, const void *from, size_t size), (to, from, size))
FIRST(cuMemcpyDtoH, (void *to, unsigned from, unsigned size), cuMemcpyDtoH_v2,
      (void *to, cu_pointer from, size_t size), (to, from, size))
FIRST(cuMemcpyDtoD, (unsigned to, unsigned from, unsigned size), cuMemcpyDtoD_v2,
      (cu_pointer to, cu_pointer from, size_t size), (to, from, size))
FIRST(cuMemcpyHtoDAsync, (unsigned to, const void *from, unsigned size, cu_stream s), cuMemcpyHtoDAsync_v2,
      (cu_pointer to, const void *from, size_t size, cu_stream s), (to, from, size, s))
FIRST(cuMemcpyDtoHAsync, (void *to, unsigned from, unsigned size, cu_stream s), cuMemcpyDtoHAsync_v2,
      (void *to, cu_pointer from, size_t size, cu_stream s), (to, from, size, s))
FIRST(cuMemcpyDtoDAsync, (unsigned to, unsigned from, unsigned size, cu_stream s), cuMemcpyDtoDAsync_v2,
      (cu_pointer to, cu_pointer from, size_t size, cu_stream s), (to, from, size, s))
FIRST(cuMemsetD8, (unsigned to, unsigned char value, unsigned count), cuMemsetD8_v2,
      (cu_pointer to, unsigned char value, size_t count), (to, value, count))
FIRST(cuMemsetD16, (unsigned to, unsigned short value, unsigned count), cuMemsetD16_v2,
      (cu_pointer to, unsigned short value, size_t count), (to, value, count))
FIRST(cuMemsetD32, (unsigned to, unsigned value, unsigned count), cuMemsetD32_v2,
      (cu_pointer to, unsigned value, size_t count), (to, value, count))
FIRST(cuCtxDestroy, (cu_context context), cuCtxDestroy_v2,
      (cu_context context), (context))
FIRST(cuCtxPushCurrent, (cu_context context), cuCtxPushCurrent_v2,
      (cu_context context), (context))
FIRST(cuCtxPopCurrent, (cu_context *context), cuCtxPopCurrent_v2,
      (cu_context *context), (context))

typedef struct {
    unsigned width, height;
    int format;
    unsigned channels;
} first_array;

typedef struct {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
} first_array3d;

cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_descriptor *descriptor);

CU_API cu_result cuArrayCreate(cu_array *array, const first_array *d) {
    if (d == NULL) return CU_INVALID_VALUE;
    cu_array3d_descriptor full = {.width = d->width, .height = d->height, .format = d->format, .channels = d->channels};
    return cuArray3DCreate_v2(array, &full);
}

CU_API cu_result cuArray3DCreate(cu_array *array, const first_array3d *d) {
    if (d == NULL) return CU_INVALID_VALUE;
    cu_array3d_descriptor full = {.width = d->width, .height = d->height, .depth = d->depth,
                                  .format = d->format, .channels = d->channels, .flags = d->flags};
    return cuArray3DCreate_v2(array, &full);
}

CU_API cu_result cuMemAllocPitch(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    (void)width, (void)height, (void)element;
    return pointer == NULL || pitch == NULL ? CU_INVALID_VALUE : CU_OUT_OF_MEMORY; // no address fits into 32 bits
}

CU_API cu_result cuMemGetAddressRange(unsigned *base, unsigned *size, unsigned pointer) {
    (void)base, (void)size, (void)pointer;
    return CU_NOT_FOUND;
}

CU_API cu_result cuArray3DGetDescriptor(first_array3d *out, cu_array array) {
    cu_result cuArray3DGetDescriptor_v2(cu_array3d_descriptor *descriptor, cu_array array);
    cu_array3d_descriptor d;
    if (out == NULL) return CU_INVALID_VALUE;
    cu_result result = cuArray3DGetDescriptor_v2(&d, array);
    if (result != CU_SUCCESS) return result;
    *out = (first_array3d){(unsigned)d.width, (unsigned)d.height, (unsigned)d.depth, d.format, d.channels, d.flags};
    return CU_SUCCESS;
}

CU_API cu_result cuMemHostGetDevicePointer(unsigned *device, void *pointer, unsigned flags) {
    (void)flags;
    return device == NULL || pointer == NULL ? CU_INVALID_VALUE : CU_NOT_SUPPORTED;
}

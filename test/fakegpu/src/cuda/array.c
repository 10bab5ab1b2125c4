// SPDX-License-Identifier: Apache-2.0
// Arrays: one, two and three dimensions, layers, mip levels. They cost their elements, in whole pages.
#include <stdlib.h>

#include "array.h"

#define FLAG_LAYERED 1u
#define FLAG_SPARSE 0x40u
#define FLAG_DEFERRED 0x80u

struct cu_array_st {
    int device;
    uint64_t charged;
    cu_array3d_descriptor descriptor;
    cu_mipmap of; // the mipmapped array whose level it is
};

struct cu_mipmap_st {
    int device;
    uint64_t charged;
    unsigned levels;
    cu_array3d_descriptor descriptor;
    struct cu_array_st level;
};

static size_t element_bytes(int format) {
    switch (format) {
    case 0x01: case 0x08: return 1;
    case 0x02: case 0x09: case 0x10: return 2;
    case 0x03: case 0x0a: case 0x20: return 4;
    default: return 0;
    }
}

static size_t at_least_one(size_t n) { return n == 0 ? 1 : n; }

static cu_result bytes_of(const cu_array3d_descriptor *d, unsigned levels, uint64_t *bytes) {
    uint64_t element = element_bytes(d->format) * d->channels, sum = 0;
    if (element == 0 || d->width == 0 || (d->channels != 1 && d->channels != 2 && d->channels != 4)) return CU_INVALID_VALUE;
    for (unsigned level = 0; level < levels; level++) {
        uint64_t part = element;
        size_t depth = d->flags & FLAG_LAYERED ? d->depth : d->depth >> level;
        if (__builtin_mul_overflow(part, at_least_one(d->width >> level), &part)) return CU_INVALID_VALUE;
        if (__builtin_mul_overflow(part, at_least_one(d->height >> level), &part)) return CU_INVALID_VALUE;
        if (__builtin_mul_overflow(part, at_least_one(depth), &part)) return CU_INVALID_VALUE;
        if (__builtin_add_overflow(sum, part, &sum) || sum > 1ull << 46) return CU_OUT_OF_MEMORY;
    }
    // The memory of sparse and deferred ones comes later, from physical allocations.
    *bytes = d->flags & (FLAG_SPARSE | FLAG_DEFERRED) ? 0 : round_up(sum, PAGE_BYTES);
    return CU_SUCCESS;
}

// Enters and charges; the caller leaves when it succeeded.
static cu_result begin(const cu_array3d_descriptor *d, unsigned levels, struct core **core, int *device, uint64_t *bytes) {
    cu_context context;
    cu_result result = bytes_of(d, levels, bytes);
    if (result == CU_SUCCESS) result = core_enter_unsafe(core, &context);
    if (result != CU_SUCCESS) return result;
    *device = context->device;
    result = core_charge(*core, &(*core)->devices[*device], *bytes);
    if (result != CU_SUCCESS) core_leave(*core);
    return result;
}

CU_API cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_descriptor *descriptor) {
    struct core *core;
    int device;
    uint64_t bytes;
    if (array == NULL || descriptor == NULL) return CU_INVALID_VALUE;
    cu_result result = begin(descriptor, 1, &core, &device, &bytes);
    if (result != CU_SUCCESS) return result;
    cu_array made = calloc(1, sizeof *made);
    if (made == NULL) {
        core_refund(core, &core->devices[device], bytes);
        result = CU_OUT_OF_MEMORY;
    } else {
        *made = (struct cu_array_st){.device = device, .charged = bytes, .descriptor = *descriptor};
        *array = made;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuArrayCreate_v2(cu_array *array, const cu_array_descriptor *d) {
    if (d == NULL) return CU_INVALID_VALUE;
    cu_array3d_descriptor full = {.width = d->width, .height = d->height, .format = d->format, .channels = d->channels};
    return cuArray3DCreate_v2(array, &full);
}

CU_API cu_result cuArray3DGetDescriptor_v2(cu_array3d_descriptor *descriptor, cu_array array) {
    if (descriptor == NULL || array == NULL) return CU_INVALID_VALUE;
    *descriptor = array->descriptor;
    return CU_SUCCESS;
}

CU_API cu_result cuArrayDestroy(cu_array array) {
    struct core *core;
    if (array == NULL) return CU_INVALID_HANDLE;
    if (array->of != NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (array->charged > 0) core_refund(core, &core->devices[array->device], array->charged);
    core_leave(core);
    free(array);
    return CU_SUCCESS;
}

static unsigned most_levels(const cu_array3d_descriptor *d) {
    size_t longest = d->width > d->height ? d->width : d->height;
    unsigned levels = 1;
    if (d->depth > longest && !(d->flags & FLAG_LAYERED)) longest = d->depth;
    while ((longest >>= 1) > 0) levels++;
    return levels;
}

CU_API cu_result cuMipmappedArrayCreate(cu_mipmap *mipmap, const cu_array3d_descriptor *descriptor, unsigned levels) {
    struct core *core;
    int device;
    uint64_t bytes;
    if (mipmap == NULL || descriptor == NULL || levels == 0) return CU_INVALID_VALUE;
    if (levels > most_levels(descriptor)) levels = most_levels(descriptor);
    cu_result result = begin(descriptor, levels, &core, &device, &bytes);
    if (result != CU_SUCCESS) return result;
    result = mipmap_make(core, device, bytes, descriptor, levels, mipmap);
    if (result != CU_SUCCESS) core_refund(core, &core->devices[device], bytes);
    core_leave(core);
    return result;
}

cu_result mipmap_make(struct core *core, int device, uint64_t charged, const cu_array3d_descriptor *descriptor,
                      unsigned levels, cu_mipmap *mipmap) {
    (void)core;
    cu_mipmap made = calloc(1, sizeof *made);
    if (made == NULL) return CU_OUT_OF_MEMORY;
    *made = (struct cu_mipmap_st){.device = device, .charged = charged, .levels = levels, .descriptor = *descriptor};
    made->level = (struct cu_array_st){.device = device, .descriptor = *descriptor, .of = made};
    *mipmap = made;
    return CU_SUCCESS;
}

CU_API cu_result cuMipmappedArrayGetLevel(cu_array *array, cu_mipmap mipmap, unsigned level) {
    if (array == NULL || mipmap == NULL || level >= mipmap->levels) return CU_INVALID_VALUE;
    *array = &mipmap->level;
    return CU_SUCCESS;
}

CU_API cu_result cuMipmappedArrayDestroy(cu_mipmap mipmap) {
    struct core *core;
    if (mipmap == NULL) return CU_INVALID_HANDLE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (mipmap->charged > 0) core_refund(core, &core->devices[mipmap->device], mipmap->charged);
    core_leave(core);
    free(mipmap);
    return CU_SUCCESS;
}

// SPDX-License-Identifier: Apache-2.0
//
// Arrays of all dimensions. The driver takes whole pages for each; what is charged follows from the description.

#include "charge.h"
#include "export.h"
#include "quota.h"
#include "topics.h"

static uint64_t cost(const cu_array3d_shape *shape, unsigned levels) {
    struct quota_array array = {.width = shape->width, .height = shape->height, .depth = shape->depth,
                                .format = (unsigned)shape->format, .channels = shape->channels, .levels = levels,
                                .layers = (shape->flags & CU_ARRAY_LAYERED) != 0};
    if ((shape->flags & (CU_ARRAY_SPARSE | CU_ARRAY_DEFERRED)) != 0) return 0; // its memory is mapped later, and pays itself
    return quota_round(quota_array_bytes(&array), QUOTA_PAGE);
}

// Wraps a creation: `made` is where the handle goes, `call` the driver's call.
#define CREATE(made, bytes_needed, call)                                                                              \
    struct here here;                                                                                                 \
    if (!device_here(&here)) return call;                                                                             \
    uint64_t bytes = bytes_needed;                                                                                    \
    if (!charge_take(here.device, bytes)) return CU_OUT_OF_MEMORY;                                                    \
    cu_result result = call;                                                                                          \
    if (result != CU_OK) {                                                                                            \
        charge_give(here.device, bytes);                                                                              \
        charge_driver_refused(here.device, result);                                                                   \
        return result;                                                                                                \
    }                                                                                                                 \
    struct track_entry entry = {.key = (uintptr_t)*(made), .kind = TRACK_ARRAY, .bytes = bytes, .owner = here.context, \
                                .device = (int16_t)here.device->ordinal};                                             \
    track_put(&process_limited()->track, &entry);                                                                     \
    context_has(process_limited(), &entry, here.number);                                                              \
    return result

EXPORT cu_result cuArrayCreate_v2(cu_array *array, const cu_array_shape *shape) {
    DRIVER(cuArrayCreate_v2);
    if (array == NULL || shape == NULL) return real(array, shape);
    cu_array3d_shape full = {.width = shape->width, .height = shape->height, .format = shape->format,
                             .channels = shape->channels};
    CREATE(array, cost(&full, 1), real(array, shape));
}

EXPORT cu_result cuArrayCreate(cu_array *array, const cu_array_shape_v1 *shape) {
    DRIVER(cuArrayCreate);
    if (array == NULL || shape == NULL) return real(array, shape);
    cu_array3d_shape full = {.width = shape->width, .height = shape->height, .format = shape->format,
                             .channels = shape->channels};
    CREATE(array, cost(&full, 1), real(array, shape));
}

EXPORT cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_shape *shape) {
    DRIVER(cuArray3DCreate_v2);
    if (array == NULL || shape == NULL) return real(array, shape);
    CREATE(array, cost(shape, 1), real(array, shape));
}

EXPORT cu_result cuArray3DCreate(cu_array *array, const cu_array3d_shape_v1 *shape) {
    DRIVER(cuArray3DCreate);
    if (array == NULL || shape == NULL) return real(array, shape);
    cu_array3d_shape full = {.width = shape->width, .height = shape->height, .depth = shape->depth, .format = shape->format,
                             .channels = shape->channels, .flags = shape->flags};
    CREATE(array, cost(&full, 1), real(array, shape));
}

EXPORT cu_result cuMipmappedArrayCreate(cu_mipmap *mipmap, const cu_array3d_shape *shape, unsigned levels) {
    DRIVER(cuMipmappedArrayCreate);
    if (mipmap == NULL || shape == NULL) return real(mipmap, shape, levels);
    CREATE(mipmap, cost(shape, levels), real(mipmap, shape, levels));
}

// A sparse array holds what was mapped into it until it goes.
#define DESTROY(handle)                                                                       \
    struct process *process = process_limited();                                              \
    struct track_entry entry;                                                                 \
    bool known = process != NULL && track_take(&process->track, TRACK_ARRAY, (uintptr_t)(handle), &entry); \
    cu_result result = real(handle);                                                          \
    if (known && result == CU_OK) charge_give(&process->devices[entry.device], entry.bytes);  \
    if (known && result != CU_OK) track_put(&process->track, &entry);                         \
    if (known && result == CU_OK && entry.bytes == 0) vmm_unbind_all(process, handle);        \
    return result

EXPORT cu_result cuArrayDestroy(cu_array array) {
    DRIVER(cuArrayDestroy);
    DESTROY(array);
}

EXPORT cu_result cuMipmappedArrayDestroy(cu_mipmap mipmap) {
    DRIVER(cuMipmappedArrayDestroy);
    DESTROY(mipmap);
}

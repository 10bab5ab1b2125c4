// SPDX-License-Identifier: Apache-2.0
// Copies and fills. They are done at once; those on a stream first wait for what is queued there.
#include <string.h>
#include <sys/mman.h>

#include "managed.h"
#include "space.h"

// Contents are kept for this much of an allocation; what is copied beyond reads as zero.
#define KEPT_BYTES (64 * MIB)

// A place in device or host memory, and how much behind it is real.
struct place {
    unsigned char *at;
    size_t real;
};

// Finds a device place for `size` bytes and makes its kept part touchable.
static cu_result device_place(struct core *core, cu_pointer pointer, size_t size, struct place *place) {
    const struct allocation *found = space_holding(pointer);
    if (found == NULL || size > found->size - (pointer - found->at)) return CU_INVALID_VALUE;
    struct range *range = found->range;
    managed_touch(core, range, size);
    size_t kept = range->size < KEPT_BYTES ? range->size : KEPT_BYTES;
    if (!range->real && mprotect(range->base, kept, PROT_READ | PROT_WRITE) != 0) return CU_OUT_OF_MEMORY;
    range->real = 1;
    size_t offset = pointer - (cu_pointer)(uintptr_t)range->base;
    *place = (struct place){.at = range->base + offset, .real = offset < kept ? kept - offset : 0};
    return CU_SUCCESS;
}

static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

static void copy(struct place to, struct place from, size_t size) {
    size_t written = lesser(size, to.real), read = lesser(written, from.real);
    memmove(to.at, from.at, read);
    memset(to.at + read, 0, written - read);
}

enum sides { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

// Copies at once; a copy on a stream first waits for what is queued there.
static cu_result transfer(enum sides sides, void *host, cu_pointer to, cu_pointer from, size_t size, cu_stream on) {
    struct core *core;
    cu_context context;
    if (size == 0) return CU_SUCCESS;
    if (sides != DEVICE_TO_DEVICE && host == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, on);
    if (stream == NULL) {
        core_leave(core);
        return CU_INVALID_HANDLE;
    }
    core_leave_until_done(core, context->device, core_stream_last(stream), core_how(context));

    result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    struct place destination = {.at = host, .real = size}, source = {.at = host, .real = size};
    if (sides != DEVICE_TO_HOST) result = device_place(core, to, size, &destination);
    if (result == CU_SUCCESS && sides != HOST_TO_DEVICE) result = device_place(core, from, size, &source);
    if (result == CU_SUCCESS) copy(destination, source, size);
    core_leave(core);
    return result;
}

CU_API cu_result cuMemcpyHtoD_v2(cu_pointer to, const void *from, size_t size) {
    return transfer(HOST_TO_DEVICE, (void *)(uintptr_t)from, to, 0, size, CU_STREAM_LEGACY);
}

CU_API cu_result cuMemcpyDtoH_v2(void *to, cu_pointer from, size_t size) {
    return transfer(DEVICE_TO_HOST, to, 0, from, size, CU_STREAM_LEGACY);
}

CU_API cu_result cuMemcpyDtoD_v2(cu_pointer to, cu_pointer from, size_t size) {
    return transfer(DEVICE_TO_DEVICE, NULL, to, from, size, CU_STREAM_LEGACY);
}

CU_API cu_result cuMemcpyHtoDAsync_v2(cu_pointer to, const void *from, size_t size, cu_stream stream) {
    return transfer(HOST_TO_DEVICE, (void *)(uintptr_t)from, to, 0, size, stream);
}

CU_API cu_result cuMemcpyDtoHAsync_v2(void *to, cu_pointer from, size_t size, cu_stream stream) {
    return transfer(DEVICE_TO_HOST, to, 0, from, size, stream);
}

CU_API cu_result cuMemcpyDtoDAsync_v2(cu_pointer to, cu_pointer from, size_t size, cu_stream stream) {
    return transfer(DEVICE_TO_DEVICE, NULL, to, from, size, stream);
}

static cu_result fill(cu_pointer to, unsigned value, size_t width, size_t count) {
    struct core *core;
    cu_context context;
    size_t size;
    struct place place;
    if (to % width != 0 || __builtin_mul_overflow(width, count, &size)) return CU_INVALID_VALUE;
    if (size == 0) return CU_SUCCESS;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = device_place(core, to, size, &place);
    if (result == CU_SUCCESS) {
        for (size_t i = 0; (i + 1) * width <= lesser(size, place.real); i++) memcpy(place.at + i * width, &value, width);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemsetD8_v2(cu_pointer to, unsigned char value, size_t count) { return fill(to, value, 1, count); }
CU_API cu_result cuMemsetD16_v2(cu_pointer to, unsigned short value, size_t count) { return fill(to, value, 2, count); }
CU_API cu_result cuMemsetD32_v2(cu_pointer to, unsigned value, size_t count) { return fill(to, value, 4, count); }

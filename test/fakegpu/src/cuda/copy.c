// SPDX-License-Identifier: Apache-2.0
// Copies of bytes in a row. Contents move at once. A copy within the device, as setting, takes the GPU's time in its stream
// and nobody waits for it; one from or to the host is a copy engine's, and is made when its stream has come to it.
#include "copy.h"

#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "managed.h"

// Contents are kept for this much of an allocation; what is copied beyond reads as zero.
#define KEPT_BYTES (64 * MIB)

// What the GPU does in a microsecond.
#define BYTES_A_MICROSECOND 2000000u

cu_result copy_place(struct core *core, cu_pointer pointer, size_t size, struct place *place) {
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

void copy_move(struct place to, struct place from, size_t size) {
    size_t written = lesser(size, to.real), read = lesser(written, from.real);
    memmove(to.at, from.at, read);
    memset(to.at + read, 0, written - read);
}

cu_result copy_begin(struct copy *c, cu_stream handle, int by_engine) {
    cu_result result = core_enter_context(&c->core, &c->context);
    if (result != CU_SUCCESS) return result;
    c->stream = core_stream(c->context, handle);
    result = c->stream == NULL ? CU_INVALID_HANDLE : c->stream->capture != NULL ? CU_SUCCESS : capture_implicit(c->core, c->stream);
    if (result != CU_SUCCESS) {
        core_leave(c->core);
        return result;
    }
    if (!by_engine || c->stream->capture != NULL) return CU_SUCCESS;
    core_leave_until_done(c->core, c->context->device, core_stream_last(c->stream), core_how(c->context));
    return core_enter_context(&c->core, &c->context);
}

cu_result copy_end(struct copy *c, cu_result result, size_t size) {
    struct fg_piece piece = {.ns = size * 1000 / BYTES_A_MICROSECOND + 1000};
    if (result == CU_SUCCESS && c->stream->capture != NULL) {
        result = capture_work(c->stream, &piece);
    } else if (result == CU_SUCCESS && size > 0) {
        work_queue(c->core, c->stream, &piece);
    }
    work_leave(c->core, c->context);
    return result;
}

enum sides { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static cu_result transfer(enum sides sides, void *host, cu_pointer to, cu_pointer from, size_t size, cu_stream on) {
    struct copy c;
    if (size == 0) return CU_SUCCESS;
    if (sides != DEVICE_TO_DEVICE && host == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_begin(&c, on, sides != DEVICE_TO_DEVICE);
    if (result != CU_SUCCESS) return result;
    struct place destination = {.at = host, .real = size}, source = {.at = host, .real = size};
    if (sides != DEVICE_TO_HOST) result = copy_place(c.core, to, size, &destination);
    if (result == CU_SUCCESS && sides != HOST_TO_DEVICE) result = copy_place(c.core, from, size, &source);
    if (result == CU_SUCCESS && c.stream->capture == NULL) copy_move(destination, source, size);
    return copy_end(&c, result, sides == DEVICE_TO_DEVICE ? size : 0);
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

// Between any two addresses: what is no device memory is the host's.
CU_API cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t size, cu_stream stream) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    int to_device = space_holding(to) != NULL, from_device = space_holding(from) != NULL;
    core_leave(core);
    if (to_device && from_device) return transfer(DEVICE_TO_DEVICE, NULL, to, from, size, stream);
    if (to_device) return transfer(HOST_TO_DEVICE, (void *)(uintptr_t)from, to, 0, size, stream);
    if (from_device) return transfer(DEVICE_TO_HOST, (void *)(uintptr_t)to, 0, from, size, stream);
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return CU_SUCCESS;
}

CU_API cu_result cuMemcpy(cu_pointer to, cu_pointer from, size_t size) { return cuMemcpyAsync(to, from, size, CU_STREAM_LEGACY); }

CU_API cu_result cuMemcpyPeerAsync(cu_pointer to, cu_context there, cu_pointer from, cu_context here, size_t size, cu_stream stream) {
    if (there == NULL || here == NULL) return CU_INVALID_CONTEXT;
    return transfer(DEVICE_TO_DEVICE, NULL, to, from, size, stream);
}

CU_API cu_result cuMemcpyPeer(cu_pointer to, cu_context there, cu_pointer from, cu_context here, size_t size) {
    return cuMemcpyPeerAsync(to, there, from, here, size, CU_STREAM_LEGACY);
}

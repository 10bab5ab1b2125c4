// SPDX-License-Identifier: Apache-2.0
// Managed memory. On an H200 the part that is resident counts for the GPU, but in no process's figure.
#include "managed.h"

static uint64_t *word(struct core *core, const struct range *range) {
    return &core->db.state->procs[core->devices[range->device].slot].managed;
}

void managed_touch(struct core *core, struct range *range, size_t size) {
    if (range->kind != SPACE_MANAGED) return;
    struct device *device = &core->devices[range->device];
    uint64_t resident = (uint64_t)(uintptr_t)range->owner, wanted = round_up(size, PAGE_BYTES);
    if (wanted > range->size) wanted = range->size;
    if (wanted <= resident || device->slot < 0) return;
    fg_lock(&core->db);
    uint64_t used = core_used(core, device), room = used < device->memory ? device->memory - used : 0;
    uint64_t more = wanted - resident < room ? wanted - resident : room; // the rest stays on the host
    __atomic_fetch_add(word(core, range), more, __ATOMIC_RELEASE);
    fg_unlock(&core->db);
    range->owner = (void *)(uintptr_t)(resident + more);
}

static void leave(struct core *core, struct range *range) {
    if (core->devices[range->device].slot < 0) return;
    fg_lock(&core->db);
    __atomic_fetch_sub(word(core, range), (uint64_t)(uintptr_t)range->owner, __ATOMIC_RELEASE);
    fg_unlock(&core->db);
}

CU_API cu_result cuMemAllocManaged(cu_pointer *pointer, size_t size, unsigned flags) {
    enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };
    struct core *core;
    cu_context context;
    struct range *range;
    if (pointer == NULL || size == 0 || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST)) return CU_INVALID_VALUE;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    size_t whole = round_up(size, PAGE_BYTES);
    result = whole < size ? CU_OUT_OF_MEMORY : space_single(SPACE_MANAGED, context->device, context, whole, &range);
    if (result == CU_SUCCESS) {
        range->closing = leave;
        *pointer = (cu_pointer)(uintptr_t)range->base;
    }
    core_leave(core);
    return result;
}

static cu_result prefetch(cu_pointer pointer, size_t size, int to_device) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_holding(pointer);
    if (found == NULL || found->range->kind != SPACE_MANAGED) {
        result = CU_INVALID_VALUE;
    } else if (to_device) {
        managed_touch(core, found->range, pointer - found->at + size);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemPrefetchAsync(cu_pointer pointer, size_t size, cu_device device, cu_stream stream) {
    (void)stream;
    return prefetch(pointer, size, device >= 0);
}

CU_API cu_result cuMemPrefetchAsync_v2(cu_pointer pointer, size_t size, cu_location location, unsigned flags,
                                       cu_stream stream) {
    (void)flags, (void)stream;
    return prefetch(pointer, size, location.type == CU_LOCATION_DEVICE);
}

CU_API cu_result cuMemAdvise(cu_pointer pointer, size_t size, int advice, cu_device device) {
    (void)advice, (void)device;
    return prefetch(pointer, size, 0);
}

CU_API cu_result cuMemAdvise_v2(cu_pointer pointer, size_t size, int advice, cu_location location) {
    (void)advice, (void)location;
    return prefetch(pointer, size, 0);
}

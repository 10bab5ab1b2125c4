// SPDX-License-Identifier: Apache-2.0
// Linear device memory, whatever frees it, and what can be asked about an address.
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "pool.h"
#include "space.h"
#include "state/limit.h"

#define SMALL_BYTES MIB // up to this, allocations are packed into pages (measured on an H200)
// Half of what an allocation and its free take on an H200.
#define REAL_CALL_NS 38000u

static cu_result allocate_small(struct core *core, cu_context context, size_t size, cu_pointer *out) {
    size_t taken = round_up(size, BLOCK_BYTES);
    struct range *page;
    if (!space_page_take(context, taken, &page, out)) {
        cu_result result = core_charge(core, &core->devices[context->device], PAGE_BYTES);
        if (result != CU_SUCCESS) return result;
        page = space_open(SPACE_LINEAR, context->device, context, PAGE_BYTES);
        if (page == NULL || !space_page_new(context, page)) {
            core_refund(core, &core->devices[context->device], PAGE_BYTES);
            return CU_OUT_OF_MEMORY;
        }
        page->charged = PAGE_BYTES;
        if (!space_page_take(context, taken, &page, out)) return CU_OUT_OF_MEMORY;
    }
    if (space_add(page, *out, size)) return CU_SUCCESS;
    if (page->living == 0) space_close(core, page);
    return CU_OUT_OF_MEMORY;
}

static cu_result allocate_large(struct core *core, cu_context context, size_t size, cu_pointer *out) {
    size_t taken = round_up(size, PAGE_BYTES);
    struct range *range;
    if (taken < size) return CU_OUT_OF_MEMORY; // it went round
    cu_result result = core_charge(core, &core->devices[context->device], taken);
    if (result != CU_SUCCESS) return result;
    result = space_single(SPACE_LINEAR, context->device, context, taken, &range);
    if (result != CU_SUCCESS) {
        core_refund(core, &core->devices[context->device], taken);
        return result;
    }
    range->charged = taken;
    *out = (cu_pointer)(uintptr_t)range->base;
    space_at(*out)->size = size;
    return CU_SUCCESS;
}

static cu_result allocate(struct core *core, cu_context context, size_t size, cu_pointer *out) {
    cu_pointer at;
    cu_result result = size <= SMALL_BYTES ? allocate_small(core, context, size, &at) : allocate_large(core, context, size, &at);
    if (result == CU_SUCCESS) *out = at;
    return result;
}

static void take_time(int slow) {
    if (slow) core_wait_until(fg_now() + REAL_CALL_NS, CORE_WATCH);
}

CU_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t size) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || size == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = allocate(core, context, size, pointer);
    int slow = (int)fg_read(&core->db.state->timing);
    core_leave(core);
    take_time(slow);
    return result;
}

CU_API cu_result cuMemAlloc(unsigned *pointer, unsigned size) {
    (void)size;
    return pointer == NULL ? CU_INVALID_VALUE : CU_OUT_OF_MEMORY; // no address fits into 32 bits
}

CU_API cu_result cuMemAllocPitch_v2(cu_pointer *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || pitch == NULL || width == 0 || height == 0) return CU_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16) return CU_INVALID_VALUE;
    size_t row = round_up(width, BLOCK_BYTES), total;
    if (row < width || __builtin_mul_overflow(row, height, &total)) return CU_OUT_OF_MEMORY;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = allocate(core, context, total, pointer);
    if (result == CU_SUCCESS) *pitch = row;
    core_leave(core);
    return result;
}

// What cuMemFree may free, once the work is done that may use it.
static cu_result free_now(struct core *core, struct allocation *found) {
    switch (found->range->kind) {
    case SPACE_LINEAR:
    case SPACE_MANAGED: space_remove(core, found); return CU_SUCCESS;
    case SPACE_POOL: pool_free_now(core, found); return CU_SUCCESS;
    case SPACE_GRAPH: return graph_memory_free(core, found);
    default: return CU_INVALID_VALUE;
    }
}

CU_API cu_result cuMemFree_v2(cu_pointer pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_at(pointer);
    int slow = (int)fg_read(&core->db.state->timing);
    cu_context user = found != NULL && found->range->context != NULL ? found->range->context : context;
    if (found == NULL) {
        core_leave(core);
        return pointer == 0 ? CU_SUCCESS : CU_INVALID_VALUE;
    }
    core_leave_until_done(core, user->device, core_context_last(user), CORE_WATCH); // it waits for the work that may use it
    take_time(slow);
    result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    struct allocation *still = space_at(pointer);
    result = still == NULL ? CU_INVALID_VALUE : free_now(core, still); // another thread may have been first
    core_leave(core);
    return result;
}

CU_API cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    struct core *core;
    cu_context context;
    if (free_bytes == NULL || total == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct device *device = &core->devices[context->device];
    fg_locate(&core->db, device->slot);
    fg_lock(&core->db);
    uint64_t used = core_used(core, device), own;
    uint64_t limit = fg_limit_shown(&core->db, device->slot, device->gpu, &own);
    fg_unlock(&core->db);
    *total = device->memory;
    *free_bytes = used < device->memory ? device->memory - used : 0;
    if (limit > 0) {
        *total = limit;
        uint64_t room = own < limit ? limit - own : 0;
        if (room < *free_bytes) *free_bytes = room;
    }
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuMemGetInfo(unsigned *free_bytes, unsigned *total) {
    size_t wide_free, wide_total;
    if (free_bytes == NULL || total == NULL) return CU_INVALID_VALUE;
    cu_result result = cuMemGetInfo_v2(&wide_free, &wide_total);
    if (result != CU_SUCCESS) return result;
    *free_bytes = wide_free > UINT32_MAX ? UINT32_MAX : (unsigned)wide_free;
    *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned)wide_total;
    return CU_SUCCESS;
}

CU_API cu_result cuMemGetAddressRange_v2(cu_pointer *base, size_t *size, cu_pointer pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_holding(pointer);
    if (found != NULL && base != NULL) *base = found->at;
    if (found != NULL && size != NULL) *size = found->size;
    core_leave(core);
    return found == NULL ? CU_NOT_FOUND : CU_SUCCESS;
}

CU_API cu_result cuPointerGetAttribute(void *data, int attribute, cu_pointer pointer) {
    enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, IS_MANAGED = 8, ORDINAL = 9, TYPE_DEVICE = 2 };
    struct core *core;
    if (data == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_holding(pointer);
    if (found == NULL) {
        core_leave(core);
        return CU_INVALID_VALUE;
    }
    const struct range *range = found->range;
    switch (attribute) {
    case CONTEXT: *(cu_context *)data = range->context; break;
    case MEMORY_TYPE: *(unsigned *)data = TYPE_DEVICE; break;
    case DEVICE_POINTER: *(cu_pointer *)data = pointer; break;
    case IS_MANAGED: *(unsigned *)data = range->kind == SPACE_MANAGED; break;
    case ORDINAL: *(int *)data = range->device; break;
    default: result = CU_NOT_SUPPORTED; break;
    }
    core_leave(core);
    return result;
}

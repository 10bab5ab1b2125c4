// SPDX-License-Identifier: Apache-2.0
// Pools. A pool keeps memory in chunks and gives it back when it is trimmed, or at a synchronisation beyond its release
// threshold. What it keeps is charged; what of it is in use nobody outside sees.
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"

enum { ATTRIBUTE_THRESHOLD = 4, ATTRIBUTE_RESERVED, ATTRIBUTE_RESERVED_HIGH, ATTRIBUTE_USED, ATTRIBUTE_USED_HIGH };

// A block that was freed on a stream: others may have it when the stream has got there.
struct freed {
    struct freed *next;
    size_t size;
    cu_stream stream;
    int device;
    uint64_t last; // the piece of work that it waits for
};

struct cu_pool_st {
    struct cu_pool_st *next;
    int device; // -1: host memory
    uint64_t threshold, max_size, reserved, reserved_high;
    uint64_t taken;           // living and freed but not yet reusable
    uint64_t used, used_high; // what the driver says is used
    int flags[3];
    int living, destroyed;
    struct freed *freed;
};

static int known(const struct core *core, cu_pool pool) {
    for (cu_pool p = core->pools; p != NULL; p = p->next) {
        if (p == pool) return !p->destroyed;
    }
    return 0;
}

static cu_pool make(struct core *core, int device, uint64_t max_size) {
    cu_pool pool = calloc(1, sizeof *pool);
    if (pool == NULL) return NULL;
    *pool = (struct cu_pool_st){.next = core->pools, .device = device, .max_size = round_up(max_size, CHUNK_BYTES), .flags = {1, 1, 1}};
    core->pools = pool;
    return pool;
}

static cu_pool default_of(struct core *core, struct device *device) {
    if (device->default_pool == NULL) device->default_pool = make(core, (int)(device - core->devices), 0);
    return device->default_pool;
}

static cu_pool current_of(struct core *core, struct device *device) {
    return device->pool != NULL ? device->pool : default_of(core, device);
}

// What was freed on the stream, or long enough ago, is free.
static void reclaim(struct core *core, struct cu_pool_st *pool, cu_stream stream) {
    for (struct freed **link = &pool->freed; *link != NULL;) {
        struct freed *f = *link;
        if ((stream == NULL || f->stream != stream) && !core_done(core, f->device, f->last)) {
            link = &f->next;
            continue;
        }
        pool->taken -= f->size;
        *link = f->next;
        free(f);
    }
}

static void shrink(struct core *core, struct cu_pool_st *pool, uint64_t keep) {
    uint64_t needed = round_up(pool->taken, CHUNK_BYTES), kept = round_up(keep, CHUNK_BYTES);
    if (kept < keep || kept > pool->reserved) kept = pool->reserved;
    uint64_t target = needed > kept ? needed : kept;
    if (target >= pool->reserved) return;
    uint64_t less = pool->reserved - target;
    pool->reserved = target;
    if (pool->device >= 0) core_refund(core, &core->devices[pool->device], less);
}

static void end_if_empty(struct core *core, struct cu_pool_st *pool) {
    if (!pool->destroyed || pool->living > 0) return;
    reclaim(core, pool, NULL);
    if (pool->freed != NULL) return;
    shrink(core, pool, 0);
    for (cu_pool *link = &core->pools; *link != NULL; link = &(*link)->next) {
        if (*link != pool) continue;
        *link = pool->next;
        break;
    }
    free(pool);
}

void core_synchronised(struct core *core) {
    for (cu_pool p = core->pools; p != NULL;) {
        cu_pool next = p->next;
        reclaim(core, p, NULL);
        shrink(core, p, p->threshold);
        end_if_empty(core, p);
        p = next;
    }
}

static cu_result grow(struct core *core, struct cu_pool_st *pool, uint64_t size) {
    uint64_t wanted = pool->taken + size;
    if (wanted <= pool->reserved) return CU_SUCCESS;
    wanted = round_up(wanted, CHUNK_BYTES);
    if (wanted < size || (pool->max_size > 0 && wanted > pool->max_size)) return CU_OUT_OF_MEMORY;
    if (pool->device >= 0) {
        cu_result result = core_charge(core, &core->devices[pool->device], wanted - pool->reserved);
        if (result != CU_SUCCESS) return result;
    }
    pool->reserved = wanted;
    if (wanted > pool->reserved_high) pool->reserved_high = wanted;
    return CU_SUCCESS;
}

static cu_result allocate(struct core *core, struct cu_pool_st *pool, size_t size, cu_stream stream, cu_pointer *out) {
    size_t whole = round_up(size, BLOCK_BYTES);
    struct range *range;
    if (whole < size || whole > (1ull << 46)) return CU_OUT_OF_MEMORY;
    reclaim(core, pool, stream);
    cu_result result = grow(core, pool, whole);
    if (result != CU_SUCCESS) return result;
    result = space_single(SPACE_POOL, pool->device < 0 ? 0 : pool->device, NULL, whole, &range);
    if (result != CU_SUCCESS) return result;
    range->owner = pool;
    pool->taken += whole;
    pool->used += whole;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    pool->living++;
    *out = (cu_pointer)(uintptr_t)range->base;
    return CU_SUCCESS;
}

// As an H200's driver does it, this takes nothing off what the pool calls used.
void pool_free_now(struct core *core, struct allocation *allocation) {
    struct cu_pool_st *pool = allocation->range->owner;
    pool->taken -= allocation->range->size;
    pool->living--;
    space_remove(core, allocation);
    reclaim(core, pool, NULL);
    shrink(core, pool, pool->threshold);
    end_if_empty(core, pool);
}

cu_result pool_free_on(struct core *core, cu_stream stream, struct allocation *allocation) {
    struct cu_pool_st *pool = allocation->range->owner;
    struct freed *f = calloc(1, sizeof *f);
    if (f == NULL) return CU_OUT_OF_MEMORY;
    *f = (struct freed){.next = pool->freed, .size = allocation->range->size, .stream = stream,
                        .device = stream->context->device, .last = core_stream_last(stream)};
    pool->freed = f;
    pool->used -= f->size < pool->used ? f->size : pool->used;
    pool->living--;
    space_remove(core, allocation);
    end_if_empty(core, pool);
    return CU_SUCCESS;
}

CU_API cu_result cuMemAllocFromPoolAsync(cu_pointer *pointer, size_t size, cu_pool pool, cu_stream handle) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || size == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, handle);
    if (stream == NULL || !known(core, pool)) {
        result = stream == NULL ? CU_INVALID_HANDLE : CU_INVALID_VALUE;
    } else if (stream->capture != NULL) {
        result = capture_allocation(core, stream, pool->device, size, pointer);
    } else {
        result = allocate(core, pool, size, stream, pointer);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemAllocAsync(cu_pointer *pointer, size_t size, cu_stream handle) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_pool pool = current_of(core, &core->devices[context->device]);
    core_leave(core);
    return pool == NULL ? CU_OUT_OF_MEMORY : cuMemAllocFromPoolAsync(pointer, size, pool, handle);
}

static struct device *device_at(struct core *core, cu_device index, cu_result *result) {
    struct device *device = core_device(core, index);
    *result = device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
    return device;
}

static cu_result pool_of(cu_pool *pool, cu_device index, cu_pool (*which)(struct core *, struct device *)) {
    struct core *core;
    if (pool == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = device_at(core, index, &result);
    if (device != NULL) {
        cu_pool found = which(core, device);
        if (found != NULL) *pool = found;
        result = found == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device) { return pool_of(pool, device, default_of); }
CU_API cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device) { return pool_of(pool, device, current_of); }

CU_API cu_result cuDeviceSetMemPool(cu_device index, cu_pool pool) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = device_at(core, index, &result);
    if (device != NULL && (!known(core, pool) || pool->device != index)) result = CU_INVALID_VALUE;
    if (result == CU_SUCCESS) device->pool = pool;
    core_leave(core);
    return result;
}

CU_API cu_result cuMemGetDefaultMemPool(cu_pool *pool, const cu_location *location, int type) {
    if (location == NULL || type != CU_ALLOCATION_PINNED || location->type != CU_LOCATION_DEVICE) return CU_NOT_SUPPORTED;
    return cuDeviceGetDefaultMemPool(pool, location->id);
}

CU_API cu_result cuMemGetMemPool(cu_pool *pool, const cu_location *location, int type) {
    if (location == NULL || type != CU_ALLOCATION_PINNED || location->type != CU_LOCATION_DEVICE) return CU_NOT_SUPPORTED;
    return cuDeviceGetMemPool(pool, location->id);
}

CU_API cu_result cuMemSetMemPool(const cu_location *location, int type, cu_pool pool) {
    if (location == NULL || type != CU_ALLOCATION_PINNED || location->type != CU_LOCATION_DEVICE) return CU_NOT_SUPPORTED;
    return cuDeviceSetMemPool(location->id, pool);
}

CU_API cu_result cuMemPoolCreate(cu_pool *pool, const cu_pool_properties *properties) {
    struct core *core;
    if (pool == NULL || properties == NULL || properties->type != CU_ALLOCATION_PINNED) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    int on_device = properties->location.type == CU_LOCATION_DEVICE;
    if (on_device && core_device(core, properties->location.id) == NULL) {
        result = CU_INVALID_DEVICE;
    } else {
        cu_pool made = make(core, on_device ? properties->location.id : -1, properties->max_size);
        if (made != NULL) *pool = made;
        result = made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
    }
    core_leave(core);
    return result;
}

// Enters with a pool that exists.
static cu_result enter(cu_pool pool, struct core **core) {
    cu_result result = core_enter(core);
    if (result != CU_SUCCESS || known(*core, pool)) return result;
    core_leave(*core);
    return CU_INVALID_VALUE;
}

CU_API cu_result cuMemPoolDestroy(cu_pool pool) {
    struct core *core;
    cu_result result = enter(pool, &core);
    if (result != CU_SUCCESS) return result;
    struct device *device = pool->device < 0 ? NULL : &core->devices[pool->device];
    if (device != NULL && device->default_pool == pool) {
        result = CU_INVALID_VALUE;
    } else {
        if (device != NULL && device->pool == pool) device->pool = NULL;
        pool->destroyed = 1;
        reclaim(core, pool, NULL);
        shrink(core, pool, 0);
        end_if_empty(core, pool);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep) {
    struct core *core;
    cu_result result = enter(pool, &core);
    if (result != CU_SUCCESS) return result;
    reclaim(core, pool, NULL);
    shrink(core, pool, keep);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuMemPoolSetAttribute(cu_pool pool, int attribute, void *value) {
    struct core *core;
    if (value == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(pool, &core);
    if (result != CU_SUCCESS) return result;
    switch (attribute) {
    case 1: case 2: case 3: memcpy(&pool->flags[attribute - 1], value, sizeof pool->flags[0]); break;
    case ATTRIBUTE_THRESHOLD: memcpy(&pool->threshold, value, sizeof pool->threshold); break;
    case ATTRIBUTE_RESERVED_HIGH: pool->reserved_high = pool->reserved; break;
    case ATTRIBUTE_USED_HIGH: pool->used_high = pool->used; break;
    default: result = CU_INVALID_VALUE; break;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemPoolGetAttribute(cu_pool pool, int attribute, void *value) {
    struct core *core;
    if (value == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(pool, &core);
    if (result != CU_SUCCESS) return result;
    const uint64_t values[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used, pool->used_high};
    if (attribute >= 1 && attribute <= 3) {
        memcpy(value, &pool->flags[attribute - 1], sizeof pool->flags[0]);
    } else if (attribute >= ATTRIBUTE_THRESHOLD && attribute <= ATTRIBUTE_USED_HIGH) {
        memcpy(value, &values[attribute - ATTRIBUTE_THRESHOLD], sizeof values[0]);
    } else {
        result = CU_INVALID_VALUE;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemPoolSetAccess(cu_pool pool, const cu_access *map, size_t count) {
    struct core *core;
    (void)map, (void)count; // every device reaches every pool
    cu_result result = enter(pool, &core);
    if (result == CU_SUCCESS) core_leave(core);
    return result;
}

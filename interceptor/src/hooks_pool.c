// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory. What a pool keeps is held, whether it is in use or not, so the pool is charged what it has reserved.
// How far it will grow is the driver's to decide: the likely growth is charged before the call, and the charge is settled
// with what the pool says afterwards. A pool that grew past the limit nevertheless is brought back before the call returns.

#include "charge.h"
#include "export.h"
#include "quota.h"
#include "topics.h"

struct pool {
    struct pool *next;
    cu_pool handle;
    int device; // -1: memory of the host
    struct sluice_lock lock;
    uint64_t charged;
    uint64_t living;    // bytes allocated and not freed
    uint32_t destroyed; // read without the lock
};

static uint64_t reserved_by(const struct pool *pool) {
    uint64_t bytes = pool->charged;
    if (HAVE(cuMemPoolGetAttribute)) REAL(cuMemPoolGetAttribute)(pool->handle, CU_POOL_RESERVED, &bytes);
    return bytes;
}

// Brings the charge to what the pool has reserved. False where that is more than the limit lets it have.
static bool settle(struct process *process, struct pool *pool) {
    struct device *device = &process->devices[pool->device];
    uint64_t now = __atomic_load_n(&pool->destroyed, __ATOMIC_RELAXED) ? quota_round(pool->living, QUOTA_CHUNK) : reserved_by(pool);
    if (now > pool->charged) {
        if (!charge_try(device, now - pool->charged)) return false;
    } else {
        charge_give(device, pool->charged - now);
    }
    pool->charged = now;
    return true;
}

static bool is_gone(const struct pool *pool) { return __atomic_load_n(&pool->destroyed, __ATOMIC_ACQUIRE) != 0; }

static bool is_empty(struct pool *pool) {
    if (!is_gone(pool) || !lock_try(&pool->lock)) return false;
    bool empty = pool->living == 0 && pool->charged == 0;
    lock_drop(&pool->lock);
    return empty;
}

// Records of pools that are gone are used again. With the list locked.
static struct pool *remember(struct process *process, cu_pool handle, int device) {
    struct pool *made = process->pools;
    while (made != NULL && !is_empty(made)) made = made->next;
    bool old = made != NULL;
    if (!old) made = track_memory(sizeof *made);
    if (made == NULL) return NULL;
    lock_take(&made->lock);
    made->handle = handle;
    made->device = device;
    __atomic_store_n(&made->destroyed, 0, __ATOMIC_RELEASE);
    lock_drop(&made->lock);
    struct track_entry entry = {.key = (uintptr_t)handle, .kind = TRACK_POOL, .owner = made, .device = (int16_t)device};
    track_put(&process->track, &entry);
    if (old) return made;
    made->next = process->pools;
    __atomic_store_n(&process->pools, (void *)made, __ATOMIC_RELEASE);
    return made;
}

// The device whose default or current pool it is; pools that a program made are remembered from the beginning.
static int device_of_pool(cu_pool handle, int otherwise) {
    cu_pool pool;
    for (int i = 0; i < DEVICES; i++) {
        if (!HAVE(cuDeviceGetDefaultMemPool) || REAL(cuDeviceGetDefaultMemPool)(&pool, i) != CU_OK) break;
        if (pool == handle) return i;
    }
    return otherwise;
}

static struct pool *pool_of(struct process *process, cu_pool handle, int stream_device) {
    struct track_entry entry;
    if (track_get(&process->track, TRACK_POOL, (uintptr_t)handle, &entry)) return entry.owner;
    int device = device_of_pool(handle, stream_device);
    lock_take(&process->pool_list_lock);
    struct pool *pool = track_get(&process->track, TRACK_POOL, (uintptr_t)handle, &entry)
                            ? entry.owner
                            : remember(process, handle, device);
    lock_drop(&process->pool_list_lock);
    return pool;
}

// Our own calls must not disturb a capture of another thread.
static void trim(struct process *process, struct pool *pool) {
    int mode = 2; // relaxed
    bool captures = __atomic_load_n(&process->captures, __ATOMIC_RELAXED) != 0 && HAVE(cuThreadExchangeStreamCaptureMode);
    if (captures) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (HAVE(cuMemPoolTrimTo)) REAL(cuMemPoolTrimTo)(pool->handle, 0);
    if (captures) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

// Looks at the device's other pools that may have shrunk. One that another thread is busy with is passed over: it is that
// thread's to settle, and waiting for it with a pool locked could wait in a circle.
static void settle_others(struct process *process, const struct pool *except) {
    for (struct pool *p = __atomic_load_n(&process->pools, __ATOMIC_ACQUIRE); p != NULL; p = p->next) {
        if (p == except || is_gone(p) || !lock_try(&p->lock)) continue;
        if (p->device == except->device) settle(process, p);
        lock_drop(&p->lock);
    }
}

// Charges how far the pool is likely to grow for a request.
static bool charge_growth(struct process *process, struct pool *pool, uint64_t size) {
    struct device *device = &process->devices[pool->device];
    for (int round = 0; round < 2; round++) {
        uint64_t wanted = quota_round(pool->living + quota_round(size, 512), QUOTA_CHUNK);
        if (wanted <= pool->charged) return true;
        if (charge_try(device, wanted - pool->charged)) {
            pool->charged = wanted;
            return true;
        }
        // Frees are asynchronous, so a look at what is really held comes before a refusal.
        if (round == 0) {
            settle(process, pool);
            settle_others(process, pool);
        }
    }
    charge_refuse(device);
    return false;
}

typedef cu_result free_function(cu_ptr, cu_stream);

static void undo(struct process *process, struct pool *pool, cu_ptr pointer, cu_stream stream, free_function *give) {
    if (give != NULL) give(pointer, stream);
    trim(process, pool);
    settle(process, pool);
    __atomic_store_n(&process->dirty, 1, __ATOMIC_RELEASE);
    charge_refuse(&process->devices[pool->device]);
}

// What allocations have in common. `allocate` is the driver's function for the pool and stream.
struct request {
    cu_ptr *pointer;
    size_t size;
    cu_stream stream;
    free_function *give;
};

#define ALLOCATE(request_, pool_, call)                                                                \
    struct request request = request_;                                                                 \
    struct pool *pool = pool_;                                                                         \
    if (pool == NULL || pool->device < 0 || device_limited(pool->device) == NULL) return call;         \
    lock_take(&pool->lock);                                                                            \
    cu_result result = charge_growth(process, pool, request.size) ? call : CU_OUT_OF_MEMORY;           \
    result = finish(process, pool, &request, result);                                                  \
    lock_drop(&pool->lock);                                                                            \
    return result

static cu_result finish(struct process *process, struct pool *pool, const struct request *request, cu_result result) {
    if (result != CU_OK) {
        settle(process, pool);
        return result;
    }
    uint64_t size = quota_round(request->size, 512);
    if (!settle(process, pool)) {
        undo(process, pool, *request->pointer, request->stream, request->give);
        *request->pointer = 0;
        return CU_OUT_OF_MEMORY;
    }
    struct track_entry entry = {.key = *request->pointer, .kind = TRACK_ASYNC, .bytes = size, .owner = pool,
                                .device = (int16_t)pool->device};
    pool->living += size;
    track_put(&process->track, &entry);
    return result;
}

static cu_pool current_pool(int device) {
    cu_pool pool = NULL;
    if (HAVE(cuDeviceGetMemPool)) REAL(cuDeviceGetMemPool)(&pool, device);
    return pool;
}

EXPORT cu_result cuMemAllocAsync(cu_ptr *pointer, size_t size, cu_stream stream) {
    DRIVER(cuMemAllocAsync);
    struct process *process = process_limited();
    struct here here;
    if (process == NULL || pointer == NULL || stream_captures(process, stream, false) || !device_of_stream(stream, &here)) {
        return real(pointer, size, stream);
    }
    ALLOCATE(((struct request){pointer, size, stream, NEEDED(cuMemFreeAsync)}),
             pool_of(process, current_pool(here.device->ordinal), here.device->ordinal), real(pointer, size, stream));
}

EXPORT cu_result cuMemAllocAsync_ptsz(cu_ptr *pointer, size_t size, cu_stream stream) {
    DRIVER(cuMemAllocAsync_ptsz);
    struct process *process = process_limited();
    struct here here;
    if (process == NULL || pointer == NULL || stream_captures(process, stream, true) || !device_of_stream(stream, &here)) {
        return real(pointer, size, stream);
    }
    ALLOCATE(((struct request){pointer, size, stream, NEEDED(cuMemFreeAsync_ptsz)}),
             pool_of(process, current_pool(here.device->ordinal), here.device->ordinal), real(pointer, size, stream));
}

// The device of a stream for a pool that nobody has seen; 0 where there is none.
static int stream_device(cu_stream stream) {
    struct here here;
    return device_of_stream(stream, &here) ? here.device->ordinal : 0;
}

EXPORT cu_result cuMemAllocFromPoolAsync(cu_ptr *pointer, size_t size, cu_pool from, cu_stream stream) {
    DRIVER(cuMemAllocFromPoolAsync);
    struct process *process = process_limited();
    if (process == NULL || pointer == NULL || stream_captures(process, stream, false)) return real(pointer, size, from, stream);
    ALLOCATE(((struct request){pointer, size, stream, NEEDED(cuMemFreeAsync)}),
             pool_of(process, from, stream_device(stream)), real(pointer, size, from, stream));
}

EXPORT cu_result cuMemAllocFromPoolAsync_ptsz(cu_ptr *pointer, size_t size, cu_pool from, cu_stream stream) {
    DRIVER(cuMemAllocFromPoolAsync_ptsz);
    struct process *process = process_limited();
    if (process == NULL || pointer == NULL || stream_captures(process, stream, true)) return real(pointer, size, from, stream);
    ALLOCATE(((struct request){pointer, size, stream, NEEDED(cuMemFreeAsync_ptsz)}),
             pool_of(process, from, stream_device(stream)), real(pointer, size, from, stream));
}

void pool_freed(struct process *process, const struct track_entry *entry, bool at_once) {
    struct pool *pool = entry->owner;
    lock_take(&pool->lock);
    pool->living -= entry->bytes < pool->living ? entry->bytes : pool->living;
    if (!is_gone(pool) && !at_once) __atomic_store_n(&process->dirty, 1, __ATOMIC_RELEASE);
    else if (!settle(process, pool)) __atomic_store_n(&process->dirty, 1, __ATOMIC_RELEASE);
    lock_drop(&pool->lock);
}

#define FREE_ASYNC                                                                                    \
    struct process *process = process_limited();                                                      \
    struct track_entry entry;                                                                         \
    if (process == NULL) return real(pointer, stream);                                                \
    bool captures = stream_captures(process, stream, per_thread);                                     \
    bool pooled = track_take(&process->track, TRACK_ASYNC, pointer, &entry);                          \
    bool linear = !pooled && !captures && track_take(&process->track, TRACK_POINTER, pointer, &entry); \
    cu_result result = real(pointer, stream);                                                         \
    if (result != CU_OK && (pooled || linear)) track_put(&process->track, &entry);                    \
    if (result != CU_OK) return result;                                                               \
    if (pooled) pool_freed(process, &entry, false);                                                          \
    if (linear) linear_forget(process, &entry);                                                       \
    if (!linear && !pooled && !captures) {                                                            \
        import_freed(process, pointer);                                                            \
        graph_freed(process);                                                            \
    }                                                            \
    return result

EXPORT cu_result cuMemFreeAsync(cu_ptr pointer, cu_stream stream) {
    DRIVER(cuMemFreeAsync);
    const bool per_thread = false;
    FREE_ASYNC;
}

EXPORT cu_result cuMemFreeAsync_ptsz(cu_ptr pointer, cu_stream stream) {
    DRIVER(cuMemFreeAsync_ptsz);
    const bool per_thread = true;
    FREE_ASYNC;
}

EXPORT cu_result cuMemPoolCreate(cu_pool *handle, const cu_pool_properties *properties) {
    DRIVER(cuMemPoolCreate);
    struct process *process = process_limited();
    cu_result result = real(handle, properties);
    if (result != CU_OK || process == NULL) return result;
    lock_take(&process->pool_list_lock);
    remember(process, *handle, properties->location.type == CU_LOCATION_DEVICE ? properties->location.id : -1);
    lock_drop(&process->pool_list_lock);
    return result;
}

// A destroyed pool keeps what is still allocated from it.
EXPORT cu_result cuMemPoolDestroy(cu_pool handle) {
    DRIVER(cuMemPoolDestroy);
    struct process *process = process_limited();
    struct track_entry entry;
    bool known = process != NULL && track_take(&process->track, TRACK_POOL, (uintptr_t)handle, &entry);
    cu_result result = real(handle);
    if (!known) return result;
    if (result != CU_OK) {
        track_put(&process->track, &entry);
        return result;
    }
    struct pool *pool = entry.owner;
    lock_take(&pool->lock);
    __atomic_store_n(&pool->destroyed, 1, __ATOMIC_RELEASE);
    if (pool->device >= 0) settle(process, pool);
    lock_drop(&pool->lock);
    return result;
}

EXPORT cu_result cuMemPoolTrimTo(cu_pool handle, size_t keep) {
    DRIVER(cuMemPoolTrimTo);
    struct process *process = process_limited();
    struct track_entry entry;
    cu_result result = real(handle, keep);
    if (result != CU_OK || process == NULL || !track_get(&process->track, TRACK_POOL, (uintptr_t)handle, &entry)) return result;
    struct pool *pool = entry.owner;
    if (pool->device < 0) return result;
    lock_take(&pool->lock);
    settle(process, pool);
    lock_drop(&pool->lock);
    return result;
}

// A pool that keeps more than is allocated from it may shrink at any later synchronisation, so it is looked at again then.
void pool_settle_dirty(struct process *process) {
    bool again = false;
    for (struct pool *p = __atomic_load_n(&process->pools, __ATOMIC_ACQUIRE); p != NULL; p = p->next) {
        if (is_gone(p)) continue;
        lock_take(&p->lock);
        if (p->device >= 0) again |= !settle(process, p) || p->charged > quota_round(p->living, QUOTA_CHUNK);
        lock_drop(&p->lock);
    }
    if (again) __atomic_store_n(&process->dirty, 1, __ATOMIC_RELEASE);
}

// SPDX-License-Identifier: Apache-2.0
// Device memory. A device pointer is the address of a reserved range that the host
// cannot touch; the first part of it is real once something is copied there.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"

#define MIB (1ull << 20)
#define PAGE_BYTES (2 * MIB)   // what the driver takes at least for an allocation of its own
#define SMALL_BYTES MIB        // below this, allocations are packed into such pages
#define SMALL_ALIGNMENT 512ull
// Contents are kept for this much of an allocation; what is copied beyond reads as zero.
#define KEPT_BYTES (64 * MIB)

// A reserved range that was charged: one big allocation, or a page that small ones share.
struct range {
    cu_context context;
    unsigned char *base;
    size_t size;
    size_t next; // where the next small allocation goes; 0 for a big one
    int living;
    int real; // bytes at the start can be touched
};

struct allocation {
    cu_pointer at;
    size_t size;
    struct range *range;
};

// All allocations, sorted by address; guarded by the library's lock.
static struct allocation *table;
static size_t table_count, table_room;

static size_t position(cu_pointer at) {
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].at <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low; // the first that begins behind `at`
}

static struct allocation *holding(cu_pointer at) {
    size_t index = position(at);
    if (index == 0 || at - table[index - 1].at >= table[index - 1].size) return NULL;
    return &table[index - 1];
}

static int insert(struct allocation new) {
    if (table_count == table_room) {
        size_t room = table_room == 0 ? 64 : 2 * table_room;
        struct allocation *grown = realloc(table, room * sizeof *grown);
        if (grown == NULL) return 0;
        table = grown;
        table_room = room;
    }
    size_t index = position(new.at);
    memmove(&table[index + 1], &table[index], (table_count - index) * sizeof *table);
    table[index] = new;
    table_count++;
    return 1;
}

static cu_result open_range(struct core *core, cu_context context, size_t size, struct range **made) {
    struct device *device = &core->devices[context->device];
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL) return CU_OUT_OF_MEMORY;
    cu_result result = core_charge(core, device, size);
    if (result != CU_SUCCESS) {
        free(range);
        return result;
    }
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        core_refund(core, device, size);
        free(range);
        return CU_OUT_OF_MEMORY;
    }
    *range = (struct range){.context = context, .base = base, .size = size};
    *made = range;
    return CU_SUCCESS;
}

static void close_range(struct core *core, struct range *range) {
    core_refund(core, &core->devices[range->context->device], range->size);
    munmap(range->base, range->size);
    free(range);
}

static size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// A page of the context with room for that much.
static struct range *page_with_room(cu_context context, size_t size) {
    for (size_t i = table_count; i-- > 0;) {
        struct range *range = table[i].range;
        if (range->context == context && range->next > 0 && range->size - range->next >= size) return range;
    }
    return NULL;
}

static cu_result allocate(struct core *core, cu_context context, size_t size, cu_pointer *out) {
    int small = size < SMALL_BYTES;
    size_t taken = small ? round_up(size, SMALL_ALIGNMENT) : round_up(size, PAGE_BYTES);
    if (taken < size) return CU_OUT_OF_MEMORY; // it went round
    struct range *range = small ? page_with_room(context, taken) : NULL;
    if (range == NULL) {
        cu_result result = open_range(core, context, small ? PAGE_BYTES : taken, &range);
        if (result != CU_SUCCESS) return result;
    }
    cu_pointer at = (cu_pointer)(uintptr_t)range->base + (small ? range->next : 0);
    if (!insert((struct allocation){.at = at, .size = size, .range = range})) {
        if (range->living == 0) close_range(core, range);
        return CU_OUT_OF_MEMORY;
    }
    if (small) range->next += taken;
    range->living++;
    *out = at;
    return CU_SUCCESS;
}

static void drop(struct core *core, size_t index) {
    struct range *range = table[index].range;
    memmove(&table[index], &table[index + 1], (table_count - index - 1) * sizeof *table);
    table_count--;
    if (--range->living == 0) close_range(core, range);
}

void core_drop_allocations(struct core *core, cu_context context) {
    for (size_t i = table_count; i-- > 0;) {
        if (table[i].range->context == context) drop(core, i);
    }
}

CU_API cu_result cuMemAlloc_v2(cu_pointer *pointer, size_t size) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || size == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = allocate(core, context, size, pointer);
    core_leave(core);
    return result;
}

CU_API cu_result cuMemAllocPitch_v2(cu_pointer *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || pitch == NULL || width == 0 || height == 0) return CU_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16) return CU_INVALID_VALUE;
    size_t row = round_up(width, SMALL_ALIGNMENT), total;
    if (row < width || __builtin_mul_overflow(row, height, &total)) return CU_OUT_OF_MEMORY;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    result = allocate(core, context, total, pointer);
    if (result == CU_SUCCESS) *pitch = row;
    core_leave(core);
    return result;
}

CU_API cu_result cuMemFree_v2(cu_pointer pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = holding(pointer);
    if (pointer == 0) {
        result = CU_SUCCESS;
    } else if (found == NULL || found->at != pointer) {
        result = CU_INVALID_VALUE;
    } else {
        uint64_t end = core_context_end(found->range->context);
        core_leave(core);
        core_wait_until(end); // freeing waits for the work that may use it
        result = core_enter_context(&core, &context);
        if (result != CU_SUCCESS) return result;
        found = holding(pointer);
        if (found != NULL && found->at == pointer) {
            drop(core, (size_t)(found - table));
        } else {
            result = CU_INVALID_VALUE; // another thread was first
        }
    }
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
    fg_lock(&core->db);
    uint64_t used = core_used(core, device);
    fg_unlock(&core->db);
    *total = device->memory;
    *free_bytes = used < device->memory ? device->memory - used : 0;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuMemGetAddressRange_v2(cu_pointer *base, size_t *size, cu_pointer pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = holding(pointer);
    if (found != NULL && base != NULL) *base = found->at;
    if (found != NULL && size != NULL) *size = found->size;
    core_leave(core);
    return found == NULL ? CU_NOT_FOUND : CU_SUCCESS;
}

// A place in device or host memory, and how much behind it is real.
struct place {
    unsigned char *at;
    size_t real;
};

// Finds a device place for `size` bytes and makes its kept part touchable.
static cu_result device_place(cu_pointer pointer, size_t size, struct place *place) {
    const struct allocation *found = holding(pointer);
    if (found == NULL || size > found->size - (pointer - found->at)) return CU_INVALID_VALUE;
    struct range *range = found->range;
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
    uint64_t end = 0;
    if (stream != NULL) end = on == NULL || on == CU_STREAM_LEGACY ? core_context_end(context) : stream->end;
    core_leave(core);
    if (stream == NULL) return CU_INVALID_HANDLE;
    core_wait_until(end);

    result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    struct place destination = {.at = host, .real = size}, source = {.at = host, .real = size};
    if (sides != DEVICE_TO_HOST) result = device_place(to, size, &destination);
    if (result == CU_SUCCESS && sides != HOST_TO_DEVICE) result = device_place(from, size, &source);
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
    result = device_place(to, size, &place);
    if (result == CU_SUCCESS) {
        for (size_t i = 0; (i + 1) * width <= lesser(size, place.real); i++) memcpy(place.at + i * width, &value, width);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemsetD8_v2(cu_pointer to, unsigned char value, size_t count) { return fill(to, value, 1, count); }
CU_API cu_result cuMemsetD16_v2(cu_pointer to, unsigned short value, size_t count) { return fill(to, value, 2, count); }
CU_API cu_result cuMemsetD32_v2(cu_pointer to, unsigned value, size_t count) { return fill(to, value, 4, count); }

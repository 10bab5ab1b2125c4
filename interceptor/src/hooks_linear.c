// SPDX-License-Identifier: Apache-2.0
//
// Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged and the frees, which CUDA allows for memory of pools and of
// graphs too.
//
// The driver takes whole pages from the device. A block above 1 MiB has pages of its own; others share pages, and
// which page one went to is known from its address, so pages are counted as the driver holds them. Before the call a small
// block is charged a new page; if it went to a page that was there, that is given back.

#include "charge.h"
#include "export.h"
#include "topics.h"
#include "quota.h"

#define PAGE_SHIFT 21

enum { SMALL = 1 }; // flag of an entry: counted by its page

static uint64_t page_of(cu_ptr pointer) { return pointer >> PAGE_SHIFT; }

// Counts a small block in its page. Says whether the page is new.
static bool enter_page(struct process *process, const struct here *here, cu_ptr pointer, uint64_t bytes) {
    struct track_entry page = {.key = page_of(pointer), .kind = TRACK_PAGE, .device = (int16_t)here->device->ordinal};
    bool made = track_add(&process->track, &page, 1) == 1;
    __atomic_fetch_add(&here->device->small_bytes, bytes, __ATOMIC_RELAXED);
    if (made) __atomic_fetch_add(&here->device->small_pages, 1, __ATOMIC_RELAXED);
    return made;
}

// Takes it out again. Says whether the page went with it.
static bool leave_page(struct process *process, struct device *device, cu_ptr pointer, uint64_t bytes) {
    struct track_entry page = {.key = page_of(pointer), .kind = TRACK_PAGE};
    bool gone = track_add(&process->track, &page, -1) == 0;
    __atomic_fetch_sub(&device->small_bytes, bytes, __ATOMIC_RELAXED);
    if (gone) __atomic_fetch_sub(&device->small_pages, 1, __ATOMIC_RELAXED);
    return gone;
}

// Whether the pages that are there may have room for that much.
static bool may_fit(const struct device *device, uint64_t bytes) {
    uint64_t pages = __atomic_load_n(&device->small_pages, __ATOMIC_RELAXED);
    return pages * QUOTA_PAGE >= __atomic_load_n(&device->small_bytes, __ATOMIC_RELAXED) + bytes;
}

struct charge {
    uint64_t bytes;   // charged before the call
    bool small, paid; // small and not paid: only a page that is there will do
};

static bool charge_before(const struct here *here, uint64_t bytes, struct charge *charge) {
    *charge = (struct charge){.small = bytes <= QUOTA_SMALL, .bytes = quota_round(bytes, QUOTA_PAGE)};
    if (!charge->small) return charge_take(here->device, charge->bytes);
    charge->paid = charge_try(here->device, QUOTA_PAGE);
    if (charge->paid || may_fit(here->device, bytes)) return true;
    charge_refuse(here->device);
    return false;
}

static void charge_undo(const struct here *here, const struct charge *charge) {
    if (!charge->small || charge->paid) charge_give(here->device, charge->bytes);
}

// Records a block that the driver gave. False where it needed a page that the limit has no room for.
static bool charge_after(const struct here *here, const struct charge *charge, cu_ptr pointer, uint64_t bytes) {
    struct process *process = process_limited();
    struct track_entry entry = {.key = pointer, .kind = TRACK_POINTER, .owner = here->context, .bytes = charge->bytes,
                                .device = (int16_t)here->device->ordinal, .flags = (charge->small ? SMALL : 0) | here->number << 1};
    if (charge->small) {
        bool fresh = enter_page(process, here, pointer, bytes);
        if (fresh && !charge->paid) {
            leave_page(process, here->device, pointer, bytes);
            charge_refuse(here->device);
            return false;
        }
        if (!fresh && charge->paid) charge_give(here->device, QUOTA_PAGE);
        entry.bytes = bytes;
    }
    track_put(&process->track, &entry);
    context_has(process, &entry, here->number);
    return true;
}

void linear_forget(struct process *process, const struct track_entry *entry) {
    struct device *device = &process->devices[entry->device];
    export_ended(process, entry->key);
    if (!(entry->flags & SMALL)) charge_give(device, entry->bytes);
    else if (leave_page(process, device, entry->key, entry->bytes)) charge_give(device, QUOTA_PAGE);
}

EXPORT cu_result cuMemAlloc_v2(cu_ptr *pointer, size_t size) {
    struct here here;
    struct charge charge;
    DRIVER(cuMemAlloc_v2);
    if (pointer == NULL || size == 0 || !device_here(&here)) return real(pointer, size);
    if (!charge_before(&here, size, &charge)) return CU_OUT_OF_MEMORY;
    cu_ptr given = 0;
    cu_result result = real(&given, size);
    if (result != CU_OK) {
        charge_undo(&here, &charge);
        charge_driver_refused(here.device, result);
        return result;
    }
    if (!charge_after(&here, &charge, given, size)) {
        if (HAVE(cuMemFree_v2)) REAL(cuMemFree_v2)(given);
        return CU_OUT_OF_MEMORY;
    }
    *pointer = given;
    return CU_OK;
}

EXPORT cu_result cuMemAlloc(cu_ptr_v1 *pointer, unsigned size) {
    struct here here;
    struct charge charge;
    DRIVER(cuMemAlloc);
    if (pointer == NULL || size == 0 || !device_here(&here)) return real(pointer, size);
    if (!charge_before(&here, size, &charge)) return CU_OUT_OF_MEMORY;
    cu_ptr_v1 given = 0;
    cu_result result = real(&given, size);
    if (result != CU_OK) {
        charge_undo(&here, &charge);
        return result;
    }
    if (!charge_after(&here, &charge, given, size)) {
        if (HAVE(cuMemFree)) REAL(cuMemFree)(given);
        return CU_OUT_OF_MEMORY;
    }
    *pointer = given;
    return CU_OK;
}

// The rows' length is the driver's to choose: what it usually does is charged before, what it did afterwards.
#define PITCH 512u

EXPORT cu_result cuMemAllocPitch_v2(cu_ptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element) {
    struct here here;
    struct charge charge, more = {0};
    DRIVER(cuMemAllocPitch_v2);
    uint64_t expected = quota_product(quota_round(width, PITCH), height);
    if (pointer == NULL || pitch == NULL || expected == 0 || !device_here(&here)) {
        return real(pointer, pitch, width, height, element);
    }
    if (!charge_before(&here, expected, &charge)) return CU_OUT_OF_MEMORY;
    cu_ptr given = 0;
    size_t rows = 0;
    cu_result result = real(&given, &rows, width, height, element);
    if (result != CU_OK) {
        charge_undo(&here, &charge);
        charge_driver_refused(here.device, result);
        return result;
    }
    uint64_t taken = quota_product(rows, height);
    bool held = true;
    if (quota_round(taken, QUOTA_PAGE) != charge.bytes || (taken <= QUOTA_SMALL) != charge.small) {
        charge_undo(&here, &charge);
        held = charge_before(&here, taken, &more);
        charge = more;
    }
    if (!held || !charge_after(&here, &charge, given, taken)) {
        if (HAVE(cuMemFree_v2)) REAL(cuMemFree_v2)(given);
        return CU_OUT_OF_MEMORY;
    }
    *pointer = given;
    *pitch = rows;
    return CU_OK;
}

EXPORT cu_result cuMemAllocPitch(cu_ptr_v1 *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    struct here here;
    struct charge charge;
    DRIVER(cuMemAllocPitch);
    uint64_t expected = quota_product(quota_round(width, PITCH), height);
    if (pointer == NULL || pitch == NULL || expected == 0 || !device_here(&here)) {
        return real(pointer, pitch, width, height, element);
    }
    if (!charge_before(&here, expected, &charge)) return CU_OUT_OF_MEMORY;
    cu_ptr_v1 given = 0;
    cu_result result = real(&given, pitch, width, height, element);
    if (result != CU_OK) {
        charge_undo(&here, &charge);
        return result;
    }
    if (!charge_after(&here, &charge, given, expected)) {
        if (HAVE(cuMemFree)) REAL(cuMemFree)(given);
        return CU_OUT_OF_MEMORY;
    }
    *pointer = given;
    return CU_OK;
}

// Managed memory counts in full although its pages come one by one: all of them may be on the device at once.
EXPORT cu_result cuMemAllocManaged(cu_ptr *pointer, size_t size, unsigned flags) {
    struct here here;
    DRIVER(cuMemAllocManaged);
    if (pointer == NULL || size == 0 || !device_here(&here)) return real(pointer, size, flags);
    struct charge charge = {.bytes = quota_round(size, QUOTA_PAGE)};
    if (!charge_take(here.device, charge.bytes)) return CU_OUT_OF_MEMORY;
    cu_ptr given = 0;
    cu_result result = real(&given, size, flags);
    if (result != CU_OK) {
        charge_undo(&here, &charge);
        return result;
    }
    charge_after(&here, &charge, given, size);
    *pointer = given;
    return CU_OK;
}

// The entry goes before the driver's free, which may hand the address to another thread at once.
#define FREE(pointer, call)                                                                                  \
    struct process *process = process_limited();                                                             \
    struct track_entry entry;                                                                                \
    if (process == NULL || (pointer) == 0) return call;                                                      \
    bool linear = track_take(&process->track, TRACK_POINTER, pointer, &entry);                               \
    bool pooled = !linear && track_take(&process->track, TRACK_ASYNC, pointer, &entry);                      \
    cu_result result = call;                                                                                 \
    if (result != CU_OK && (linear || pooled)) track_put(&process->track, &entry);                           \
    if (result != CU_OK && linear) context_has(process, &entry, entry.flags >> 1);                           \
    if (result != CU_OK) return result;                                                                      \
    if (linear) linear_forget(process, &entry);                                                              \
    if (pooled) pool_freed(process, &entry, true);                                                                 \
    if (!linear && !pooled) {                                                            \
        import_freed(process, pointer);                                                            \
        graph_freed(process);                                                            \
    }                                                            \
    return result

EXPORT cu_result cuMemFree_v2(cu_ptr pointer) {
    DRIVER(cuMemFree_v2);
    FREE(pointer, real(pointer));
}

EXPORT cu_result cuMemFree(cu_ptr_v1 pointer) {
    DRIVER(cuMemFree);
    FREE(pointer, real(pointer));
}

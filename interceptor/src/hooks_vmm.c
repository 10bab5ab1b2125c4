// SPDX-License-Identifier: Apache-2.0
//
// Physical memory and where it is mapped. It is held as long as anything refers to it: a handle, a mapping, a place in a
// multicast object. Which of them goes last does not matter; create, map, release is the usual order.

#include "charge.h"
#include "export.h"
#include "quota.h"
#include "topics.h"

struct physical {
    struct physical *next_free;
    int device;
    uint64_t size;
    uint32_t references; // handles, mappings and bindings
    bool imported, exported;
    uint64_t import_free, import_paid; // of an import: what an exporter pays for, and what is paid here
};

// Records come from pieces of memory that are never given back; there are as many as were ever alive at once.
static struct physical *new_record(struct process *process) {
    enum { PIECE = 1 << 16 };
    struct physical *free_ones = process->mappings;
    if (free_ones == NULL) {
        struct physical *piece = track_memory(PIECE);
        if (piece == NULL) return NULL;
        for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
            piece[i].next_free = free_ones;
            free_ones = &piece[i];
        }
    }
    process->mappings = free_ones->next_free;
    *free_ones = (struct physical){0};
    return free_ones;
}

// One reference less; the last gives everything back. With the lock held.
static void put(struct process *process, struct physical *physical) {
    if (--physical->references > 0) return;
    struct device *device = &process->devices[physical->device];
    if (physical->imported) {
        if (physical->import_free > 0) charge_unimport(device, physical->import_free, 0);
        if (physical->import_paid > 0) charge_give(device, physical->import_paid);
    } else {
        if (physical->exported) charge_unexport(device, physical->size);
        charge_give(device, physical->size);
    }
    physical->next_free = process->mappings;
    process->mappings = physical;
}

static void add_handle(struct process *process, cu_phys handle, struct physical *physical) {
    struct track_entry entry = {.key = handle, .kind = TRACK_PHYSICAL, .owner = physical};
    track_add(&process->track, &entry, 1);
    physical->references++;
}

static struct physical *of_handle(struct process *process, cu_phys handle) {
    struct track_entry entry;
    return track_get(&process->track, TRACK_PHYSICAL, handle, &entry) ? entry.owner : NULL;
}

EXPORT cu_result cuMemCreate(cu_phys *handle, size_t size, const cu_phys_properties *properties, unsigned long long flags) {
    DRIVER(cuMemCreate);
    struct process *process = process_limited();
    struct device *device = NULL;
    if (process != NULL && handle != NULL && properties != NULL && properties->location.type == CU_LOCATION_DEVICE) {
        device = device_limited(properties->location.id);
    }
    if (device == NULL) return real(handle, size, properties, flags);
    if (!charge_take(device, size)) return CU_OUT_OF_MEMORY;
    cu_result result = real(handle, size, properties, flags);
    if (result != CU_OK) {
        charge_give(device, size);
        charge_driver_refused(device, result);
        return result;
    }
    lock_take(&process->vmm_lock);
    struct physical *made = new_record(process);
    if (made != NULL) {
        made->device = device->ordinal;
        made->size = size;
        add_handle(process, *handle, made);
    }
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMemRelease(cu_phys handle) {
    DRIVER(cuMemRelease);
    struct process *process = process_limited();
    struct track_entry entry = {.kind = TRACK_PHYSICAL, .key = handle};
    if (process == NULL) return real(handle);
    // The entry goes first: the driver may give the handle's number to another thread at once.
    lock_take(&process->vmm_lock);
    struct physical *physical = of_handle(process, handle);
    if (physical != NULL) track_add(&process->track, &entry, -1);
    lock_drop(&process->vmm_lock);
    cu_result result = real(handle);
    lock_take(&process->vmm_lock);
    if (physical != NULL && result == CU_OK) {
        put(process, physical);
    } else if (physical != NULL) {
        add_handle(process, handle, physical);
        physical->references--;
    }
    lock_drop(&process->vmm_lock);
    if (physical == NULL && result == CU_OK) vmm_unbind_all(process, (void *)(uintptr_t)handle); // a multicast object
    return result;
}

// How much there is behind an imported handle shows when it is mapped: then it is charged.
static bool charge_mapped(struct process *process, struct physical *physical, uint64_t end, uint64_t *added) {
    *added = 0;
    if (!physical->imported || end <= physical->size) return true;
    uint64_t paid;
    *added = end - physical->size;
    if (!charge_import(&process->devices[physical->device], *added, &paid)) {
        *added = 0;
        return false;
    }
    physical->size = end;
    physical->import_paid += paid;
    physical->import_free += *added - paid;
    return true;
}

EXPORT cu_result cuMemMap(cu_ptr pointer, size_t size, size_t offset, cu_phys handle, unsigned long long flags) {
    DRIVER(cuMemMap);
    struct process *process = process_limited();
    uint64_t added;
    if (process == NULL) return real(pointer, size, offset, handle, flags);
    lock_take(&process->vmm_lock);
    struct physical *physical = of_handle(process, handle);
    bool charged = physical == NULL || charge_mapped(process, physical, offset + size, &added);
    if (physical != NULL && charged) physical->references++; // it stays while the driver is asked
    lock_drop(&process->vmm_lock);
    if (!charged) return CU_OUT_OF_MEMORY;
    cu_result result = real(pointer, size, offset, handle, flags);
    if (physical == NULL) return result;
    lock_take(&process->vmm_lock);
    struct track_entry entry = {.key = pointer, .kind = TRACK_MAPPING, .bytes = size, .owner = physical};
    // A mapping that cannot be remembered keeps its reference, and with it the charge.
    if (result == CU_OK) track_put(&process->track, &entry);
    else put(process, physical);
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMemUnmap(cu_ptr pointer, size_t size) {
    DRIVER(cuMemUnmap);
    struct process *process = process_limited();
    struct track_entry entry;
    if (process == NULL) return real(pointer, size);
    // Under the lock, since the addresses can be mapped again as soon as the driver has answered.
    lock_take(&process->vmm_lock);
    cu_result result = real(pointer, size);
    for (cu_ptr at = pointer; result == CU_OK && at - pointer < size;) {
        bool known = track_take(&process->track, TRACK_MAPPING, at, &entry);
        at += known ? entry.bytes : QUOTA_PAGE;
        if (known) put(process, entry.owner);
    }
    lock_drop(&process->vmm_lock);
    return result;
}

// The memory mapped at an address, which may lie inside the mapping.
static struct physical *mapped_at(struct process *process, cu_ptr address) {
    struct track_entry entry;
    cu_ptr at = address & ~(QUOTA_PAGE - 1);
    for (int steps = 0; steps < 1 << 17; steps++, at -= QUOTA_PAGE) {
        if (track_get(&process->track, TRACK_MAPPING, at, &entry)) {
            return address - at < entry.bytes ? entry.owner : NULL;
        }
        if (at < QUOTA_PAGE) break;
    }
    return NULL;
}

EXPORT cu_result cuMemRetainAllocationHandle(cu_phys *handle, void *address) {
    DRIVER(cuMemRetainAllocationHandle);
    struct process *process = process_limited();
    cu_result result = real(handle, address);
    if (result != CU_OK || process == NULL) return result;
    lock_take(&process->vmm_lock);
    struct physical *physical = of_handle(process, *handle);
    if (physical == NULL) physical = mapped_at(process, (cu_ptr)(uintptr_t)address);
    if (physical != NULL) add_handle(process, *handle, physical);
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMemExportToShareableHandle(void *shareable, cu_phys handle, int type, unsigned long long flags) {
    DRIVER(cuMemExportToShareableHandle);
    struct process *process = process_limited();
    cu_result result = real(shareable, handle, type, flags);
    if (result != CU_OK || process == NULL) return result;
    lock_take(&process->vmm_lock);
    struct physical *physical = of_handle(process, handle);
    if (physical != NULL && !physical->imported && !physical->exported) {
        physical->exported = true;
        charge_export(&process->devices[physical->device], physical->size);
    }
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMemImportFromShareableHandle(cu_phys *handle, void *shareable, int type) {
    DRIVER(cuMemImportFromShareableHandle);
    struct process *process = process_limited();
    cu_phys_properties properties;
    cu_result result = real(handle, shareable, type);
    if (result != CU_OK || process == NULL || !HAVE(cuMemGetAllocationPropertiesFromHandle)) return result;
    lock_take(&process->vmm_lock);
    struct physical *physical = of_handle(process, *handle);
    if (physical == NULL && REAL(cuMemGetAllocationPropertiesFromHandle)(&properties, *handle) == CU_OK &&
        properties.location.type == CU_LOCATION_DEVICE && device_limited(properties.location.id) != NULL) {
        physical = new_record(process);
        if (physical != NULL) {
            physical->device = properties.location.id;
            physical->imported = true;
        }
    }
    if (physical != NULL) add_handle(process, *handle, physical);
    lock_drop(&process->vmm_lock);
    return result;
}

void vmm_unbind_all(struct process *process, const void *object) {
    struct track_entry binding;
    if (__atomic_load_n(&process->bindings, __ATOMIC_ACQUIRE) == 0) return;
    lock_take(&process->vmm_lock);
    while (track_take_owned(&process->track, TRACK_BINDING, object, &binding)) {
        put(process, (struct physical *)(uintptr_t)binding.bytes);
    }
    lock_drop(&process->vmm_lock);
}

static uint64_t place_in(cu_phys multicast, size_t offset, int device) {
    return (multicast * 31 + offset) * 64 + (uint64_t)device;
}

// The memory is held by an object too, a multicast object or a sparse array. A place holds one
// memory at a time.
static void bind(struct process *process, uint64_t place, void *object, struct physical *physical) {
    struct track_entry entry = {.key = place, .kind = TRACK_BINDING, .owner = object, .bytes = (uintptr_t)physical}, before;
    if (physical == NULL) return;
    if (track_take(&process->track, TRACK_BINDING, place, &before)) put(process, (struct physical *)(uintptr_t)before.bytes);
    physical->references++;
    track_put(&process->track, &entry);
    __atomic_store_n(&process->bindings, 1, __ATOMIC_RELEASE);
}

static void bound(struct process *process, cu_phys multicast, size_t offset, struct physical *physical) {
    if (physical != NULL) {
        bind(process, place_in(multicast, offset, physical->device), (void *)(uintptr_t)multicast, physical);
    }
}

// One number for a part of a sparse array.
static uint64_t place_of(const cu_array_map *map) {
    const unsigned *words = (const unsigned *)&map->subresource;
    size_t count = (map->subresource_type == 0 ? sizeof map->subresource.tile : sizeof map->subresource.tail) / sizeof *words;
    uint64_t hash = (uintptr_t)map->resource;
    for (size_t i = 0; i < count; i++) {
        // The second word of a tail is padding.
        if (map->subresource_type == 0 || i != 1) hash = (hash ^ words[i]) * 0x100000001b3ull;
    }
    return hash;
}

static cu_result array_mapped(const cu_array_map *list, unsigned count, cu_result result) {
    struct process *process = process_limited();
    struct track_entry entry;
    if (result != CU_OK || process == NULL || list == NULL) return result;
    lock_take(&process->vmm_lock);
    for (unsigned i = 0; i < count; i++) {
        uint64_t place = place_of(&list[i]);
        if (list[i].operation == CU_MAP) bind(process, place, list[i].resource, of_handle(process, list[i].handle));
        else if (track_take(&process->track, TRACK_BINDING, place, &entry)) {
            put(process, (struct physical *)(uintptr_t)entry.bytes);
        }
    }
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMemMapArrayAsync(cu_array_map *list, unsigned count, cu_stream stream) {
    DRIVER(cuMemMapArrayAsync);
    return array_mapped(list, count, real(list, count, stream));
}

EXPORT cu_result cuMemMapArrayAsync_ptsz(cu_array_map *list, unsigned count, cu_stream stream) {
    DRIVER(cuMemMapArrayAsync_ptsz);
    return array_mapped(list, count, real(list, count, stream));
}

EXPORT cu_result cuMulticastBindMem(cu_phys multicast, size_t offset, cu_phys handle, size_t from, size_t size,
                                    unsigned long long flags) {
    DRIVER(cuMulticastBindMem);
    struct process *process = process_limited();
    cu_result result = real(multicast, offset, handle, from, size, flags);
    if (result != CU_OK || process == NULL) return result;
    lock_take(&process->vmm_lock);
    bound(process, multicast, offset, of_handle(process, handle));
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMulticastBindAddr(cu_phys multicast, size_t offset, cu_ptr pointer, size_t size, unsigned long long flags) {
    DRIVER(cuMulticastBindAddr);
    struct process *process = process_limited();
    cu_result result = real(multicast, offset, pointer, size, flags);
    if (result != CU_OK || process == NULL) return result;
    lock_take(&process->vmm_lock);
    bound(process, multicast, offset, mapped_at(process, pointer));
    lock_drop(&process->vmm_lock);
    return result;
}

EXPORT cu_result cuMulticastUnbind(cu_phys multicast, cu_device device, size_t offset, size_t size) {
    DRIVER(cuMulticastUnbind);
    struct process *process = process_limited();
    struct track_entry entry;
    if (process == NULL) return real(multicast, device, offset, size);
    lock_take(&process->vmm_lock);
    cu_result result = real(multicast, device, offset, size);
    if (result == CU_OK && track_take(&process->track, TRACK_BINDING, place_in(multicast, offset, device), &entry)) {
        put(process, (struct physical *)(uintptr_t)entry.bytes);
    }
    lock_drop(&process->vmm_lock);
    return result;
}

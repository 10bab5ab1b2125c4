// SPDX-License-Identifier: Apache-2.0
// Addresses and physical memory apart: reserve, create, map, and back in any order.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "physical.h"

struct reservation {
    struct reservation *next;
    cu_pointer at;
    size_t size;
    void *mapped; // with room to lie at a page's beginning
    size_t mapped_size;
};

static struct reservation *reservations;

static cu_result check(struct core *core, const cu_physical_properties *p) {
    if (p == NULL || p->type != CU_ALLOCATION_PINNED) return CU_INVALID_VALUE;
    if (p->location.type < CU_LOCATION_DEVICE || p->location.type > CU_LOCATION_HOST_NUMA_CURRENT) return CU_INVALID_VALUE;
    if ((p->handle_types & ~CU_HANDLE_FD) != 0) return CU_NOT_SUPPORTED;
    return p->location.type == CU_LOCATION_DEVICE && core_device(core, p->location.id) == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

CU_API cu_result cuMemGetAllocationGranularity(size_t *granularity, const cu_physical_properties *properties, int option) {
    struct core *core;
    if (granularity == NULL || option < 0 || option > 1) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = check(core, properties);
    if (result == CU_SUCCESS) *granularity = PAGE_BYTES;
    core_leave(core);
    return result;
}

CU_API cu_result cuMemCreate(cu_physical *handle, size_t size, const cu_physical_properties *properties,
                             unsigned long long flags) {
    struct core *core;
    struct physical *made;
    if (handle == NULL || size == 0 || size % PAGE_BYTES != 0 || flags != 0) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = check(core, properties);
    if (result == CU_SUCCESS) result = physical_make(core, properties, size, properties->handle_types != 0, &made);
    if (result == CU_SUCCESS) *handle = (cu_physical)(uintptr_t)made;
    core_leave(core);
    return result;
}

// Enters with a physical allocation that a handle refers to.
static cu_result enter(cu_physical handle, struct core **core, struct physical **physical) {
    cu_result result = core_enter(core);
    if (result != CU_SUCCESS) return result;
    *physical = physical_find(handle);
    if (*physical != NULL && (*physical)->handles > 0) return CU_SUCCESS;
    core_leave(*core);
    return CU_INVALID_VALUE;
}

CU_API cu_result cuMemRelease(cu_physical handle) {
    struct core *core;
    struct physical *physical;
    cu_result result = enter(handle, &core, &physical);
    if (result != CU_SUCCESS) return result;
    physical->handles--;
    physical_put(core, physical);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuMemGetAllocationPropertiesFromHandle(cu_physical_properties *properties, cu_physical handle) {
    struct core *core;
    struct physical *physical;
    if (properties == NULL) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &physical);
    if (result != CU_SUCCESS) return result;
    *properties = physical->properties;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuMemAddressReserve(cu_pointer *pointer, size_t size, size_t alignment, cu_pointer wanted,
                                     unsigned long long flags) {
    struct core *core;
    (void)wanted;
    if (pointer == NULL || size == 0 || size % PAGE_BYTES != 0 || flags != 0) return CU_INVALID_VALUE;
    if (alignment < PAGE_BYTES) alignment = PAGE_BYTES;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct reservation *made = calloc(1, sizeof *made);
    void *mapped = made == NULL ? MAP_FAILED : mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        free(made);
        result = CU_OUT_OF_MEMORY;
    } else {
        *made = (struct reservation){.next = reservations, .at = round_up((uintptr_t)mapped, alignment), .size = size,
                                     .mapped = mapped, .mapped_size = size + alignment};
        reservations = made;
        *pointer = made->at;
    }
    core_leave(core);
    return result;
}

static int mapped_within(cu_pointer at, size_t size) {
    for (cu_pointer p = at; p < at + size; p += PAGE_BYTES) {
        if (space_holding(p) != NULL) return 1;
    }
    return 0;
}

CU_API cu_result cuMemAddressFree(cu_pointer at, size_t size) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct reservation **link = &reservations;
    while (*link != NULL && ((*link)->at != at || (*link)->size != size)) link = &(*link)->next;
    struct reservation *found = *link;
    if (found == NULL || mapped_within(at, size)) {
        result = CU_INVALID_VALUE;
    } else {
        *link = found->next;
        munmap(found->mapped, found->mapped_size);
        free(found);
    }
    core_leave(core);
    return result;
}

static int reserved(cu_pointer at, size_t size) {
    for (const struct reservation *r = reservations; r != NULL; r = r->next) {
        if (at >= r->at && at - r->at <= r->size && size <= r->size - (at - r->at)) return 1;
    }
    return 0;
}

static void unmapped(struct core *core, struct range *range) {
    if (range->real) mprotect(range->base, range->size < 64 * MIB ? range->size : 64 * MIB, PROT_NONE);
    physical_put(core, range->owner);
}

CU_API cu_result cuMemMap(cu_pointer at, size_t size, size_t offset, cu_physical handle, unsigned long long flags) {
    struct core *core;
    struct physical *physical;
    if (size == 0 || size % PAGE_BYTES != 0 || at % PAGE_BYTES != 0 || flags != 0) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &physical);
    if (result != CU_SUCCESS) return result;
    struct range *range = NULL;
    if (offset != 0 || size > physical->size || !reserved(at, size) || mapped_within(at, size)) {
        result = CU_INVALID_VALUE;
    } else {
        range = calloc(1, sizeof *range);
        result = range == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
    }
    if (result == CU_SUCCESS) {
        *range = (struct range){.kind = SPACE_MAPPED, .device = physical->device < 0 ? 0 : physical->device,
                                .base = (unsigned char *)(uintptr_t)at, .size = size, .owner = physical, .closing = unmapped};
        if (space_add(range, at, size)) {
            physical->references++;
        } else {
            free(range);
            result = CU_OUT_OF_MEMORY;
        }
    }
    core_leave(core);
    return result;
}

// A call may take away several mappings, but none in part.
static cu_result whole_mappings(cu_pointer at, size_t size) {
    for (cu_pointer p = at; p < at + size;) {
        const struct allocation *found = space_at(p);
        if (found == NULL || found->range->kind != SPACE_MAPPED || found->size > size - (p - at)) return CU_INVALID_VALUE;
        p += found->size;
    }
    return CU_SUCCESS;
}

CU_API cu_result cuMemUnmap(cu_pointer at, size_t size) {
    struct core *core;
    if (size == 0 || size % PAGE_BYTES != 0) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = whole_mappings(at, size);
    for (cu_pointer p = at; result == CU_SUCCESS && p < at + size;) {
        struct allocation *found = space_at(p);
        p += found->size;
        space_remove(core, found);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemSetAccess(cu_pointer at, size_t size, const cu_access *access, size_t count) {
    struct core *core;
    if (access == NULL || count == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = whole_mappings(at, size);
    core_leave(core);
    return result;
}

CU_API cu_result cuMemGetAccess(unsigned long long *flags, const cu_location *location, cu_pointer at) {
    enum { READ_WRITE = 3 };
    struct core *core;
    if (flags == NULL || location == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    *flags = READ_WRITE;
    result = space_holding(at) == NULL ? CU_INVALID_VALUE : CU_SUCCESS;
    core_leave(core);
    return result;
}

CU_API cu_result cuMemRetainAllocationHandle(cu_physical *handle, void *address) {
    struct core *core;
    if (handle == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_holding((cu_pointer)(uintptr_t)address);
    if (found == NULL || found->range->kind != SPACE_MAPPED) {
        result = CU_INVALID_VALUE;
    } else {
        struct physical *physical = found->range->owner;
        physical->references++;
        physical->handles++;
        *handle = (cu_physical)(uintptr_t)physical;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuMemExportToShareableHandle(void *out, cu_physical handle, int type, unsigned long long flags) {
    struct core *core;
    struct physical *physical;
    if (out == NULL || type != CU_HANDLE_FD || flags != 0) return CU_INVALID_VALUE;
    cu_result result = enter(handle, &core, &physical);
    if (result != CU_SUCCESS) return result;
    int fd = -1;
    if (physical->object >= 0) {
        fg_lock(&core->db);
        fg_publish(&core->db.state->objects[physical->object].exported, 1);
        fd = fg_object_descriptor(&core->db, physical->object);
        fg_unlock(&core->db);
        result = fd < 0 ? CU_OPERATING_SYSTEM : CU_SUCCESS;
    } else {
        result = CU_INVALID_VALUE; // it was not made for that
    }
    if (result == CU_SUCCESS) memcpy(out, &fd, sizeof fd);
    core_leave(core);
    return result;
}

CU_API cu_result cuMemImportFromShareableHandle(cu_physical *handle, void *descriptor, int type) {
    struct core *core;
    struct physical *made;
    if (handle == NULL || type != CU_HANDLE_FD) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    int object = fg_object_described(&core->db, (int)(intptr_t)descriptor);
    result = object < 0 ? CU_INVALID_VALUE : physical_import(core, object, &made);
    if (result == CU_SUCCESS) *handle = (cu_physical)(uintptr_t)made;
    core_leave(core);
    return result;
}

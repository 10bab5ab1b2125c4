// SPDX-License-Identifier: Apache-2.0
#include "physical.h"

#include <stdlib.h>

#include "state/limit.h"
#include "state/object.h"

static struct physical *all;

static struct physical *add(struct physical value) {
    struct physical *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    *made = value;
    made->next = all;
    all = made;
    return made;
}

// The shared object is made with its bytes, so that they are charged once, wherever a process is killed.
static cu_result charge_shared(struct core *core, struct device *device, uint64_t size, int *object) {
    cu_result result = core_appear(core, device);
    if (result != CU_SUCCESS) return result;
    fg_locate(&core->db, device->slot);
    fg_lock(&core->db);
    *object = core_fits(core, device, size) ? fg_object_add(&core->db, device->slot, size) : -1;
    fg_unlock(&core->db);
    if (*object >= 0) return CU_SUCCESS;
    core_vanish(core, device);
    return CU_OUT_OF_MEMORY;
}

cu_result physical_make(struct core *core, const cu_physical_properties *properties, uint64_t size, int shared,
                        struct physical **made) {
    int device = properties->location.type == CU_LOCATION_DEVICE ? properties->location.id : -1;
    int object = -1;
    cu_result result = CU_SUCCESS;
    if (device >= 0) {
        result = shared ? charge_shared(core, &core->devices[device], size, &object) : core_charge(core, &core->devices[device], size);
    }
    if (result != CU_SUCCESS) return result;
    *made = add((struct physical){.device = device, .size = size, .references = 1, .handles = 1, .object = object,
                                  .properties = *properties});
    return *made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
}

// The process's device that the object lies on.
static int device_of(const struct core *core, const struct fg_object *object) {
    for (int i = 0; i < core->device_count; i++) {
        if (core->devices[i].gpu == object->gpu && core->devices[i].gi == object->gi) return i;
    }
    return -1;
}

cu_result physical_import(struct core *core, int object, struct physical **made) {
    const struct fg_object *shared = &core->db.state->objects[object];
    int index = device_of(core, shared);
    if (index < 0) return CU_INVALID_DEVICE;
    for (struct physical *p = all; p != NULL; p = p->next) {
        if (p->object != object) continue;
        p->references++;
        p->handles++;
        *made = p;
        return CU_SUCCESS;
    }
    struct device *device = &core->devices[index];
    cu_result result = core_appear(core, device);
    if (result != CU_SUCCESS) return result;
    fg_lock(&core->db);
    int held = fg_read(&shared->used) && fg_object_hold(&core->db, object, device->slot) == 0;
    fg_unlock(&core->db);
    if (!held) return CU_OPERATING_SYSTEM;
    *made = add((struct physical){.device = index, .size = shared->bytes, .references = 1, .handles = 1, .object = object,
                                  .properties = {.type = CU_ALLOCATION_PINNED, .handle_types = CU_HANDLE_FD,
                                                 .location = {CU_LOCATION_DEVICE, index}}});
    return *made == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
}

struct physical *physical_find(cu_physical handle) {
    for (struct physical *p = all; p != NULL; p = p->next) {
        if ((cu_physical)(uintptr_t)p == handle) return p;
    }
    return NULL;
}

void physical_put(struct core *core, struct physical *physical) {
    if (--physical->references > 0) return;
    for (struct physical **link = &all; *link != NULL; link = &(*link)->next) {
        if (*link != physical) continue;
        *link = physical->next;
        break;
    }
    if (physical->device >= 0) {
        struct device *device = &core->devices[physical->device];
        if (physical->object < 0) {
            core_refund(core, device, physical->size);
        } else {
            fg_lock(&core->db);
            fg_object_drop(&core->db, physical->object, device->slot);
            fg_unlock(&core->db);
            core_vanish(core, device);
        }
    }
    free(physical);
}

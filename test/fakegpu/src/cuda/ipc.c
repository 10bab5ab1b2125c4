// SPDX-License-Identifier: Apache-2.0
// Handing linear memory to other processes. The exporter pays while it lives, then whoever has it open.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "space.h"
#include "state/object.h"

struct ticket {
    uint32_t object, generation, pid, reserved;
    uint64_t offset, size;
};

// One range that this process gave out or opened.
struct shared {
    int object, opened;
};

static void closing(struct core *core, struct range *range) {
    struct shared *shared = range->owner;
    struct device *device = &core->devices[range->device];
    fg_lock(&core->db);
    fg_object_drop(&core->db, shared->object, device->slot);
    fg_unlock(&core->db);
    core_vanish(core, device);
    free(shared);
}

// From now on the range's memory is an object's. Killed between the two stores, the process takes its bytes along.
static cu_result give_out(struct core *core, struct range *range) {
    struct shared *shared = calloc(1, sizeof *shared);
    struct fg_proc *own = &core->db.state->procs[core->devices[range->device].slot];
    if (shared == NULL) return CU_OUT_OF_MEMORY;
    fg_lock(&core->db);
    shared->object = fg_object_add(&core->db, core->devices[range->device].slot, range->charged);
    if (shared->object >= 0) __atomic_fetch_sub(&own->bytes, range->charged, __ATOMIC_RELEASE);
    fg_unlock(&core->db);
    if (shared->object < 0) {
        free(shared);
        return CU_OUT_OF_MEMORY;
    }
    range->charged = 0;
    range->owner = shared;
    range->closing = closing;
    return CU_SUCCESS;
}

CU_API cu_result cuIpcGetMemHandle(cu_ipc_handle *handle, cu_pointer pointer) {
    struct core *core;
    cu_context context;
    if (handle == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    const struct allocation *found = space_holding(pointer);
    if (found == NULL || found->range->kind != SPACE_LINEAR) {
        result = CU_INVALID_VALUE;
    } else if (found->range->owner == NULL) {
        result = give_out(core, found->range);
    }
    if (result == CU_SUCCESS) {
        const struct shared *shared = found->range->owner;
        struct ticket ticket = {.object = (uint32_t)shared->object, .pid = (uint32_t)getpid(),
                                .generation = core->db.state->objects[shared->object].generation,
                                .offset = found->at - (cu_pointer)(uintptr_t)found->range->base, .size = found->size};
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &ticket, sizeof ticket);
    }
    core_leave(core);
    return result;
}

static cu_result open_object(struct core *core, cu_context context, const struct ticket *ticket, cu_pointer *pointer) {
    const struct fg_object *object = &core->db.state->objects[ticket->object];
    struct device *device = &core->devices[context->device];
    struct range *range;
    if (object->gpu != device->gpu || object->gi != device->gi) return CU_INVALID_DEVICE;
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL) return CU_OUT_OF_MEMORY;
    *shared = (struct shared){.object = (int)ticket->object, .opened = 1};
    fg_lock(&core->db);
    int held = fg_read(&object->used) && object->generation == ticket->generation &&
               fg_object_hold(&core->db, shared->object, device->slot) == 0;
    fg_unlock(&core->db);
    cu_result result = held ? space_single(SPACE_IPC, context->device, context, object->bytes, &range) : CU_INVALID_HANDLE;
    if (result != CU_SUCCESS) {
        free(shared);
        return result;
    }
    range->owner = shared;
    range->closing = closing;
    *pointer = (cu_pointer)(uintptr_t)range->base;
    return CU_SUCCESS;
}

CU_API cu_result cuIpcOpenMemHandle_v2(cu_pointer *pointer, cu_ipc_handle handle, unsigned flags) {
    struct core *core;
    cu_context context;
    struct ticket ticket;
    memcpy(&ticket, &handle, sizeof ticket);
    if (pointer == NULL || flags > 1) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    if (ticket.object >= FG_MAX_OBJECTS) {
        result = CU_INVALID_HANDLE;
    } else if (ticket.pid == (uint32_t)getpid()) {
        result = CU_INVALID_CONTEXT; // one's own cannot be opened
    } else {
        result = open_object(core, context, &ticket, pointer);
    }
    if (result == CU_SUCCESS) *pointer += ticket.offset;
    core_leave(core);
    return result;
}

CU_API cu_result cuIpcOpenMemHandle(cu_pointer *pointer, cu_ipc_handle handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CU_API cu_result cuIpcCloseMemHandle(cu_pointer pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    struct allocation *found = space_holding(pointer);
    if (found == NULL || found->range->kind != SPACE_IPC) {
        result = CU_INVALID_VALUE;
    } else {
        space_remove(core, found);
    }
    core_leave(core);
    return result;
}

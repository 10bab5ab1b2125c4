// SPDX-License-Identifier: Apache-2.0
// Contexts: the process's place on a device, and each thread's stack of them.
#include <stdlib.h>
#include <unistd.h>

#include "core.h"
#include "state/proc.h"

#define STACK_DEPTH 64

static __thread cu_context stack[STACK_DEPTH];
static __thread int depth;

cu_context core_current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

static int push(cu_context context) {
    if (depth == STACK_DEPTH) return 0;
    stack[depth++] = context;
    return 1;
}

// A busy word of the GPU that no other living process has.
static uint32_t free_lane(struct core *core, unsigned gpu) {
    uint64_t taken = 0;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &core->db.state->procs[i];
        if (fg_read(&p->kind) == FG_PROC_CUDA && p->gpu == gpu && p->lane < FG_LANES) taken |= 1ull << p->lane;
    }
    return ~taken == 0 ? FG_LANES : (uint32_t)__builtin_ctzll(~taken);
}

// Registers the process on the device with its first context.
static cu_result appear(struct core *core, struct device *device) {
    const uint64_t bytes = (uint64_t)CONTEXT_MIB << 20;
    cu_result result = CU_OUT_OF_MEMORY;
    fg_lock(&core->db);
    uint64_t used = core_used(core, device);
    if (used <= device->memory && bytes <= device->memory - used) {
        struct fg_proc record = {.kind = FG_PROC_CUDA, .pid = (uint32_t)getpid(), .pid_ns = fg_own_pid_ns(),
                                 .bytes = bytes, .gpu = device->gpu, .gi = device->gi, .ci = device->ci,
                                 .lane = free_lane(core, device->gpu)};
        record.start_time = fg_process_start(record.pid);
        device->slot = fg_proc_add(&core->db, &record);
        result = device->slot < 0 || fg_hold_slot(&core->db, device->slot) != 0 ? CU_OPERATING_SYSTEM : CU_SUCCESS;
    }
    fg_unlock(&core->db);
    return result;
}

static void vanish(struct core *core, struct device *device) {
    fg_lock(&core->db);
    fg_publish(&core->db.state->procs[device->slot].kind, FG_PROC_FREE);
    fg_release_slot(&core->db, device->slot);
    fg_unlock(&core->db);
    device->slot = -1;
}

static cu_result make(struct core *core, cu_device index, unsigned flags, cu_context *made) {
    struct device *device = core_device(core, index);
    if (device == NULL) return CU_INVALID_DEVICE;
    cu_context context = calloc(1, sizeof *context);
    cu_stream streams = calloc(2, sizeof *streams); // default and per-thread, never destroyed alone
    cu_result result = context == NULL || streams == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
    if (result == CU_SUCCESS && device->contexts == 0) result = appear(core, device);
    if (result != CU_SUCCESS) {
        free(context);
        free(streams);
        return result;
    }
    streams[0] = (struct cu_stream_st){.next = &streams[1], .context = context};
    streams[1] = (struct cu_stream_st){.context = context};
    *context = (struct cu_context_st){.next = core->contexts, .device = index, .flags = flags, .streams = streams};
    core->contexts = context;
    device->contexts++;
    *made = context;
    return CU_SUCCESS;
}

static void destroy(struct core *core, cu_context context) {
    struct device *device = &core->devices[context->device];
    for (cu_context *link = &core->contexts; *link != NULL; link = &(*link)->next) {
        if (*link != context) continue;
        *link = context->next;
        break;
    }
    core_drop_allocations(core, context);
    core_drop_modules(context);
    core_drop_events(context);
    for (cu_stream s = context->streams->next->next; s != NULL;) {
        cu_stream next = s->next;
        free(s);
        s = next;
    }
    free(context->streams);
    free(context);
    if (--device->contexts == 0) vanish(core, device);
}

CU_API cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device) {
    struct core *core;
    if (context == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = make(core, device, flags, context);
    if (result == CU_SUCCESS && !push(*context)) {
        destroy(core, *context);
        result = CU_OPERATING_SYSTEM;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuCtxDestroy_v2(cu_context context) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (!core_context_known(core, context) || context == core->devices[context->device].primary) {
        result = CU_INVALID_CONTEXT;
    } else {
        destroy(core, context);
        if (depth > 0 && stack[depth - 1] == context) depth--;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device index) {
    struct core *core;
    if (context == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device == NULL) {
        result = CU_INVALID_DEVICE;
    } else if (device->primary == NULL) {
        result = make(core, index, device->primary_flags, &device->primary);
    }
    if (result == CU_SUCCESS) {
        device->primary_references++;
        *context = device->primary;
    }
    core_leave(core);
    return result;
}

static cu_result release_primary(cu_device index, int all) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device == NULL) {
        result = CU_INVALID_DEVICE;
    } else if (device->primary == NULL) {
        result = all ? CU_SUCCESS : CU_INVALID_CONTEXT;
    } else if (all || --device->primary_references == 0) {
        cu_context context = device->primary;
        device->primary = NULL;
        device->primary_references = 0;
        destroy(core, context);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) { return release_primary(device, 0); }
CU_API cu_result cuDevicePrimaryCtxReset_v2(cu_device device) { return release_primary(device, 1); }

CU_API cu_result cuDevicePrimaryCtxGetState(cu_device index, unsigned *flags, int *active) {
    struct core *core;
    if (flags == NULL || active == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    const struct device *device = core_device(core, index);
    if (device != NULL) {
        *flags = device->primary_flags;
        *active = device->primary != NULL;
    }
    core_leave(core);
    return device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

CU_API cu_result cuDevicePrimaryCtxSetFlags_v2(cu_device index, unsigned flags) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device != NULL) device->primary_flags = flags;
    core_leave(core);
    return device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

CU_API cu_result cuCtxGetCurrent(cu_context *context) {
    struct core *core;
    if (context == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    *context = core_current();
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuCtxSetCurrent(cu_context context) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (context != NULL && !core_context_known(core, context)) {
        result = CU_INVALID_CONTEXT;
    } else {
        if (depth > 0) depth--; // the top is replaced, or popped by NULL
        if (context != NULL) push(context);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuCtxPushCurrent_v2(cu_context context) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (context == NULL || !core_context_known(core, context)) {
        result = CU_INVALID_CONTEXT;
    } else if (!push(context)) {
        result = CU_OPERATING_SYSTEM;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuCtxPopCurrent_v2(cu_context *context) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (depth == 0) {
        result = CU_INVALID_CONTEXT;
    } else {
        depth--;
        if (context != NULL) *context = stack[depth];
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuCtxGetDevice(cu_device *device) {
    struct core *core;
    cu_context context;
    if (device == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    *device = context->device;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuCtxGetFlags(unsigned *flags) {
    struct core *core;
    cu_context context;
    if (flags == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    *flags = context->flags;
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuCtxSynchronize(void) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    uint64_t end = core_context_end(context);
    core_leave(core);
    core_wait_until(end);
    return CU_SUCCESS;
}

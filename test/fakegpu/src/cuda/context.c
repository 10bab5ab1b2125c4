// SPDX-License-Identifier: Apache-2.0
// Contexts: the process's place on a device, and each thread's stack of them.
#include <stdlib.h>
#include <unistd.h>

#include "capture.h"
#include "context.h"
#include "state/object.h"
#include "state/proc.h"

#define STACK_DEPTH 64

static __thread cu_context stack[STACK_DEPTH];
static __thread int depth;

cu_context core_current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

int context_push(cu_context context) {
    if (depth == STACK_DEPTH) return 0;
    stack[depth++] = context;
    return 1;
}

cu_result core_appear(struct core *core, struct device *device) {
    if (device->slot >= 0) return CU_SUCCESS;
    cu_result result = CU_SUCCESS;
    fg_lock(&core->db);
    struct fg_proc record = {.kind = FG_PROC_CUDA, .pid = (uint32_t)getpid(), .pid_ns = fg_own_pid_ns(),
                             .gpu = device->gpu, .gi = device->gi, .ci = device->ci, .lane = FG_LANES};
    record.start_time = fg_process_start(record.pid);
    device->slot = fg_proc_add(&core->db, &record);
    if (device->slot < 0 || fg_hold_slot(&core->db, device->slot) != 0) {
        result = CU_OPERATING_SYSTEM;
    } else {
        struct fg_lane lane = {.gpu = device->gpu, .gi = device->gi, .ci = device->ci};
        // Without a /proc, in a root directory of its own, a process cannot tell which namespace its PID is of.
        if (record.pid_ns == 0) fg_show_pid(&core->db, device->slot);
        core->db.state->procs[device->slot].lane = fg_lane_take(&core->db, (uint32_t)device->slot, &lane);
    }
    fg_unlock(&core->db);
    return result;
}

void core_vanish(struct core *core, struct device *device) {
    if (device->slot < 0 || device->contexts > 0) return;
    fg_lock(&core->db);
    const struct fg_proc *p = &core->db.state->procs[device->slot];
    if (p->bytes == 0 && p->managed == 0 && fg_object_held(&core->db, device->slot) == 0) {
        fg_proc_free(&core->db, device->slot);
        fg_release_slot(&core->db, device->slot);
        device->slot = -1;
    }
    fg_unlock(&core->db);
}

// NVML lists the processes that have contexts.
static void tell_contexts(struct core *core, const struct device *device) {
    fg_publish(&core->db.state->procs[device->slot].contexts, (uint32_t)device->contexts);
}

cu_result context_make(struct core *core, cu_device index, unsigned flags, cu_context *made) {
    struct device *device = core_device(core, index);
    if (device == NULL) return CU_INVALID_DEVICE;
    cu_context context = calloc(1, sizeof *context);
    cu_stream streams = calloc(2, sizeof *streams); // never destroyed alone
    cu_result result = context == NULL || streams == NULL ? CU_OUT_OF_MEMORY : CU_SUCCESS;
    if (result == CU_SUCCESS) result = core_charge(core, device, (uint64_t)CONTEXT_MIB << 20);
    if (result != CU_SUCCESS) {
        free(context);
        free(streams);
        return result;
    }
    streams[0] = (struct cu_stream_st){.next = &streams[1], .context = context};
    streams[1] = (struct cu_stream_st){.context = context};
    *context = (struct cu_context_st){.next = core->contexts, .device = index, .flags = flags, .streams = streams,
                                      .limits = {1024, 8650752, 8388608}};
    core->contexts = context;
    device->contexts++;
    tell_contexts(core, device);
    *made = context;
    return CU_SUCCESS;
}

void context_destroy(struct core *core, cu_context context) {
    struct device *device = &core->devices[context->device];
    core_drop_allocations(core, context);
    core_drop_modules(core, context);
    uint64_t bytes = ((uint64_t)CONTEXT_MIB << 20) + context->green_bytes + context->stack_charged;
    core_drop_events(core, context);
    for (cu_stream rest = context->streams->next, s; (s = rest->next) != NULL;) {
        capture_forget(core, s);
        rest->next = s->next;
        free(s);
    }
    for (cu_context *link = &core->contexts; *link != NULL; link = &(*link)->next) {
        if (*link != context) continue;
        *link = context->next;
        break;
    }
    free(context->streams);
    free(context);
    device->contexts--;
    tell_contexts(core, device);
    core_refund(core, device, bytes);
}

CU_API cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device) {
    struct core *core;
    if (context == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = context_make(core, device, flags, context);
    if (result == CU_SUCCESS && !context_push(*context)) {
        context_destroy(core, *context);
        result = CU_OPERATING_SYSTEM;
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuCtxCreate(cu_context *context, unsigned flags, cu_device device) {
    return cuCtxCreate_v2(context, flags, device);
}

CU_API cu_result cuCtxCreate_v3(cu_context *context, void *affinities, int count, unsigned flags, cu_device device) {
    (void)affinities, (void)count;
    return cuCtxCreate_v2(context, flags, device);
}

CU_API cu_result cuCtxCreate_v4(cu_context *context, void *parameters, unsigned flags, cu_device device) {
    (void)parameters;
    return cuCtxCreate_v2(context, flags, device);
}

CU_API cu_result cuCtxDestroy_v2(cu_context context) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (!core_context_known(core, context) || context == core->devices[context->device].primary) {
        result = CU_INVALID_CONTEXT;
    } else {
        context_destroy(core, context);
        if (depth > 0 && stack[depth - 1] == context) depth--;
    }
    core_leave(core);
    return result;
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
        if (context != NULL) context_push(context);
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
    } else if (!context_push(context)) {
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

// After a wait pools give back what they need not keep.
static cu_result settle(void) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    core_synchronised(core);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuCtxSynchronize(void) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    core_leave_until_done(core, context->device, core_context_last(context), core_how(context));
    return settle();
}

CU_API cu_result cuCtxSynchronize_v2(cu_context which) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (which == NULL) which = core_current();
    result = which == NULL || !core_context_known(core, which) ? CU_INVALID_CONTEXT : capture_forbids(core);
    if (result != CU_SUCCESS) {
        core_leave(core);
        return result;
    }
    core_leave_until_done(core, which->device, core_context_last(which), core_how(which));
    return settle();
}

CU_API cu_result cuCtxGetDevice_v2(cu_device *device, cu_context which) {
    struct core *core;
    if (device == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    if (which == NULL) which = core_current();
    result = which == NULL || !core_context_known(core, which) ? CU_INVALID_CONTEXT : CU_SUCCESS;
    if (result == CU_SUCCESS) *device = which->device;
    core_leave(core);
    return result;
}

// SPDX-License-Identifier: Apache-2.0
// Launches. A kernel takes the whole GPU: kernels of a process run one after
// another, and processes that have work at the same time get equal parts of it.
#include <string.h>

#include "capture.h"
#include "module.h"
#include "work.h"

#define MAX_THREADS_OF_A_BLOCK 1024u

cu_result cuCtxSetCurrent(cu_context context);

// The first arguments, of eight bytes each, from either way of handing them over.
static void arguments_of(uint64_t *values, size_t count, void **parameters, void **extra) {
    const void *buffer = NULL;
    size_t size = 0;
    for (size_t i = 0; parameters != NULL && i < count && parameters[i] != NULL; i++) memcpy(&values[i], parameters[i], sizeof values[i]);
    for (; parameters == NULL && extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER) buffer = extra[1];
        if (extra[0] == CU_LAUNCH_PARAM_SIZE) memcpy(&size, extra[1], sizeof size);
    }
    if (buffer != NULL && size >= count * sizeof *values) memcpy(values, buffer, count * sizeof *values);
}

struct fg_piece kernel_piece(cu_function function, void **parameters, void **extra) {
    uint64_t values[3] = {0};
    switch (function->kernel) {
    case KERNEL_SPIN: arguments_of(values, 1, parameters, extra); return (struct fg_piece){.ns = values[0] * 1000};
    case KERNEL_ENDLESS: return (struct fg_piece){.ns = FG_ENDLESS};
    case KERNEL_PEER:
        arguments_of(values, 3, parameters, extra);
        return (struct fg_piece){.meeting = values[0] + 1, .parties = (uint32_t)values[1], .ns = values[2] * 1000};
    default: return (struct fg_piece){0};
    }
}

void work_queue(struct core *core, cu_stream stream, const struct fg_piece *piece) {
    enum { NOTED_EVERY = 256 };
    uint32_t lane = core_lane(core, stream->context->device);
    if (lane == FG_LANES) return;
    stream->last = fg_queue(&core->db, lane, piece);
    if (stream->last % NOTED_EVERY == 0) core_note_events(core);
}

void work_after(struct core *core, cu_stream stream, int device, uint64_t piece) {
    uint32_t lane = core_lane(core, device);
    if (lane == FG_LANES || core_done(core, device, piece)) return;
    if (device == stream->context->device) {
        if (piece > stream->last) stream->last = piece; // it comes before all that follows, as it is
    } else {
        work_queue(core, stream, &(struct fg_piece){.after = piece, .after_lane = lane});
    }
}

void work_leave(struct core *core, cu_context context) {
    uint32_t lane = core_lane(core, context->device);
    uint64_t tail = lane == FG_LANES ? 0 : core->db.engine->lane[lane].tail;
    core_leave_until_done(core, context->device, tail > FG_QUEUED ? tail - FG_QUEUED : 0, core_how(context));
}

static cu_result launch(cu_function function, const cu_launch_config *config, void **parameters, void **extra) {
    struct core *core;
    cu_context context;
    if (config->grid_x == 0 || config->grid_y == 0 || config->grid_z == 0) return CU_INVALID_VALUE;
    uint64_t threads = (uint64_t)config->block_x * config->block_y * config->block_z;
    if (threads == 0 || threads > MAX_THREADS_OF_A_BLOCK) return CU_INVALID_VALUE;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    cu_stream stream = core_stream(context, config->stream);
    if (stream == NULL || !module_owns(context, function)) {
        core_leave(core);
        return CU_INVALID_HANDLE;
    }
    struct fg_piece piece = kernel_piece(function, parameters, extra);
    if (stream->capture != NULL) {
        result = capture_work(stream, &piece);
        core_leave(core);
        return result;
    }
    result = capture_implicit(core, stream);
    if (result == CU_SUCCESS) result = module_resident(core, context, function);
    if (result == CU_SUCCESS) work_queue(core, stream, &piece);
    work_leave(core, context);
    return result;
}

CU_API cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                cu_stream stream, void **parameters, void **extra) {
    cu_launch_config config = {.grid_x = grid_x, .grid_y = grid_y, .grid_z = grid_z, .block_x = block_x,
                               .block_y = block_y, .block_z = block_z, .shared_bytes = shared_bytes, .stream = stream};
    return launch(function, &config, parameters, extra);
}

CU_API cu_result cuLaunchCooperativeKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                           cu_stream stream, void **parameters) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, NULL);
}

CU_API cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function function, void **parameters, void **extra) {
    return config == NULL ? CU_INVALID_VALUE : launch(function, config, parameters, extra);
}

// One kernel for each of several devices.
CU_API cu_result cuLaunchCooperativeKernelMultiDevice(cu_launch_parameters *list, unsigned count, unsigned flags) {
    (void)flags;
    if (list == NULL || count == 0) return CU_INVALID_VALUE;
    cu_context before = core_current();
    cu_result result = CU_SUCCESS;
    for (unsigned i = 0; result == CU_SUCCESS && i < count; i++) {
        const cu_launch_parameters *p = &list[i];
        struct core *core;
        result = core_enter(&core);
        if (result != CU_SUCCESS) break;
        cu_context context = core_context_of(core, p->stream);
        core_leave(core);
        result = context == NULL ? CU_INVALID_HANDLE : cuCtxSetCurrent(context);
        if (result != CU_SUCCESS) break;
        result = cuLaunchCooperativeKernel(p->function, p->grid_x, p->grid_y, p->grid_z, p->block_x, p->block_y, p->block_z,
                                           p->shared_bytes, p->stream, p->parameters);
    }
    cuCtxSetCurrent(before);
    return result;
}

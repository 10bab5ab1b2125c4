// SPDX-License-Identifier: Apache-2.0
// Launches. A kernel takes the whole GPU: kernels of a process run one after
// another, and processes that have work at the same time get equal parts of it.
#include <string.h>

#include "capture.h"
#include "kernel_time.h"
#include "module.h"

#define MAX_THREADS_OF_A_BLOCK 1024u

// The first eight bytes of the arguments, from either way of handing them over.
static uint64_t first_argument(void **parameters, void **extra) {
    uint64_t value = 0;
    if (parameters != NULL && parameters[0] != NULL) memcpy(&value, parameters[0], sizeof value);
    const void *buffer = NULL;
    size_t size = 0;
    for (; parameters == NULL && extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER) buffer = extra[1];
        if (extra[0] == CU_LAUNCH_PARAM_SIZE) memcpy(&size, extra[1], sizeof size);
    }
    if (buffer != NULL && size >= sizeof value) memcpy(&value, buffer, sizeof value);
    return value;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

// How many processes, this one included, have work on the GPU now.
static unsigned sharers(const struct fg_gpu *gpu, uint32_t own, uint64_t now) {
    unsigned count = 1;
    for (uint32_t lane = 0; lane < FG_LANES; lane++) {
        count += lane != own && __atomic_load_n(&gpu->busy_until[lane], __ATOMIC_RELAXED) > now;
    }
    return count;
}

// MIG devices are apart: they share with nobody.
uint64_t kernel_queue(struct core *core, cu_context context, cu_stream stream, uint64_t ns) {
    const struct device *device = &core->devices[context->device];
    struct fg_gpu *gpu = &core->db.state->gpus[device->gpu];
    uint32_t lane = core->db.state->procs[device->slot].lane;
    uint64_t now = core_now(), start = later(now, later(stream->end, core_context_end(context)));
    if (device->gi == FG_NO_INSTANCE && ns > 0 && lane < FG_LANES) {
        start = later(start, __atomic_load_n(&gpu->busy_until[lane], __ATOMIC_RELAXED));
        ns *= sharers(gpu, lane, now);
        __atomic_store_n(&gpu->busy_until[lane], start + ns, __ATOMIC_RELAXED);
    }
    stream->end = start + ns;
    return stream->end;
}

uint64_t kernel_time(cu_function function, void **parameters, void **extra) {
    return function->kernel == KERNEL_SPIN ? first_argument(parameters, extra) * 1000 : 0;
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
    if (stream->capture != NULL) {
        result = capture_kernel(core, stream, kernel_time(function, parameters, extra));
        core_leave(core);
        return result;
    }
    result = module_resident(core, context, function);
    if (result != CU_SUCCESS) {
        core_leave(core);
        return result;
    }
    uint64_t *place = &context->queue[context->launches++ % QUEUE_DEPTH];
    uint64_t oldest = *place; // the queue is full until this one is done
    *place = kernel_queue(core, context, stream, kernel_time(function, parameters, extra));
    core_leave(core);
    core_wait_until(oldest);
    return CU_SUCCESS;
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

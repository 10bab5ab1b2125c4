// SPDX-License-Identifier: Apache-2.0
// Limits of a context. A larger stack costs memory at once, for each thread that can run; the heap only when it is used.
#include "core.h"

#define THREADS_OF_A_MULTIPROCESSOR 2048u
#define DEFAULT_STACK 1024u

enum { LIMIT_STACK = 0, LIMITS = 3 };

CU_API cu_result cuCtxGetLimit(size_t *value, int limit) {
    struct core *core;
    cu_context context;
    if (value == NULL || limit < 0 || limit >= LIMITS) return limit >= LIMITS ? 215 : CU_INVALID_VALUE; // unsupported
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    *value = context->limits[limit];
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuCtxSetLimit(int limit, size_t value) {
    struct core *core;
    cu_context context;
    if (limit < 0 || limit >= LIMITS) return 215; // CUDA_ERROR_UNSUPPORTED_LIMIT
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    struct device *device = &core->devices[context->device];
    if (limit == LIMIT_STACK) {
        uint64_t above = value > DEFAULT_STACK ? value - DEFAULT_STACK : 0;
        uint64_t wanted = above * THREADS_OF_A_MULTIPROCESSOR * (uint64_t)device->sm;
        if (wanted > context->stack_charged) {
            result = core_charge(core, device, wanted - context->stack_charged);
        } else if (wanted < context->stack_charged) {
            core_refund(core, device, context->stack_charged - wanted);
        }
        if (result == CU_SUCCESS) context->stack_charged = wanted;
    }
    if (result == CU_SUCCESS) context->limits[limit] = value;
    core_leave(core);
    return result;
}

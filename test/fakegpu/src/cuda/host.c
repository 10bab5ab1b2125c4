// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory. It costs no device memory.
#include <stdlib.h>

#include "core.h"

static cu_result take(void **pointer, size_t size) {
    struct core *core;
    cu_context context;
    if (pointer == NULL || size == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    core_leave(core);
    void *made = malloc(size);
    if (made == NULL) return CU_OUT_OF_MEMORY;
    *pointer = made;
    return CU_SUCCESS;
}

CU_API cu_result cuMemAllocHost_v2(void **pointer, size_t size) { return take(pointer, size); }

CU_API cu_result cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
    (void)flags;
    return take(pointer, size);
}

CU_API cu_result cuMemFreeHost(void *pointer) {
    struct core *core;
    cu_context context;
    cu_result result = core_enter_unsafe(&core, &context);
    if (result != CU_SUCCESS) return result;
    core_leave(core);
    free(pointer);
    return CU_SUCCESS;
}

CU_API cu_result cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
    (void)flags;
    return pointer == NULL || size == 0 ? CU_INVALID_VALUE : CU_SUCCESS;
}

CU_API cu_result cuMemHostUnregister(void *pointer) { return pointer == NULL ? CU_INVALID_VALUE : CU_SUCCESS; }

CU_API cu_result cuMemHostGetDevicePointer_v2(cu_pointer *device, void *pointer, unsigned flags) {
    (void)flags;
    if (device == NULL || pointer == NULL) return CU_INVALID_VALUE;
    *device = (cu_pointer)(uintptr_t)pointer;
    return CU_SUCCESS;
}

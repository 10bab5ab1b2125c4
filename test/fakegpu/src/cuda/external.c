// SPDX-License-Identifier: Apache-2.0
// Memory that another API made. Nothing else makes memory here, so the import is what takes it.
#include <stdlib.h>
#include <unistd.h>

#include "array.h"
#include "space.h"

struct cu_external_st {
    int device;
    uint64_t size, charged;
};

CU_API cu_result cuImportExternalMemory(cu_external *external, const cu_external_descriptor *descriptor) {
    enum { OPAQUE_FD = 1 };
    struct core *core;
    cu_context context;
    if (external == NULL || descriptor == NULL || descriptor->size == 0) return CU_INVALID_VALUE;
    if (descriptor->type != OPAQUE_FD) return CU_NOT_SUPPORTED;
    cu_result result = core_enter_context(&core, &context);
    if (result != CU_SUCCESS) return result;
    uint64_t bytes = round_up(descriptor->size, PAGE_BYTES);
    cu_external made = calloc(1, sizeof *made);
    result = made == NULL || bytes < descriptor->size ? CU_OUT_OF_MEMORY : core_charge(core, &core->devices[context->device], bytes);
    if (result == CU_SUCCESS) {
        *made = (struct cu_external_st){.device = context->device, .size = descriptor->size, .charged = bytes};
        *external = made;
        close(descriptor->handle.fd); // it is the driver's now
    } else {
        free(made);
    }
    core_leave(core);
    return result;
}

CU_API cu_result cuExternalMemoryGetMappedBuffer(cu_pointer *pointer, cu_external external, const cu_external_buffer *buffer) {
    struct core *core;
    struct range *range;
    if (pointer == NULL || external == NULL || buffer == NULL || buffer->size == 0) return CU_INVALID_VALUE;
    if (buffer->offset > external->size || buffer->size > external->size - buffer->offset) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = space_single(SPACE_LINEAR, external->device, NULL, round_up(buffer->size, PAGE_BYTES), &range);
    if (result == CU_SUCCESS) *pointer = (cu_pointer)(uintptr_t)range->base;
    core_leave(core);
    return result;
}

CU_API cu_result cuExternalMemoryGetMappedMipmappedArray(cu_mipmap *mipmap, cu_external external,
                                                         const cu_external_mipmap *description) {
    struct core *core;
    if (mipmap == NULL || external == NULL || description == NULL || description->levels == 0) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = mipmap_make(core, external->device, 0, &description->array, description->levels, mipmap);
    core_leave(core);
    return result;
}

CU_API cu_result cuDestroyExternalMemory(cu_external external) {
    struct core *core;
    if (external == NULL) return CU_INVALID_HANDLE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    core_refund(core, &core->devices[external->device], external->charged);
    core_leave(core);
    free(external);
    return CU_SUCCESS;
}

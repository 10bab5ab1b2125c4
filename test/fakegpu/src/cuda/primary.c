// SPDX-License-Identifier: Apache-2.0
// The primary context of a device, which its users share, and green contexts, which keep it.
#include <stdlib.h>
#include <string.h>

#include "context.h"

// What a green context costs; it comes back with the primary context (measured on an H200).
#define GREEN_BYTES (6ull << 20)

CU_API cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device index) {
    struct core *core;
    if (context == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    struct device *device = core_device(core, index);
    if (device == NULL) {
        result = CU_INVALID_DEVICE;
    } else if (device->primary == NULL) {
        result = context_make(core, index, device->primary_flags, &device->primary);
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
        context_destroy(core, context);
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

// The first versions: the same for who does not look at the reference count.
CU_API cu_result cuDevicePrimaryCtxRelease(cu_device device) { return release_primary(device, 0); }
CU_API cu_result cuDevicePrimaryCtxReset(cu_device device) { return release_primary(device, 1); }
CU_API cu_result cuDevicePrimaryCtxSetFlags(cu_device device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

struct cu_green_st {
    cu_device device;
    cu_context primary;
};

CU_API cu_result cuGreenCtxCreate(cu_green *green, void *descriptor, cu_device device, unsigned flags) {
    enum { DEFAULT_STREAM = 1 };
    struct core *core;
    cu_context primary;
    if (green == NULL || descriptor == NULL || flags != DEFAULT_STREAM) return CU_INVALID_VALUE;
    cu_result result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CU_SUCCESS) return result;
    cu_green made = calloc(1, sizeof *made);
    result = made == NULL ? CU_OUT_OF_MEMORY : core_enter(&core);
    if (result == CU_SUCCESS) {
        result = core_charge(core, &core->devices[device], GREEN_BYTES);
        if (result == CU_SUCCESS) primary->green_bytes += GREEN_BYTES;
        core_leave(core);
    }
    if (result != CU_SUCCESS) {
        free(made);
        release_primary(device, 0);
        return result;
    }
    *made = (struct cu_green_st){.device = device, .primary = primary};
    *green = made;
    return CU_SUCCESS;
}

CU_API cu_result cuGreenCtxDestroy(cu_green green) {
    if (green == NULL) return CU_INVALID_VALUE;
    cu_result result = release_primary(green->device, 0);
    free(green);
    return result;
}

CU_API cu_result cuCtxFromGreenCtx(cu_context *context, cu_green green) {
    if (context == NULL || green == NULL) return CU_INVALID_VALUE;
    *context = green->primary;
    return CU_SUCCESS;
}

// Resources are not divided here: the whole device's is handed out, in a structure of which only the kind is filled.
CU_API cu_result cuDeviceGetDevResource(cu_device device, void *resource, int kind) {
    enum { RESOURCE_BYTES = 144 };
    (void)device;
    if (resource == NULL) return CU_INVALID_VALUE;
    memset(resource, 0, RESOURCE_BYTES);
    memcpy(resource, &kind, sizeof kind);
    return CU_SUCCESS;
}

CU_API cu_result cuDevResourceGenerateDesc(void **descriptor, void *resources, unsigned count) {
    if (descriptor == NULL || resources == NULL || count == 0) return CU_INVALID_VALUE;
    *descriptor = resources;
    return CU_SUCCESS;
}

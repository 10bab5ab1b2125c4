// SPDX-License-Identifier: Apache-2.0
// Finding functions by name and version, and naming errors. The answers to odd questions are those of driver 580.159.04.
#include <string.h>

#include "core.h"
#include "entry_table.h"

cu_result cuDriverGetVersion(int *version);

CU_API cu_result cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
    enum { PER_THREAD = 2, ALL_FLAGS = 3 };
    int newest;
    if (name == NULL || address == NULL || flags > ALL_FLAGS) return CU_INVALID_VALUE;
    if (cuDriverGetVersion(&newest) == CU_SUCCESS && version > newest) return CU_INVALID_VALUE;
    enum query answer = entry_find(name, version < 0 ? newest : version, (flags & PER_THREAD) != 0, address);
    if (status != NULL) *status = answer;
    return CU_SUCCESS;
}

// The first version has no status: what it does not find is an error, and the address stays as it was.
CU_API cu_result cuGetProcAddress(const char *name, void **address, int version, uint64_t flags) {
    void *found = NULL;
    if (address == NULL) return CU_INVALID_VALUE;
    cu_result result = cuGetProcAddress_v2(name, &found, version, flags, NULL);
    if (result != CU_SUCCESS) return result;
    if (found == NULL) return CU_NOT_FOUND;
    *address = found;
    return CU_SUCCESS;
}

// The tables that it gives have no public description; none is offered.
CU_API cu_result cuGetExportTable(const void **table, const cu_uuid *id) {
    if (table == NULL || id == NULL) return CU_INVALID_VALUE;
    *table = NULL;
    return CU_NOT_FOUND;
}

struct error {
    cu_result code;
    const char *name, *text;
};

static const struct error errors[] = {
    {CU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CU_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CU_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver"},
    {CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static cu_result describe(cu_result code, const char **out, int name) {
    if (out == NULL) return CU_INVALID_VALUE;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code != code) continue;
        *out = name ? errors[i].name : errors[i].text;
        return CU_SUCCESS;
    }
    *out = NULL;
    return CU_INVALID_VALUE;
}

CU_API cu_result cuGetErrorName(cu_result code, const char **name) { return describe(code, name, 1); }
CU_API cu_result cuGetErrorString(cu_result code, const char **text) { return describe(code, text, 0); }

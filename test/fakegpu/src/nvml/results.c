// SPDX-License-Identifier: Apache-2.0
#include "results.h"

#include <stddef.h>
#include <string.h>

struct result {
    int code;
    const char *name, *text;
};

static const struct result results[] = {
    {0, "NVML_SUCCESS", "Success"},
    {1, "NVML_ERROR_UNINITIALIZED", "Uninitialized"},
    {2, "NVML_ERROR_INVALID_ARGUMENT", "Invalid Argument"},
    {3, "NVML_ERROR_NOT_SUPPORTED", "Not Supported"},
    {4, "NVML_ERROR_NO_PERMISSION", "Insufficient Permissions"},
    {5, "NVML_ERROR_ALREADY_INITIALIZED", "Already Initialized"},
    {6, "NVML_ERROR_NOT_FOUND", "Not Found"},
    {7, "NVML_ERROR_INSUFFICIENT_SIZE", "Insufficient Size"},
    {8, "NVML_ERROR_INSUFFICIENT_POWER", "Insufficient External Power"},
    {9, "NVML_ERROR_DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {10, "NVML_ERROR_TIMEOUT", "Timeout"},
    {11, "NVML_ERROR_IRQ_ISSUE", "Interrupt Request Issue"},
    {12, "NVML_ERROR_LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"},
    {13, "NVML_ERROR_FUNCTION_NOT_FOUND", "Function Not Found"},
    {14, "NVML_ERROR_CORRUPTED_INFOROM", "Corrupted infoROM"},
    {15, "NVML_ERROR_GPU_IS_LOST", "GPU is lost"},
    {16, "NVML_ERROR_RESET_REQUIRED", "GPU requires reset"},
    {17, "NVML_ERROR_OPERATING_SYSTEM", "GPU access blocked by the operating system"},
    {18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch"},
    {19, "NVML_ERROR_IN_USE", "In use by another client"},
    {20, "NVML_ERROR_MEMORY", "Insufficient Memory"},
    {21, "NVML_ERROR_NO_DATA", "No data"},
    {22, "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", "vGPU with ECC is not supported"},
    {23, "NVML_ERROR_INSUFFICIENT_RESOURCES", "Insufficient Resources"},
    {24, "NVML_ERROR_FREQ_NOT_SUPPORTED", "Frequency not supported"},
    {25, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"},
    {26, "NVML_ERROR_DEPRECATED", "Deprecated"},
    {27, "NVML_ERROR_NOT_READY", "Not Ready"},
    {28, "NVML_ERROR_GPU_NOT_FOUND", "GPU Not Found"},
    {29, "NVML_ERROR_INVALID_STATE", "Invalid State"},
    {30, "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", "Reset type not supported"},
    {999, "NVML_ERROR_UNKNOWN", "Unknown Error"},
};

static const struct result *find(int code) {
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (results[i].code == code) return &results[i];
    }
    return &results[sizeof results / sizeof results[0] - 1];
}

const char *nv_result_text(int code) { return find(code)->text; }

const char *nv_result_name(int code) { return find(code)->name; }

int nv_result_by_name(const char *name) {
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        if (strcmp(results[i].name, name) == 0) return results[i].code;
    }
    return -1;
}

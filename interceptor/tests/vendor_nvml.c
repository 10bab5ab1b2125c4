// SPDX-License-Identifier: Apache-2.0
//
// Compares src/nvml_abi.h with the vendor's nvml.h: sizes, offsets and values. Compiled, never run.

#include <nvml.h>

#define SLUICE_DECLARED_ELSEWHERE
#include "nvml_abi.h"

#include <stddef.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours " has another size than " #theirs)
#define SAME_PLACE(ours, field, theirs, their_field) \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field " lies elsewhere")
#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)

SAME_SIZE(nvml_memory, nvmlMemory_t);
SAME_PLACE(nvml_memory, free, nvmlMemory_t, free);
SAME_SIZE(nvml_memory_v2, nvmlMemory_v2_t);
SAME_PLACE(nvml_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(nvml_memory_v2, used, nvmlMemory_v2_t, used);
SAME_SIZE(nvml_process_v1, nvmlProcessInfo_v1_t);
SAME_SIZE(nvml_process, nvmlProcessInfo_t);
SAME_PLACE(nvml_process, compute_instance, nvmlProcessInfo_t, computeInstanceId);
SAME_SIZE(nvml_process_detail, nvmlProcessDetail_v1_t);
SAME_SIZE(nvml_process_details, nvmlProcessDetailList_t);
SAME_PLACE(nvml_process_details, processes, nvmlProcessDetailList_t, procArray);
SAME_SIZE(nvml_sample, nvmlProcessUtilizationSample_t);
SAME_VALUE(NVML_OK, NVML_SUCCESS);
SAME_VALUE(NVML_INVALID, NVML_ERROR_INVALID_ARGUMENT);
SAME_VALUE(NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME_VALUE(NVML_SHORT, NVML_ERROR_INSUFFICIENT_SIZE);
SAME_VALUE(NVML_NO_FUNCTION, NVML_ERROR_FUNCTION_NOT_FOUND);
SAME_VALUE(NVML_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
SAME_VALUE(NVML_MODE_COMPUTE, NVML_PROCESS_MODE_COMPUTE);
SAME_VALUE(NVML_MODE_ALL, NVML_PROCESS_MODE_ALL);

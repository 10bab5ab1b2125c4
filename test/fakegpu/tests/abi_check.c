// SPDX-License-Identifier: Apache-2.0
// Compiles only where our declarations and the vendor's header agree in layout.
#include <stddef.h>

#include "nvml.h"
#include "nvml/abi.h"
#include "state/mig.h"
#include "state/state.h"

#define SAME_SIZE(own, theirs) _Static_assert(sizeof(own) == sizeof(theirs), #own " has another size than " #theirs)
#define SAME_PLACE(own, field, theirs, their_field) \
    _Static_assert(offsetof(own, field) == offsetof(theirs, their_field), #own "." #field " lies elsewhere")

SAME_SIZE(nv_pci_info, nvmlPciInfo_t);
SAME_PLACE(nv_pci_info, bus_id_legacy, nvmlPciInfo_t, busIdLegacy);
SAME_PLACE(nv_pci_info, bus, nvmlPciInfo_t, bus);
SAME_PLACE(nv_pci_info, pci_device_id, nvmlPciInfo_t, pciDeviceId);
SAME_PLACE(nv_pci_info, bus_id, nvmlPciInfo_t, busId);
SAME_SIZE(nv_pci_info_ext, nvmlPciInfoExt_v1_t);
SAME_PLACE(nv_pci_info_ext, base_class, nvmlPciInfoExt_v1_t, baseClass);
SAME_PLACE(nv_pci_info_ext, bus_id, nvmlPciInfoExt_v1_t, busId);
SAME_SIZE(nv_licensable_features, nvmlGridLicensableFeatures_t);
SAME_SIZE(nv_licensable_feature, nvmlGridLicensableFeature_t);
SAME_PLACE(nv_licensable_features, count, nvmlGridLicensableFeatures_t, licensableFeaturesCount);
SAME_PLACE(nv_licensable_features, features, nvmlGridLicensableFeatures_t, gridLicensableFeatures);
SAME_PLACE(nv_licensable_feature, licensed, nvmlGridLicensableFeature_t, featureState);
SAME_PLACE(nv_licensable_feature, enabled, nvmlGridLicensableFeature_t, featureEnabled);
SAME_SIZE(nv_memory, nvmlMemory_t);
SAME_PLACE(nv_memory, free, nvmlMemory_t, free);
SAME_PLACE(nv_memory, used, nvmlMemory_t, used);
SAME_SIZE(nv_memory_v2, nvmlMemory_v2_t);
SAME_PLACE(nv_memory_v2, total, nvmlMemory_v2_t, total);
SAME_PLACE(nv_memory_v2, reserved, nvmlMemory_v2_t, reserved);
SAME_PLACE(nv_memory_v2, free, nvmlMemory_v2_t, free);
SAME_PLACE(nv_memory_v2, used, nvmlMemory_v2_t, used);
SAME_SIZE(nv_set_limits, nvmlSetMemoryLimits_v1_t);
SAME_PLACE(nv_set_limits, cgroup, nvmlSetMemoryLimits_v1_t, nameSpace);
SAME_PLACE(nv_set_limits, soft, nvmlSetMemoryLimits_v1_t, softLimit);
SAME_PLACE(nv_set_limits, hard, nvmlSetMemoryLimits_v1_t, hardLimit);
SAME_SIZE(nv_get_limits, nvmlGetMemoryLimits_v1_t);
SAME_PLACE(nv_get_limits, soft, nvmlGetMemoryLimits_v1_t, softLimit);
SAME_PLACE(nv_get_limits, hard, nvmlGetMemoryLimits_v1_t, hardLimit);
SAME_PLACE(nv_get_limits, used, nvmlGetMemoryLimits_v1_t, currentUsed);
_Static_assert(FG_NO_LIMIT == NVML_DEVICE_MEMORY_LIMIT_MAX, "no limit is another number");
SAME_SIZE(nv_bar1_memory, nvmlBAR1Memory_t);
SAME_PLACE(nv_bar1_memory, free, nvmlBAR1Memory_t, bar1Free);
SAME_SIZE(nv_process_v1, nvmlProcessInfo_v1_t);
SAME_PLACE(nv_process_v1, used, nvmlProcessInfo_v1_t, usedGpuMemory);
SAME_SIZE(nv_process, nvmlProcessInfo_v2_t);
SAME_PLACE(nv_process, used, nvmlProcessInfo_v2_t, usedGpuMemory);
SAME_PLACE(nv_process, gi, nvmlProcessInfo_v2_t, gpuInstanceId);
SAME_PLACE(nv_process, ci, nvmlProcessInfo_v2_t, computeInstanceId);
SAME_SIZE(nv_process, nvmlProcessInfo_t);
SAME_PLACE(nv_process, used, nvmlProcessInfo_t, usedGpuMemory);
SAME_PLACE(nv_process, gi, nvmlProcessInfo_t, gpuInstanceId);
SAME_PLACE(nv_process, ci, nvmlProcessInfo_t, computeInstanceId);
SAME_SIZE(nv_process_detail, nvmlProcessDetail_v1_t);
SAME_PLACE(nv_process_detail, used, nvmlProcessDetail_v1_t, usedGpuMemory);
SAME_PLACE(nv_process_detail, used_protected, nvmlProcessDetail_v1_t, usedGpuCcProtectedMemory);
SAME_SIZE(nv_process_detail_list, nvmlProcessDetailList_v1_t);
SAME_PLACE(nv_process_detail_list, mode, nvmlProcessDetailList_v1_t, mode);
SAME_PLACE(nv_process_detail_list, count, nvmlProcessDetailList_v1_t, numProcArrayEntries);
SAME_PLACE(nv_process_detail_list, entries, nvmlProcessDetailList_v1_t, procArray);
SAME_SIZE(nv_attributes, nvmlDeviceAttributes_t);
SAME_PLACE(nv_attributes, sm, nvmlDeviceAttributes_t, multiprocessorCount);
SAME_PLACE(nv_attributes, gi_slices, nvmlDeviceAttributes_t, gpuInstanceSliceCount);
SAME_PLACE(nv_attributes, memory_mib, nvmlDeviceAttributes_t, memorySizeMB);
SAME_SIZE(nv_placement, nvmlGpuInstancePlacement_t);
SAME_PLACE(nv_placement, size, nvmlGpuInstancePlacement_t, size);
SAME_SIZE(nv_placement, nvmlComputeInstancePlacement_t);
SAME_PLACE(nv_placement, size, nvmlComputeInstancePlacement_t, size);
SAME_SIZE(nv_gi_profile, nvmlGpuInstanceProfileInfo_t);
SAME_PLACE(nv_gi_profile, slices, nvmlGpuInstanceProfileInfo_t, sliceCount);
SAME_PLACE(nv_gi_profile, sm, nvmlGpuInstanceProfileInfo_t, multiprocessorCount);
SAME_PLACE(nv_gi_profile, ofa, nvmlGpuInstanceProfileInfo_t, ofaCount);
SAME_PLACE(nv_gi_profile, memory_mib, nvmlGpuInstanceProfileInfo_t, memorySizeMB);
SAME_SIZE(nv_gi_profile_v2, nvmlGpuInstanceProfileInfo_v2_t);
SAME_PLACE(nv_gi_profile_v2, p2p, nvmlGpuInstanceProfileInfo_v2_t, isP2pSupported);
SAME_PLACE(nv_gi_profile_v2, memory_mib, nvmlGpuInstanceProfileInfo_v2_t, memorySizeMB);
SAME_PLACE(nv_gi_profile_v2, name, nvmlGpuInstanceProfileInfo_v2_t, name);
SAME_SIZE(nv_gi_profile_v3, nvmlGpuInstanceProfileInfo_v3_t);
SAME_PLACE(nv_gi_profile_v3, slices, nvmlGpuInstanceProfileInfo_v3_t, sliceCount);
SAME_PLACE(nv_gi_profile_v3, memory_mib, nvmlGpuInstanceProfileInfo_v3_t, memorySizeMB);
SAME_PLACE(nv_gi_profile_v3, capabilities, nvmlGpuInstanceProfileInfo_v3_t, capabilities);
SAME_SIZE(nv_gi_info, nvmlGpuInstanceInfo_t);
SAME_PLACE(nv_gi_info, id, nvmlGpuInstanceInfo_t, id);
SAME_PLACE(nv_gi_info, profile_id, nvmlGpuInstanceInfo_t, profileId);
SAME_PLACE(nv_gi_info, placement, nvmlGpuInstanceInfo_t, placement);
SAME_SIZE(nv_ci_profile, nvmlComputeInstanceProfileInfo_t);
SAME_PLACE(nv_ci_profile, slices, nvmlComputeInstanceProfileInfo_t, sliceCount);
SAME_PLACE(nv_ci_profile, ofa, nvmlComputeInstanceProfileInfo_t, sharedOfaCount);
SAME_SIZE(nv_ci_profile_v2, nvmlComputeInstanceProfileInfo_v2_t);
SAME_PLACE(nv_ci_profile_v2, ofa, nvmlComputeInstanceProfileInfo_v2_t, sharedOfaCount);
SAME_PLACE(nv_ci_profile_v2, name, nvmlComputeInstanceProfileInfo_v2_t, name);
SAME_SIZE(nv_ci_profile_v3, nvmlComputeInstanceProfileInfo_v3_t);
SAME_PLACE(nv_ci_profile_v3, name, nvmlComputeInstanceProfileInfo_v3_t, name);
SAME_PLACE(nv_ci_profile_v3, capabilities, nvmlComputeInstanceProfileInfo_v3_t, capabilities);
SAME_SIZE(nv_ci_info, nvmlComputeInstanceInfo_t);
SAME_PLACE(nv_ci_info, gi, nvmlComputeInstanceInfo_t, gpuInstance);
SAME_PLACE(nv_ci_info, id, nvmlComputeInstanceInfo_t, id);
SAME_PLACE(nv_ci_info, profile_id, nvmlComputeInstanceInfo_t, profileId);
SAME_PLACE(nv_ci_info, placement, nvmlComputeInstanceInfo_t, placement);
SAME_SIZE(nv_event, nvmlEventData_t);
SAME_PLACE(nv_event, type, nvmlEventData_t, eventType);
SAME_PLACE(nv_event, data, nvmlEventData_t, eventData);
SAME_PLACE(nv_event, gi, nvmlEventData_t, gpuInstanceId);
SAME_PLACE(nv_event, ci, nvmlEventData_t, computeInstanceId);
SAME_SIZE(nv_uuid, nvmlUUID_v1_t);
SAME_PLACE(nv_uuid, type, nvmlUUID_v1_t, type);
SAME_PLACE(nv_uuid, value, nvmlUUID_v1_t, value);
SAME_SIZE(nv_addressing_mode, nvmlDeviceAddressingMode_v1_t);
SAME_PLACE(nv_addressing_mode, value, nvmlDeviceAddressingMode_v1_t, value);
SAME_SIZE(nv_utilization, nvmlUtilization_t);
SAME_PLACE(nv_utilization, memory, nvmlUtilization_t, memory);
SAME_SIZE(nv_field_value, nvmlFieldValue_t);
SAME_PLACE(nv_field_value, field, nvmlFieldValue_t, fieldId);
SAME_PLACE(nv_field_value, timestamp, nvmlFieldValue_t, timestamp);
SAME_PLACE(nv_field_value, type, nvmlFieldValue_t, valueType);
SAME_PLACE(nv_field_value, result, nvmlFieldValue_t, nvmlReturn);
SAME_PLACE(nv_field_value, value, nvmlFieldValue_t, value);

#define SAME_CODE(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own " is another code")
SAME_CODE(NV_UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
SAME_CODE(NV_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
SAME_CODE(NV_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME_CODE(NV_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME_CODE(NV_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME_CODE(NV_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME_CODE(NV_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME_CODE(NV_TIMEOUT, NVML_ERROR_TIMEOUT);
SAME_CODE(NV_FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND);
SAME_CODE(NV_GPU_IS_LOST, NVML_ERROR_GPU_IS_LOST);
SAME_CODE(NV_LIB_RM_VERSION_MISMATCH, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
SAME_CODE(NV_MEMORY, NVML_ERROR_MEMORY);
SAME_CODE(NV_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
SAME_CODE(NV_UNKNOWN, NVML_ERROR_UNKNOWN);
SAME_CODE(FG_RESET_REQUIRED, NVML_ERROR_RESET_REQUIRED);
SAME_CODE(FG_IN_USE, NVML_ERROR_IN_USE);
SAME_CODE(FG_INSUFFICIENT_RESOURCES, NVML_ERROR_INSUFFICIENT_RESOURCES);
SAME_CODE(FG_CI_7_SLICE_NVL, NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL);
_Static_assert(NV_GI_PROFILES == NVML_GPU_INSTANCE_PROFILE_COUNT - 1, "there are other GPU-instance profiles");
_Static_assert(NV_CI_PROFILES == NVML_COMPUTE_INSTANCE_PROFILE_COUNT, "there are other compute-instance profiles");
_Static_assert(NV_STRUCT_VERSION(nv_memory_v2, 2) == nvmlMemory_v2, "struct versions are formed differently");

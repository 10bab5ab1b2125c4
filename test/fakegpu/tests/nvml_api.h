// SPDX-License-Identifier: Apache-2.0
// Declarations of the NVML functions that the tests call.
#ifndef FAKEGPU_TESTS_NVML_API_H
#define FAKEGPU_TESTS_NVML_API_H

#include "nvml/abi.h"

nv_return nvmlInit_v2(void);
nv_return nvmlShutdown(void);
nv_return nvmlSystemGetDriverVersion(char *version, unsigned length);
nv_return nvmlDeviceGetCount_v2(unsigned *count);
nv_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nv_device *device);
nv_return nvmlDeviceGetHandleByUUID(const char *uuid, nv_device *device);
nv_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nv_device *device);
nv_return nvmlDeviceGetSerial(nv_device device, char *serial, unsigned length);
nv_return nvmlDeviceGetHandleBySerial(const char *serial, nv_device *device);
nv_return nvmlDeviceGetName(nv_device device, char *name, unsigned length);
nv_return nvmlDeviceGetUUID(nv_device device, char *uuid, unsigned length);
nv_return nvmlDeviceGetIndex(nv_device device, unsigned *index);
nv_return nvmlDeviceGetPciInfo_v3(nv_device device, nv_pci_info *info);
nv_return nvmlDeviceGetMemoryInfo(nv_device device, nv_memory *memory);
nv_return nvmlDeviceGetMemoryInfo_v2(nv_device device, nv_memory_v2 *memory);
nv_return nvmlDeviceSetMemoryLimits_v1(nv_device device, nv_set_limits *limits);
nv_return nvmlDeviceGetMemoryLimits_v1(nv_device device, nv_get_limits *limits);
nv_return nvmlDeviceGetComputeRunningProcesses_v3(nv_device device, unsigned *count, nv_process *infos);
nv_return nvmlDeviceGetUtilizationRates(nv_device device, nv_utilization *rates);
nv_return nvmlDeviceGetMigMode(nv_device device, unsigned *current, unsigned *pending);
nv_return nvmlDeviceSetMigMode(nv_device device, unsigned mode, nv_return *activation);
nv_return nvmlDeviceGetMaxMigDeviceCount(nv_device device, unsigned *count);
nv_return nvmlDeviceGetMigDeviceHandleByIndex(nv_device device, unsigned index, nv_device *mig);
nv_return nvmlDeviceIsMigDeviceHandle(nv_device device, unsigned *is_mig);
nv_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nv_device mig, nv_device *device);
nv_return nvmlDeviceGetGpuInstanceId(nv_device device, unsigned *id);
nv_return nvmlDeviceGetAttributes_v2(nv_device device, nv_attributes *attributes);
nv_return nvmlDeviceGetGpuInstanceProfileInfo(nv_device device, unsigned profile, nv_gi_profile *info);
nv_return nvmlDeviceGetGpuInstanceProfileInfoV(nv_device device, unsigned profile, nv_gi_profile_v2 *info);
nv_return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nv_device device, unsigned id, nv_placement *out, unsigned *count);
nv_return nvmlDeviceGetGpuInstanceRemainingCapacity(nv_device device, unsigned id, unsigned *count);
nv_return nvmlDeviceCreateGpuInstance(nv_device device, unsigned id, nv_gi *gi);
nv_return nvmlDeviceCreateGpuInstanceWithPlacement(nv_device device, unsigned id, const nv_placement *at, nv_gi *gi);
nv_return nvmlGpuInstanceDestroy(nv_gi gi);
nv_return nvmlGpuInstanceGetInfo(nv_gi gi, nv_gi_info *info);
nv_return nvmlDeviceGetGpuInstances(nv_device device, unsigned id, nv_gi *list, unsigned *count);
nv_return nvmlDeviceGetGpuInstanceById(nv_device device, unsigned id, nv_gi *gi);
nv_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nv_gi gi, unsigned profile, unsigned engines, nv_ci_profile *info);
nv_return nvmlGpuInstanceCreateComputeInstance(nv_gi gi, unsigned profile, nv_ci *ci);
nv_return nvmlGpuInstanceGetComputeInstanceById(nv_gi gi, unsigned id, nv_ci *ci);
nv_return nvmlComputeInstanceDestroy(nv_ci ci);
nv_return nvmlComputeInstanceGetInfo_v2(nv_ci ci, nv_ci_info *info);
nv_return nvmlDeviceGetFieldValues(nv_device device, int count, nv_field_value *values);
nv_return nvmlDeviceGetRemappedRows(nv_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed);
nv_return nvmlDeviceGetTotalEccErrors(nv_device device, unsigned type, unsigned counter, unsigned long long *count);
nv_return nvmlDeviceGetCurrentClocksThrottleReasons(nv_device device, unsigned long long *reasons);
nv_return nvmlDeviceGetVirtualizationMode(nv_device device, unsigned *mode);
nv_return nvmlDeviceGetGridLicensableFeatures_v4(nv_device device, nv_licensable_features *features);
nv_return nvmlDeviceGetP2PStatus(void);
nv_return nvmlEventSetCreate(nv_event_set *set);
nv_return nvmlEventSetWait_v2(nv_event_set set, nv_event *data, unsigned timeout_ms);
nv_return nvmlEventSetFree(nv_event_set set);
nv_return nvmlDeviceRegisterEvents(nv_device device, unsigned long long types, nv_event_set set);

// NVML_GPU_INSTANCE_PROFILE_* and the driver's ids of the seven-slice boards.
enum { GI_1 = 0, GI_2 = 1, GI_3 = 2, GI_4 = 3, GI_7 = 4, GI_8 = 5, GI_1_REV1 = 7 };
enum { ID_1G = 19, ID_1G_ME = 20, ID_1G_2X = 15, ID_2G = 14, ID_3G = 9, ID_4G = 5, ID_7G = 0 };
enum { IN_USE = 19, INSUFFICIENT_RESOURCES = 23, RESET_REQUIRED = 16 };

#endif

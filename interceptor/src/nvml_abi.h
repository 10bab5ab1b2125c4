// SPDX-License-Identifier: Apache-2.0
//
// The part of the management library's binary interface that this library meets, in its own declarations;
// tests/vendor_nvml.c compares them with the vendor's.

#ifndef SLUICE_NVML_ABI_H
#define SLUICE_NVML_ABI_H

typedef int nvml_result;
enum {
    NVML_OK = 0,
    NVML_INVALID = 2,
    NVML_NOT_FOUND = 6,
    NVML_SHORT = 7, // the caller's room is too small
    NVML_NO_FUNCTION = 13,
    NVML_VERSION_MISMATCH = 25,
};

typedef struct nvml_opaque_device *nvml_device;

typedef struct {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

typedef struct {
    unsigned pid;
    unsigned long long used;
} nvml_process_v1;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} nvml_process;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_used;
} nvml_process_detail;

typedef struct {
    unsigned version, mode, count;
    nvml_process_detail *processes;
} nvml_process_details;

enum { NVML_MODE_COMPUTE = 0, NVML_MODE_ALL = 3 };

typedef struct {
    unsigned pid;
    unsigned long long time;
    unsigned sm, memory, encoder, decoder;
} nvml_sample;

#define NVML_NO_INSTANCE 0xffffffffu

#ifndef SLUICE_DECLARED_ELSEWHERE
// clang-format off
nvml_result nvmlDeviceGetMemoryInfo(nvml_device, nvml_memory *);
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device, nvml_memory_v2 *);
nvml_result nvmlDeviceGetComputeRunningProcesses(nvml_device, unsigned *, nvml_process_v1 *);
nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetGraphicsRunningProcesses(nvml_device, unsigned *, nvml_process_v1 *);
nvml_result nvmlDeviceGetGraphicsRunningProcesses_v2(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetMPSComputeRunningProcesses(nvml_device, unsigned *, nvml_process_v1 *);
nvml_result nvmlDeviceGetMPSComputeRunningProcesses_v2(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml_device, unsigned *, nvml_process *);
nvml_result nvmlDeviceGetRunningProcessDetailList(nvml_device, nvml_process_details *);
nvml_result nvmlDeviceGetProcessUtilization(nvml_device, nvml_sample *, unsigned *, unsigned long long);
nvml_result nvmlDeviceGetAccountingPids(nvml_device, unsigned *, unsigned *);
nvml_result nvmlSystemGetProcessName(unsigned, char *, unsigned);

// Only called.
nvml_result nvmlDeviceGetUUID(nvml_device, char *, unsigned);
nvml_result nvmlDeviceGetGpuInstanceId(nvml_device, unsigned *);
nvml_result nvmlDeviceGetComputeInstanceId(nvml_device, unsigned *);
// clang-format on
#endif

#endif // SLUICE_NVML_ABI_H

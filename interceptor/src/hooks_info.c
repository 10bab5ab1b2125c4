// SPDX-License-Identifier: Apache-2.0
//
// What a process is told about its device's memory: the limit as the total, never more than the device has, and what the
// limit leaves as free. These never fail where the driver does not.

#include "charge.h"
#include "export.h"
#include "quota.h"
#include "topics.h"

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

EXPORT cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    struct here here;
    DRIVER(cuMemGetInfo_v2);
    cu_result result = real(free_bytes, total);
    if (result != CU_OK || free_bytes == NULL || total == NULL || !device_here(&here)) return result;
    settle_dirty(process_limited());
    struct report report = charge_report(here.device);
    *free_bytes = quota_free(lesser(report.limit, *total), report.used, *free_bytes);
    *total = lesser(report.limit, *total);
    return CU_OK;
}

EXPORT cu_result cuMemGetInfo(unsigned *free_bytes, unsigned *total) {
    struct here here;
    DRIVER(cuMemGetInfo);
    cu_result result = real(free_bytes, total);
    if (result != CU_OK || free_bytes == NULL || total == NULL || !device_here(&here)) return result;
    settle_dirty(process_limited());
    struct report report = charge_report(here.device);
    *free_bytes = (unsigned)quota_free(lesser(report.limit, *total), report.used, *free_bytes);
    *total = (unsigned)lesser(report.limit, *total);
    return CU_OK;
}

EXPORT cu_result cuDeviceTotalMem_v2(size_t *total, cu_device ordinal) {
    DRIVER(cuDeviceTotalMem_v2);
    cu_result result = real(total, ordinal);
    struct device *device = result == CU_OK && total != NULL ? device_limited(ordinal) : NULL;
    if (device != NULL) *total = lesser(charge_report(device).limit, *total);
    return result;
}

EXPORT cu_result cuDeviceTotalMem(unsigned *total, cu_device ordinal) {
    DRIVER(cuDeviceTotalMem);
    cu_result result = real(total, ordinal);
    struct device *device = result == CU_OK && total != NULL ? device_limited(ordinal) : NULL;
    if (device != NULL) *total = (unsigned)lesser(charge_report(device).limit, *total);
    return result;
}

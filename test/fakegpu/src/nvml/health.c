// SPDX-License-Identifier: Apache-2.0
// How a GPU is: what the driver wants done, memory errors, brakes, and whether it is a virtual one.
#include "call.h"
#include "device.h"
#include "state/state.h"

// Every field is answered one by one; the only known one says what the driver wants done about the GPU.
NV_API nv_return nvmlDeviceGetFieldValues(nv_device device, int count, nv_field_value *values) {
    enum { FIELD_RECOVERY_ACTION = 230, FIELDS = 275, TYPE_UNSIGNED = 1 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetFieldValues, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count < 0 || (count > 0 && values == NULL)) return nv_leave(db, NV_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        unsigned field = values[i].field;
        values[i].result = field == 0 || field >= FIELDS      ? NV_INVALID_ARGUMENT
                           : field == FIELD_RECOVERY_ACTION ? NV_SUCCESS
                                                            : NV_NOT_SUPPORTED;
        values[i].type = TYPE_UNSIGNED;
        values[i].value.ull = field == FIELD_RECOVERY_ACTION ? fg_read(&nv_gpu(db, &t)->recovery) : 0;
    }
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetRemappedRows(nv_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                           unsigned *failed) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetRemappedRows, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (corrected == NULL || uncorrected == NULL || pending == NULL || failed == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    uint32_t signs = fg_read(&nv_gpu(db, &t)->signs);
    *corrected = *uncorrected = 0;
    *pending = (signs & FG_SIGN_REMAP_PENDING) != 0;
    *failed = (signs & FG_SIGN_REMAP_FAILED) != 0;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetTotalEccErrors(nv_device device, unsigned type, unsigned counter, unsigned long long *count) {
    enum { CORRECTED = 0, UNCORRECTED = 1, VOLATILE = 0, AGGREGATE = 1 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetTotalEccErrors, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count == NULL || type > UNCORRECTED || counter > AGGREGATE) return nv_leave(db, NV_INVALID_ARGUMENT);
    *count = type == UNCORRECTED ? fg_read(&nv_gpu(db, &t)->uncorrected) : 0;
    return nv_leave(db, NV_SUCCESS);
}

static nv_return clock_reasons(enum nv_call call, nv_device device, unsigned long long *reasons) {
    enum { REASON_THERMAL = 0x40, REASON_POWER_BRAKE = 0x80 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (reasons == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    uint32_t signs = fg_read(&nv_gpu(db, &t)->signs);
    *reasons = (signs & FG_SIGN_THERMAL ? REASON_THERMAL : 0u) | (signs & FG_SIGN_POWER ? REASON_POWER_BRAKE : 0u);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetCurrentClocksThrottleReasons(nv_device device, unsigned long long *reasons) {
    return clock_reasons(CALL_nvmlDeviceGetCurrentClocksThrottleReasons, device, reasons);
}

NV_API nv_return nvmlDeviceGetCurrentClocksEventReasons(nv_device device, unsigned long long *reasons) {
    return clock_reasons(CALL_nvmlDeviceGetCurrentClocksEventReasons, device, reasons);
}

NV_API nv_return nvmlDeviceGetVirtualizationMode(nv_device device, unsigned *mode) {
    enum { MODE_NONE = 0, MODE_VGPU = 2 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetVirtualizationMode, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (mode == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *mode = fg_read(&nv_gpu(db, &t)->signs) & FG_SIGN_VIRTUAL ? MODE_VGPU : MODE_NONE;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetGridLicensableFeatures_v4(nv_device device, nv_licensable_features *features) {
    enum { FEATURE_COMPUTE = 4 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetGridLicensableFeatures_v4, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (features == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    uint32_t signs = fg_read(&nv_gpu(db, &t)->signs);
    *features = (nv_licensable_features){0};
    if (signs & FG_SIGN_VIRTUAL) {
        features->supported = 1;
        features->count = 1;
        features->features[0].code = FEATURE_COMPUTE;
        features->features[0].enabled = 1;
        features->features[0].licensed = (signs & FG_SIGN_LICENSED) != 0;
    }
    return nv_leave(db, NV_SUCCESS);
}

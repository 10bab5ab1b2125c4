// SPDX-License-Identifier: Apache-2.0
// MIG mode, and the devices that instances make.
#include <stdio.h>

#include "call.h"
#include "device.h"
#include "state/mig.h"

int nv_mig_on(struct fg_db *db, const struct nv_target *t) { return (fg_read(&nv_gpu(db, t)->mig) & FG_MIG_CURRENT) != 0; }

void nv_ci_name(const struct fg_profile *profile, int slices, char *text, size_t size) {
    if (slices == profile->slices) {
        snprintf(text, size, "MIG %s", profile->name);
    } else {
        snprintf(text, size, "MIG %dc.%s", slices, profile->name);
    }
}

NV_API nv_return nvmlDeviceGetMigMode(nv_device device, unsigned *current, unsigned *pending) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetMigMode, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (current == NULL || pending == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    unsigned mig = fg_read(&nv_gpu(db, &t)->mig);
    *current = (mig & FG_MIG_CURRENT) != 0;
    *pending = (mig & FG_MIG_PENDING) != 0;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceSetMigMode(nv_device device, unsigned mode, nv_return *activation) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceSetMigMode, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (mode > 1 || activation == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    return nv_leave(db, fg_mig_set_mode(db, (unsigned)t.gpu, (int)mode, activation));
}

NV_API nv_return nvmlDeviceGetMaxMigDeviceCount(nv_device device, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetMaxMigDeviceCount, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    // With MIG mode off there can be none, whatever the board could do.
    struct fg_board board = nv_board(db, &t);
    *count = nv_mig_on(db, &t) ? (unsigned)fg_board_max_instances(&board) : 0;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetMigDeviceHandleByIndex(nv_device device, unsigned index, nv_device *mig) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetMigDeviceHandleByIndex, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (mig == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (!nv_mig_on(db, &t) || !fg_mig_device_at(nv_gpu(db, &t), index, &t.gi, &t.ci)) return nv_leave(db, NV_NOT_FOUND);
    t.kind = NV_KIND_MIG;
    *mig = nv_handle(db, t);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceIsMigDeviceHandle(nv_device device, unsigned *is_mig) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceIsMigDeviceHandle, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (is_mig == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *is_mig = t.kind == NV_KIND_MIG;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nv_device mig, nv_device *device) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (device == NULL || t.kind != NV_KIND_MIG) return nv_leave(db, NV_INVALID_ARGUMENT);
    *device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = t.gpu});
    return nv_leave(db, NV_SUCCESS);
}

static nv_return instance_id(enum nv_call call, nv_device device, int compute, unsigned *id) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (id == NULL || t.kind != NV_KIND_MIG) return nv_leave(db, NV_INVALID_ARGUMENT);
    const struct fg_gi *gi = &nv_gpu(db, &t)->gis[t.gi];
    *id = compute ? gi->cis[t.ci].id : gi->id;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetGpuInstanceId(nv_device device, unsigned *id) {
    return instance_id(CALL_nvmlDeviceGetGpuInstanceId, device, 0, id);
}

NV_API nv_return nvmlDeviceGetComputeInstanceId(nv_device device, unsigned *id) {
    return instance_id(CALL_nvmlDeviceGetComputeInstanceId, device, 1, id);
}

static nv_return attributes(enum nv_call call, nv_device device, nv_attributes *out) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (out == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (t.kind != NV_KIND_MIG) return nv_leave(db, NV_NOT_SUPPORTED);
    const struct fg_gi *gi = &nv_gpu(db, &t)->gis[t.gi];
    const struct fg_ci *ci = &gi->cis[t.ci];
    struct fg_board board = nv_board(db, &t);
    struct fg_profile p = fg_profile_filled(&board, (int)gi->profile);
    *out = (nv_attributes){
        .sm = (unsigned)p.sm * ci->size / (unsigned)p.slices, .ce = (unsigned)p.ce, .dec = (unsigned)p.dec,
        .enc = (unsigned)p.enc, .jpeg = (unsigned)p.jpeg, .ofa = (unsigned)p.ofa, .gi_slices = (unsigned)p.slices,
        .ci_slices = ci->size, .memory_mib = (unsigned long long)p.mib,
    };
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetAttributes(nv_device device, nv_attributes *out) {
    return attributes(CALL_nvmlDeviceGetAttributes, device, out);
}

NV_API nv_return nvmlDeviceGetAttributes_v2(nv_device device, nv_attributes *out) {
    return attributes(CALL_nvmlDeviceGetAttributes_v2, device, out);
}

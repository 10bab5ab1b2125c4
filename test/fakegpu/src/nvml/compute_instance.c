// SPDX-License-Identifier: Apache-2.0
// Compute instances within a GPU instance.
#include <stdio.h>

#include "call.h"
#include "device.h"
#include "state/mig.h"

static struct fg_gi *gi_of(struct fg_db *db, const struct nv_target *t) { return &nv_gpu(db, t)->gis[t->gi]; }

static struct fg_profile gi_profile(struct fg_db *db, const struct nv_target *t) {
    struct fg_board board = nv_board(db, t);
    return fg_profile_filled(&board, (int)gi_of(db, t)->profile);
}

static nv_ci_profile profile_info(const struct fg_profile *gi, const struct fg_ci_profile *ci) {
    return (nv_ci_profile){
        .id = (unsigned)ci->constant, .slices = (unsigned)ci->slices, .count = (unsigned)ci->count,
        .sm = (unsigned)(gi->sm * ci->slices / gi->slices), .ce = (unsigned)gi->ce, .dec = (unsigned)gi->dec,
        .enc = (unsigned)gi->enc, .jpeg = (unsigned)gi->jpeg, .ofa = (unsigned)gi->ofa,
    };
}

// Enters and finds the profile; the engine profile has one value, "shared".
static nv_return enter_profile(enum nv_call call, nv_gi handle, unsigned profile, unsigned engines, struct fg_db **db,
                               struct fg_profile *gi, struct fg_ci_profile *ci) {
    struct nv_target t;
    nv_return result = nv_enter_gi(call, handle, db, &t);
    if (result != NV_SUCCESS) return result;
    if (profile >= NV_CI_PROFILES || engines != 0) return nv_leave(*db, NV_INVALID_ARGUMENT);
    *gi = gi_profile(*db, &t);
    return fg_ci_profile(gi, profile, ci) ? NV_SUCCESS : nv_leave(*db, NV_NOT_SUPPORTED);
}

NV_API nv_return nvmlGpuInstanceGetComputeInstanceProfileInfo(nv_gi handle, unsigned profile, unsigned engines,
                                                              nv_ci_profile *info) {
    struct fg_db *db;
    struct fg_profile gi;
    struct fg_ci_profile ci;
    nv_return result = enter_profile(CALL_nvmlGpuInstanceGetComputeInstanceProfileInfo, handle, profile, engines, &db,
                                     &gi, &ci);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *info = profile_info(&gi, &ci);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceGetComputeInstanceProfileInfoV(nv_gi handle, unsigned profile, unsigned engines,
                                                               nv_ci_profile_v2 *info) {
    struct fg_db *db;
    struct fg_profile gi;
    struct fg_ci_profile ci;
    nv_return result = enter_profile(CALL_nvmlGpuInstanceGetComputeInstanceProfileInfoV, handle, profile, engines, &db,
                                     &gi, &ci);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    nv_ci_profile p = profile_info(&gi, &ci);
    int v2 = info->version == NV_STRUCT_VERSION(nv_ci_profile_v2, 2);
    if (!v2 && info->version != NV_STRUCT_VERSION(nv_ci_profile_v3, 3)) {
        return nv_leave(db, NV_ARGUMENT_VERSION_MISMATCH);
    }
    // Version 3 is version 2 with one word behind it.
    *info = (nv_ci_profile_v2){
        .version = info->version, .id = p.id, .slices = p.slices, .count = p.count, .sm = p.sm, .ce = p.ce,
        .dec = p.dec, .enc = p.enc, .jpeg = p.jpeg, .ofa = p.ofa,
    };
    nv_ci_name(&gi, ci.slices, info->name, sizeof info->name);
    if (!v2) ((nv_ci_profile_v3 *)(void *)info)->capabilities = 0;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nv_gi handle, unsigned profile, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceGetComputeInstanceRemainingCapacity, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_profile gi = gi_profile(db, &t);
    int capacity = fg_ci_capacity(gi_of(db, &t), &gi, profile);
    if (capacity < 0) return nv_leave(db, NV_NOT_SUPPORTED);
    *count = (unsigned)capacity;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceGetComputeInstancePossiblePlacements(nv_gi handle, unsigned profile, nv_placement *out,
                                                                     unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceGetComputeInstancePossiblePlacements, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    struct fg_profile gi = gi_profile(db, &t);
    struct fg_ci_profile ci;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (!fg_ci_profile(&gi, profile, &ci)) return nv_leave(db, NV_NOT_SUPPORTED);
    unsigned starts = fg_ci_starts(&gi, &ci), found = 0;
    for (unsigned start = 0; start < 8; start++) {
        if (!(starts >> start & 1)) continue;
        if (out != NULL) out[found] = (nv_placement){.start = start, .size = (unsigned)ci.slices};
        found++;
    }
    *count = found;
    return nv_leave(db, NV_SUCCESS);
}

static nv_return create(enum nv_call call, nv_gi handle, unsigned profile, const nv_placement *placement, int chosen,
                        nv_ci *ci) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(call, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (ci == NULL || (chosen && (placement == NULL || placement->start > 7))) {
        return nv_leave(db, NV_INVALID_ARGUMENT);
    }
    struct fg_profile gi = gi_profile(db, &t);
    result = fg_ci_create(gi_of(db, &t), &gi, profile, chosen ? (int)placement->start : -1, &t.ci);
    if (result != NV_SUCCESS) return nv_leave(db, result);
    t.kind = NV_KIND_CI;
    *ci = nv_handle(db, t);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceCreateComputeInstance(nv_gi gi, unsigned profile, nv_ci *ci) {
    return create(CALL_nvmlGpuInstanceCreateComputeInstance, gi, profile, NULL, 0, ci);
}

NV_API nv_return nvmlGpuInstanceCreateComputeInstanceWithPlacement(nv_gi gi, unsigned profile,
                                                                   const nv_placement *placement, nv_ci *ci) {
    return create(CALL_nvmlGpuInstanceCreateComputeInstanceWithPlacement, gi, profile, placement, 1, ci);
}

NV_API nv_return nvmlComputeInstanceDestroy(nv_ci ci) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_ci(CALL_nvmlComputeInstanceDestroy, ci, &db, &t);
    if (result != NV_SUCCESS) return result;
    return nv_leave(db, fg_ci_destroy(db, (unsigned)t.gpu, t.gi, t.ci));
}

NV_API nv_return nvmlGpuInstanceGetComputeInstances(nv_gi handle, unsigned profile, nv_ci *list, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceGetComputeInstances, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    struct fg_profile gi = gi_profile(db, &t);
    struct fg_ci_profile ci;
    if (count == NULL || list == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (!fg_ci_profile(&gi, profile, &ci)) return nv_leave(db, NV_NOT_SUPPORTED);
    *count = 0;
    for (t.ci = 0; t.ci < FG_MAX_CIS; t.ci++) {
        const struct fg_ci *made = &gi_of(db, &t)->cis[t.ci];
        if (!fg_read(&made->used) || made->profile != profile) continue;
        t.kind = NV_KIND_CI;
        list[(*count)++] = nv_handle(db, t);
    }
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceGetComputeInstanceById(nv_gi handle, unsigned id, nv_ci *ci) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceGetComputeInstanceById, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (ci == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    t.ci = fg_ci_by_id(gi_of(db, &t), id);
    if (t.ci < 0) return nv_leave(db, NV_NOT_FOUND);
    t.kind = NV_KIND_CI;
    *ci = nv_handle(db, t);
    return nv_leave(db, NV_SUCCESS);
}

static nv_return ci_info(enum nv_call call, nv_ci handle, nv_ci_info *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_ci(call, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    const struct fg_ci *ci = &gi_of(db, &t)->cis[t.ci];
    *info = (nv_ci_info){
        .device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = t.gpu}),
        .gi = nv_handle(db, (struct nv_target){.kind = NV_KIND_GI, .gpu = t.gpu, .gi = t.gi}), .id = ci->id,
        .profile_id = ci->profile, .placement = {.start = ci->start, .size = ci->size},
    };
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlComputeInstanceGetInfo(nv_ci ci, nv_ci_info *info) {
    return ci_info(CALL_nvmlComputeInstanceGetInfo, ci, info);
}

NV_API nv_return nvmlComputeInstanceGetInfo_v2(nv_ci ci, nv_ci_info *info) {
    return ci_info(CALL_nvmlComputeInstanceGetInfo_v2, ci, info);
}

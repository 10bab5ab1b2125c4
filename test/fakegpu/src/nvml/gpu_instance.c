// SPDX-License-Identifier: Apache-2.0
// GPU instances: profiles and placements, which can be read with MIG mode off,
// as can the (empty) list of instances; create and destroy, which need it on.
// The answers are those of an H200 with driver 580.159.04 where they could be
// read there, with MIG mode off.
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "device.h"
#include "state/mig.h"

static nv_gi_profile profile_info(const struct fg_board *board, int index) {
    struct fg_profile p = fg_profile_filled(board, index);
    return (nv_gi_profile){
        .id = (unsigned)p.id, .p2p = 0, .slices = (unsigned)p.slices, .count = (unsigned)p.max, .sm = (unsigned)p.sm,
        .ce = (unsigned)p.ce, .dec = (unsigned)p.dec, .enc = (unsigned)p.enc, .jpeg = (unsigned)p.jpeg,
        .ofa = (unsigned)p.ofa, .memory_mib = (unsigned long long)p.mib,
    };
}

NV_API nv_return nvmlDeviceGetGpuInstanceProfileInfo(nv_device device, unsigned profile, nv_gi_profile *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetGpuInstanceProfileInfo, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL || profile >= NV_GI_PROFILES) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    int index = fg_profile_by_nvml(&board, profile);
    if (index < 0) return nv_leave(db, NV_NOT_SUPPORTED);
    *info = profile_info(&board, index);
    return nv_leave(db, NV_SUCCESS);
}

// Both layouts start with their version, which says how much the caller has. As
// driver 580 does, the version comes back as 0 and the third layout without its name.
static nv_return put_profile(const struct fg_board *board, int index, nv_gi_profile_v2 *info) {
    enum { CAPABILITY_GFX = 2 };
    nv_gi_profile p = profile_info(board, index);
    const char *name = board->profiles[index].name;
    if (info->version == NV_STRUCT_VERSION(nv_gi_profile_v2, 2)) {
        *info = (nv_gi_profile_v2){
            .id = p.id, .p2p = p.p2p, .slices = p.slices, .count = p.count, .sm = p.sm,
            .ce = p.ce, .dec = p.dec, .enc = p.enc, .jpeg = p.jpeg, .ofa = p.ofa, .memory_mib = p.memory_mib,
        };
        snprintf(info->name, sizeof info->name, "MIG %s", name);
        return NV_SUCCESS;
    }
    if (info->version == NV_STRUCT_VERSION(nv_gi_profile_v3, 3)) {
        nv_gi_profile_v3 *v3 = (nv_gi_profile_v3 *)(void *)info;
        *v3 = (nv_gi_profile_v3){
            .id = p.id, .slices = p.slices, .count = p.count, .sm = p.sm, .ce = p.ce,
            .dec = p.dec, .enc = p.enc, .jpeg = p.jpeg, .ofa = p.ofa, .memory_mib = p.memory_mib,
            .capabilities = strstr(name, "+gfx") != NULL ? CAPABILITY_GFX : 0,
        };
        return NV_SUCCESS;
    }
    return NV_INVALID_ARGUMENT;
}

NV_API nv_return nvmlDeviceGetGpuInstanceProfileInfoV(nv_device device, unsigned profile, nv_gi_profile_v2 *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetGpuInstanceProfileInfoV, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL || profile >= NV_GI_PROFILES) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    int index = fg_profile_by_nvml(&board, profile);
    return nv_leave(db, index < 0 ? NV_NOT_SUPPORTED : put_profile(&board, index, info));
}

NV_API nv_return nvmlDeviceGetGpuInstanceProfileInfoByIdV(nv_device device, unsigned id, nv_gi_profile_v2 *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetGpuInstanceProfileInfoByIdV, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    int index = fg_profile_by_id(&board, id);
    return nv_leave(db, index < 0 ? NV_INVALID_ARGUMENT : put_profile(&board, index, info));
}

// Whether some board has a profile of that id.
static int known_id(unsigned id) {
    struct fg_board board;
    for (size_t i = 0; fg_board_at(i, &board); i++) {
        if (fg_profile_by_id(&board, id) >= 0) return 1;
    }
    return 0;
}

static nv_return placements(enum nv_call call, nv_device device, unsigned id, nv_placement *out, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    int index = fg_profile_by_id(&board, id);
    if (index < 0) return nv_leave(db, known_id(id) ? NV_NOT_SUPPORTED : NV_INVALID_ARGUMENT);
    const struct fg_profile *p = &board.profiles[index];
    // Without a place to write to, only the number is asked for. The array is
    // sized by the caller from that number.
    unsigned found = 0;
    for (unsigned start = 0; start < 32; start++) {
        if (!(p->starts >> start & 1)) continue;
        if (out != NULL) out[found] = (nv_placement){.start = start, .size = (unsigned)p->size};
        found++;
    }
    *count = found;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetGpuInstancePossiblePlacements(nv_device device, unsigned id, nv_placement *out,
                                                            unsigned *count) {
    return placements(CALL_nvmlDeviceGetGpuInstancePossiblePlacements, device, id, out, count);
}

NV_API nv_return nvmlDeviceGetGpuInstancePossiblePlacements_v2(nv_device device, unsigned id, nv_placement *out,
                                                               unsigned *count) {
    return placements(CALL_nvmlDeviceGetGpuInstancePossiblePlacements_v2, device, id, out, count);
}

// Enters a call that needs a profile of the board.
static nv_return enter_profile(enum nv_call call, nv_device device, unsigned id, struct fg_db **db,
                               struct nv_target *t, struct fg_board *board, int *profile) {
    nv_return result = nv_enter_gpu(call, device, db, t);
    if (result != NV_SUCCESS) return result;
    *board = nv_board(*db, t);
    *profile = fg_profile_by_id(board, id);
    return *profile < 0 ? nv_leave(*db, NV_NOT_SUPPORTED) : NV_SUCCESS;
}

NV_API nv_return nvmlDeviceGetGpuInstanceRemainingCapacity(nv_device device, unsigned id, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    struct fg_board board;
    int profile;
    nv_return result =
        enter_profile(CALL_nvmlDeviceGetGpuInstanceRemainingCapacity, device, id, &db, &t, &board, &profile);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *count = (unsigned)fg_gi_capacity(nv_gpu(db, &t), &board, profile);
    return nv_leave(db, NV_SUCCESS);
}

static nv_return create(enum nv_call call, nv_device device, unsigned id, const nv_placement *placement, int chosen,
                        nv_gi *gi) {
    struct fg_db *db;
    struct nv_target t;
    struct fg_board board;
    int profile;
    nv_return result = enter_profile(call, device, id, &db, &t, &board, &profile);
    if (result != NV_SUCCESS) return result;
    if (!nv_mig_on(db, &t)) return nv_leave(db, NV_NOT_SUPPORTED);
    if (gi == NULL || (chosen && placement == NULL)) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (chosen && (placement->size != (unsigned)board.profiles[profile].size || placement->start > 31)) {
        return nv_leave(db, NV_INVALID_ARGUMENT);
    }
    result = fg_gi_create(nv_gpu(db, &t), &board, profile, chosen ? (int)placement->start : -1, &t.gi);
    if (result != NV_SUCCESS) return nv_leave(db, result);
    t.kind = NV_KIND_GI;
    *gi = nv_handle(db, t);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceCreateGpuInstance(nv_device device, unsigned id, nv_gi *gi) {
    return create(CALL_nvmlDeviceCreateGpuInstance, device, id, NULL, 0, gi);
}

NV_API nv_return nvmlDeviceCreateGpuInstanceWithPlacement(nv_device device, unsigned id, const nv_placement *placement,
                                                          nv_gi *gi) {
    return create(CALL_nvmlDeviceCreateGpuInstanceWithPlacement, device, id, placement, 1, gi);
}

NV_API nv_return nvmlGpuInstanceDestroy(nv_gi gi) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceDestroy, gi, &db, &t);
    if (result != NV_SUCCESS) return result;
    return nv_leave(db, fg_gi_destroy(db, (unsigned)t.gpu, t.gi));
}

NV_API nv_return nvmlDeviceGetGpuInstances(nv_device device, unsigned id, nv_gi *list, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    struct fg_board board;
    int profile;
    nv_return result = enter_profile(CALL_nvmlDeviceGetGpuInstances, device, id, &db, &t, &board, &profile);
    if (result != NV_SUCCESS) return result;
    if (count == NULL || list == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *count = 0;
    for (t.gi = 0; t.gi < FG_MAX_GIS; t.gi++) {
        const struct fg_gi *gi = &nv_gpu(db, &t)->gis[t.gi];
        if (!fg_read(&gi->used) || (int)gi->profile != profile) continue;
        t.kind = NV_KIND_GI;
        list[(*count)++] = nv_handle(db, t);
    }
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetGpuInstanceById(nv_device device, unsigned id, nv_gi *gi) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetGpuInstanceById, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (gi == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    t.gi = fg_gi_by_id(nv_gpu(db, &t), id);
    if (t.gi < 0) return nv_leave(db, NV_NOT_FOUND);
    t.kind = NV_KIND_GI;
    *gi = nv_handle(db, t);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlGpuInstanceGetInfo(nv_gi handle, nv_gi_info *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gi(CALL_nvmlGpuInstanceGetInfo, handle, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    const struct fg_gi *gi = &nv_gpu(db, &t)->gis[t.gi];
    struct fg_board board = nv_board(db, &t);
    const struct fg_profile *p = &board.profiles[gi->profile];
    *info = (nv_gi_info){
        .device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = t.gpu}), .id = gi->id,
        .profile_id = (unsigned)p->id, .placement = {.start = gi->start, .size = (unsigned)p->size},
    };
    return nv_leave(db, NV_SUCCESS);
}

// SPDX-License-Identifier: Apache-2.0
// Finding devices and what identifies them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "device.h"
#include "state/mig.h"

struct fg_gpu *nv_gpu(struct fg_db *db, const struct nv_target *target) { return &db->state->gpus[target->gpu]; }

struct fg_board nv_board(struct fg_db *db, const struct nv_target *target) {
    struct fg_board board = {0};
    fg_board_find(nv_gpu(db, target)->board, &board); // create accepts known boards only
    return board;
}

static nv_return device_count(enum nv_call call, unsigned *count) {
    struct fg_db *db;
    nv_return result = nv_enter(call, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *count = fg_read(&db->state->gpu_count);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetCount(unsigned *count) { return device_count(CALL_nvmlDeviceGetCount, count); }
NV_API nv_return nvmlDeviceGetCount_v2(unsigned *count) { return device_count(CALL_nvmlDeviceGetCount_v2, count); }

static nv_return handle_by_index(enum nv_call call, unsigned index, nv_device *device) {
    struct fg_db *db;
    nv_return result = nv_enter(call, index < FG_MAX_GPUS ? (int)index : FG_MAX_GPUS, &db);
    if (result != NV_SUCCESS) return result;
    if (device == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = (int)index});
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetHandleByIndex(unsigned index, nv_device *device) {
    return handle_by_index(CALL_nvmlDeviceGetHandleByIndex, index, device);
}

NV_API nv_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nv_device *device) {
    return handle_by_index(CALL_nvmlDeviceGetHandleByIndex_v2, index, device);
}

// The GPU or MIG device of that UUID.
static nv_return find_uuid(struct fg_db *db, const char *uuid, nv_device *device) {
    for (int i = 0; i < (int)fg_read(&db->state->gpu_count); i++) {
        struct fg_gpu *gpu = &db->state->gpus[i];
        struct nv_target target = {.kind = NV_KIND_GPU, .gpu = i};
        int found = strcmp(gpu->uuid, uuid) == 0;
        char mig[48];
        for (unsigned m = 0; !found && fg_mig_device_at(gpu, m, &target.gi, &target.ci); m++) {
            fg_mig_uuid(gpu, gpu->gis[target.gi].id, gpu->gis[target.gi].cis[target.ci].id, mig);
            found = strcmp(mig, uuid) == 0;
            target.kind = found ? NV_KIND_MIG : NV_KIND_GPU;
        }
        if (!found) continue;
        if (fg_read(&gpu->lost)) return NV_GPU_IS_LOST;
        *device = nv_handle(db, target);
        return NV_SUCCESS;
    }
    return NV_NOT_FOUND;
}

NV_API nv_return nvmlDeviceGetHandleByUUID(const char *uuid, nv_device *device) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlDeviceGetHandleByUUID, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (uuid == NULL || device == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    return nv_leave(db, find_uuid(db, uuid, device));
}

NV_API nv_return nvmlDeviceGetHandleByUUIDV(const nv_uuid *uuid, nv_device *device) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlDeviceGetHandleByUUIDV, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (uuid == NULL || device == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (uuid->version != NV_STRUCT_VERSION(nv_uuid, 1)) return nv_leave(db, NV_ARGUMENT_VERSION_MISMATCH);
    if (uuid->type != 1) return nv_leave(db, NV_NOT_SUPPORTED); // only the text form
    char text[sizeof uuid->value.text + 1] = {0};
    memcpy(text, uuid->value.text, sizeof uuid->value.text);
    return nv_leave(db, find_uuid(db, text, device));
}

static nv_return handle_by_bus_id(enum nv_call call, const char *bus_id, nv_device *device) {
    struct fg_db *db;
    nv_return result = nv_enter(call, -1, &db);
    if (result != NV_SUCCESS) return result;
    unsigned domain, bus, slot, function = 0;
    if (bus_id == NULL || device == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function) < 2) return nv_leave(db, NV_INVALID_ARGUMENT);
    }
    for (int i = 0; i < (int)fg_read(&db->state->gpu_count); i++) {
        if (domain != 0 || slot != 0 || db->state->gpus[i].bus != bus) continue;
        if (fg_read(&db->state->gpus[i].lost)) return nv_leave(db, NV_GPU_IS_LOST);
        *device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = i});
        return nv_leave(db, NV_SUCCESS);
    }
    return nv_leave(db, NV_NOT_FOUND);
}

NV_API nv_return nvmlDeviceGetHandleByPciBusId(const char *bus_id, nv_device *device) {
    return handle_by_bus_id(CALL_nvmlDeviceGetHandleByPciBusId, bus_id, device);
}

NV_API nv_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nv_device *device) {
    return handle_by_bus_id(CALL_nvmlDeviceGetHandleByPciBusId_v2, bus_id, device);
}

NV_API nv_return nvmlDeviceGetName(nv_device device, char *name, unsigned length) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetName, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    struct fg_board board = nv_board(db, &t);
    char text[96];
    if (t.kind == NV_KIND_MIG) {
        const struct fg_gi *gi = &nv_gpu(db, &t)->gis[t.gi];
        char profile[64];
        nv_ci_name(&board.profiles[gi->profile], (int)gi->cis[t.ci].size, profile, sizeof profile);
        snprintf(text, sizeof text, "%s %s", board.product, profile);
    } else {
        snprintf(text, sizeof text, "%s", board.product);
    }
    return nv_leave(db, nv_put_text(name, length, text));
}

NV_API nv_return nvmlDeviceGetUUID(nv_device device, char *uuid, unsigned length) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetUUID, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    const struct fg_gpu *gpu = nv_gpu(db, &t);
    char text[48];
    snprintf(text, sizeof text, "%s", gpu->uuid);
    if (t.kind == NV_KIND_MIG) fg_mig_uuid(gpu, gpu->gis[t.gi].id, gpu->gis[t.gi].cis[t.ci].id, text);
    return nv_leave(db, nv_put_text(uuid, length, text));
}

NV_API nv_return nvmlDeviceGetIndex(nv_device device, unsigned *index) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetIndex, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (index == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *index = t.kind == NV_KIND_MIG ? (unsigned)fg_mig_device_index(nv_gpu(db, &t), t.gi, t.ci) : (unsigned)t.gpu;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetMinorNumber(nv_device device, unsigned *minor) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetMinorNumber, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (minor == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *minor = nv_gpu(db, &t)->minor;
    return nv_leave(db, NV_SUCCESS);
}

static nv_return pci_info(enum nv_call call, nv_device device, nv_pci_info *info) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (info == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    unsigned bus = nv_gpu(db, &t)->bus & 0xFF;
    *info = (nv_pci_info){.bus = bus, .pci_device_id = board.pci_device << 16 | 0x10DE,
                          .pci_subsystem_id = 0x16C110DE};
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", bus);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetPciInfo(nv_device device, nv_pci_info *info) {
    return pci_info(CALL_nvmlDeviceGetPciInfo, device, info);
}

NV_API nv_return nvmlDeviceGetPciInfo_v2(nv_device device, nv_pci_info *info) {
    return pci_info(CALL_nvmlDeviceGetPciInfo_v2, device, info);
}

NV_API nv_return nvmlDeviceGetPciInfo_v3(nv_device device, nv_pci_info *info) {
    return pci_info(CALL_nvmlDeviceGetPciInfo_v3, device, info);
}

NV_API nv_return nvmlDeviceGetPciInfoExt(nv_device device, nv_pci_info_ext *info) {
    if (info == NULL) return NV_INVALID_ARGUMENT;
    if (info->version != NV_STRUCT_VERSION(nv_pci_info_ext, 1)) return NV_ARGUMENT_VERSION_MISMATCH;
    nv_pci_info plain;
    nv_return result = pci_info(CALL_nvmlDeviceGetPciInfoExt, device, &plain);
    if (result != NV_SUCCESS) return result;
    *info = (nv_pci_info_ext){.version = info->version, .bus = plain.bus, .pci_device_id = plain.pci_device_id,
                              .pci_subsystem_id = plain.pci_subsystem_id, .base_class = 3, .sub_class = 2};
    memcpy(info->bus_id, plain.bus_id, sizeof info->bus_id);
    return NV_SUCCESS;
}

// SPDX-License-Identifier: Apache-2.0
// Which devices this process sees, and what can be asked about them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "state/driver.h"
#include "state/mig.h"

// In a container a process reaches the GPUs whose device nodes it has. That it is in one tells the state's place: elsewhere
// programs name the file, and there may be no nodes at all.
static int reachable(unsigned minor) {
    char node[32];
    if (getenv("FAKEGPU_STATE") != NULL || access("/dev/nvidiactl", F_OK) != 0) return 1;
    snprintf(node, sizeof node, "/dev/nvidia%u", minor);
    return access(node, F_OK) == 0;
}

// A GPU, or with MIG mode on its MIG device of that index; 0 when there is none.
static int fill(const struct core *core, unsigned gpu_index, unsigned mig_index, struct device *device) {
    const uint64_t mib = 1u << 20;
    const struct fg_gpu *gpu = &core->db.state->gpus[gpu_index];
    *device = (struct device){.gpu = gpu_index, .gi = FG_NO_INSTANCE, .ci = FG_NO_INSTANCE, .slot = -1};
    if (!reachable(gpu->minor) || fg_read(&gpu->lost) || !fg_board_find(gpu->board, &device->board)) return 0;
    device->sm = device->board.sm;
    device->memory = (uint64_t)(device->board.total_mib - device->board.reserved_mib) * mib;
    snprintf(device->uuid, sizeof device->uuid, "%s", gpu->uuid);
    if (!(fg_read(&gpu->mig) & FG_MIG_CURRENT)) return 1;

    int g, c;
    if (!fg_mig_device_at(gpu, mig_index, &g, &c)) return 0;
    struct fg_profile p = fg_profile_filled(&device->board, (int)gpu->gis[g].profile);
    device->gi = gpu->gis[g].id;
    device->ci = gpu->gis[g].cis[c].id;
    device->sm = p.sm * (int)gpu->gis[g].cis[c].size / p.slices;
    device->memory = (uint64_t)p.mib * mib;
    fg_mig_uuid(gpu, device->gi, device->ci, device->uuid);
    return 1;
}

// An entry of CUDA_VISIBLE_DEVICES: an index, or the beginning of a UUID.
static int find(const struct core *core, const char *entry, size_t length, struct device *device) {
    unsigned count = fg_read(&core->db.state->gpu_count);
    char *end;
    unsigned long index = strtoul(entry, &end, 10);
    if (length > 0 && end == entry + length) return index < count && fill(core, (unsigned)index, 0, device);
    int whole = strncmp(entry, "GPU-", 4) == 0;
    if (length < 5 || (!whole && strncmp(entry, "MIG-", 4) != 0)) return 0;
    for (unsigned i = 0; i < count; i++) {
        if (whole && strncmp(core->db.state->gpus[i].uuid, entry, length) == 0) return fill(core, i, 0, device);
        if (whole || !(fg_read(&core->db.state->gpus[i].mig) & FG_MIG_CURRENT)) continue;
        for (unsigned m = 0; fill(core, i, m, device); m++) {
            if (strncmp(device->uuid, entry, length) == 0) return 1;
        }
    }
    return 0;
}

cu_result core_enumerate(struct core *core, const char *visible) {
    core->device_count = 0;
    if (visible == NULL) {
        // With MIG mode on, a process sees the first MIG device of a GPU.
        for (unsigned i = 0; i < fg_read(&core->db.state->gpu_count); i++) {
            if (fill(core, i, 0, &core->devices[core->device_count])) core->device_count++;
        }
    }
    while (visible != NULL && *visible != '\0' && core->device_count < MAX_VISIBLE) {
        size_t length = strcspn(visible, ",");
        struct device *found = &core->devices[core->device_count];
        if (!find(core, visible, length, found)) break; // what follows an unknown entry is not seen
        for (int i = 0; i < core->device_count; i++) {
            if (strcmp(core->devices[i].uuid, found->uuid) == 0) return CU_NO_DEVICE; // named twice
        }
        core->device_count++;
        visible += length + (visible[length] == ',');
    }
    return core->device_count > 0 ? CU_SUCCESS : CU_NO_DEVICE;
}

CU_API cu_result cuInit(unsigned flags) { return flags != 0 ? CU_INVALID_VALUE : core_init(); }

CU_API cu_result cuDriverGetVersion(int *version) {
    if (version == NULL) return CU_INVALID_VALUE;
    struct core *core;
    if (core_enter(&core) == CU_SUCCESS) {
        *version = fg_cuda_version(core->db.state->driver);
        core_leave(core);
        return CU_SUCCESS;
    }
    // It may be asked before cuInit: look into the file for the time of the call.
    struct fg_db db;
    if (fg_open(&db, fg_state_path()) != 0) return CU_NO_DEVICE;
    *version = fg_cuda_version(db.state->driver);
    fg_close(&db);
    return CU_SUCCESS;
}

CU_API cu_result cuDeviceGetCount(int *count) {
    struct core *core;
    if (count == NULL) return CU_INVALID_VALUE;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    *count = core->device_count;
    core_leave(core);
    return CU_SUCCESS;
}

// Enters and copies the device, which does not change in what is read here.
static cu_result copy_device(cu_device index, struct device *device) {
    struct core *core;
    cu_result result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    const struct device *found = core_device(core, index);
    if (found != NULL) *device = *found;
    core_leave(core);
    return found == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

CU_API cu_result cuDeviceGet(cu_device *device, int ordinal) {
    struct device found;
    if (device == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_device(ordinal, &found);
    if (result == CU_SUCCESS) *device = ordinal;
    return result;
}

CU_API cu_result cuDeviceGetName(char *name, int length, cu_device device) {
    struct device found;
    if (name == NULL || length < 1) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    if (result != CU_SUCCESS) return result;
    snprintf(name, (size_t)length, "%s%s", found.board.product, found.gi != FG_NO_INSTANCE ? " MIG" : "");
    return CU_SUCCESS;
}

static cu_result put_uuid(cu_uuid *uuid, const char *text) {
    size_t at = 0;
    for (text += 4; *text != '\0' && at < sizeof uuid->bytes; text += 2) {
        unsigned byte;
        if (*text == '-') text++;
        if (sscanf(text, "%2x", &byte) != 1) return CU_UNKNOWN;
        uuid->bytes[at++] = (char)byte;
    }
    return CU_SUCCESS;
}

// The first version gives the GPU's UUID even for a MIG device.
CU_API cu_result cuDeviceGetUuid(cu_uuid *uuid, cu_device device) {
    struct device found;
    if (uuid == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    struct core *core;
    if (result == CU_SUCCESS) result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    result = put_uuid(uuid, core->db.state->gpus[found.gpu].uuid);
    core_leave(core);
    return result;
}

CU_API cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device) {
    struct device found;
    if (uuid == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    return result != CU_SUCCESS ? result : put_uuid(uuid, found.uuid);
}

CU_API cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
    struct device found;
    if (bytes == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    if (result == CU_SUCCESS) *bytes = found.memory;
    return result;
}

CU_API cu_result cuDeviceTotalMem(unsigned *bytes, cu_device device) {
    size_t full;
    if (bytes == NULL) return CU_INVALID_VALUE;
    cu_result result = cuDeviceTotalMem_v2(&full, device);
    if (result == CU_SUCCESS) *bytes = full > UINT32_MAX ? UINT32_MAX : (unsigned)full;
    return result;
}

// The attributes that programs choose their ways by; what is not offered is 0.
static int attribute(const struct device *d, unsigned bus, int id) {
    switch (id) {
    case 1: case 2: case 3: return id == 3 ? 64 : 1024; // threads and size of a block
    case 5: return 2147483647;                          // size of a grid
    case 6: case 7: return 65535;
    case 8: return 49152;   // shared memory of a block
    case 9: return 65536;   // constant memory
    case 10: return 32;     // warp
    case 12: return 65536;  // registers of a block
    case 13: return 1980000; // kHz
    case 16: return d->sm;
    case 31: return 1;  // concurrent kernels
    case 33: return (int)bus;
    case 39: return 2048; // threads of a multiprocessor
    case 40: return 3;    // copy engines
    case 41: return 1;    // unified addressing
    case 75: return d->board.cc_major;
    case 76: return d->board.cc_minor;
    case 81: return 233472; // shared memory of a multiprocessor
    case 82: return 65536;  // registers of a multiprocessor
    case 83: return 1;      // managed memory
    case 89: return 1;      // of which the host may use pages at the same time
    case 95: return 1;      // cooperative launches
    case 97: return 232448; // opt-in shared memory of a block
    case 102: case 103: return 1; // virtual memory management, with descriptors
    case 115: return 1;           // pools
    case 119: return 1;           // pools' handle types: descriptors
    default: return 0;
    }
}

CU_API cu_result cuDeviceGetAttribute(int *value, int id, cu_device device) {
    enum { ATTRIBUTES = 160 };
    struct device found;
    if (value == NULL || id < 1 || id >= ATTRIBUTES) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    struct core *core;
    if (result == CU_SUCCESS) result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    *value = attribute(&found, core->db.state->gpus[found.gpu].bus, id);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuDeviceGetPCIBusId(char *text, int length, cu_device device) {
    struct device found;
    struct core *core;
    if (text == NULL || length < 13) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    if (result == CU_SUCCESS) result = core_enter(&core);
    if (result != CU_SUCCESS) return result;
    snprintf(text, (size_t)length, "0000:%02x:00.0", core->db.state->gpus[found.gpu].bus);
    core_leave(core);
    return CU_SUCCESS;
}

CU_API cu_result cuDeviceComputeCapability(int *major, int *minor, cu_device device) {
    if (major == NULL || minor == NULL) return CU_INVALID_VALUE;
    cu_result result = cuDeviceGetAttribute(major, 75, device);
    return result == CU_SUCCESS ? cuDeviceGetAttribute(minor, 76, device) : result;
}

CU_API cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer) {
    struct device found;
    if (can == NULL) return CU_INVALID_VALUE;
    cu_result result = copy_device(device, &found);
    if (result == CU_SUCCESS) result = copy_device(peer, &found);
    if (result == CU_SUCCESS) *can = device != peer;
    return result;
}

// SPDX-License-Identifier: Apache-2.0
// Properties that follow from the board.
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "device.h"
#include "state/uuid.h"

static nv_return put(struct fg_db *db, unsigned *out, unsigned value) {
    if (out == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *out = value;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetArchitecture(nv_device device, unsigned *arch) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetArchitecture, device, &db, &t);
    return result != NV_SUCCESS ? result : put(db, arch, nv_board(db, &t).arch);
}

NV_API nv_return nvmlDeviceGetBrand(nv_device device, unsigned *brand) {
    enum { BRAND_NVIDIA_RTX = 13, BRAND_NVIDIA = 14 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetBrand, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    return put(db, brand, strstr(nv_board(db, &t).product, "RTX") != NULL ? BRAND_NVIDIA_RTX : BRAND_NVIDIA);
}

NV_API nv_return nvmlDeviceGetCudaComputeCapability(nv_device device, int *major, int *minor) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetCudaComputeCapability, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (major == NULL || minor == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    struct fg_board board = nv_board(db, &t);
    *major = board.cc_major;
    *minor = board.cc_minor;
    return nv_leave(db, NV_SUCCESS);
}

// Only where the CPU reaches the GPU's memory is the GPU itself a NUMA node;
// elsewhere the affinity masks below tell where it hangs.
NV_API nv_return nvmlDeviceGetNumaNodeId(nv_device device, unsigned *node) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetNumaNodeId, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (!nv_board(db, &t).coherent) return nv_leave(db, NV_NOT_SUPPORTED);
    return put(db, node, 2 + (unsigned)t.gpu);
}

static nv_return set_bits(struct fg_db *db, unsigned words, unsigned long *set, unsigned first, unsigned count) {
    if (set == NULL || words == 0) return nv_leave(db, NV_INVALID_ARGUMENT);
    memset(set, 0, words * sizeof *set);
    unsigned width = 8 * sizeof *set;
    for (unsigned bit = first; bit < first + count && bit < words * width; bit++) {
        set[bit / width] |= 1ul << bit % width;
    }
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetMemoryAffinity(nv_device device, unsigned words, unsigned long *nodes, unsigned scope) {
    (void)scope; // node and socket are the same here
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetMemoryAffinity, device, &db, &t);
    return result != NV_SUCCESS ? result : set_bits(db, words, nodes, nv_gpu(db, &t)->numa, 1);
}

static nv_return cpu_affinity(enum nv_call call, nv_device device, unsigned words, unsigned long *cpus) {
    enum { CPUS_OF_A_NODE = 32 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    return set_bits(db, words, cpus, nv_gpu(db, &t)->numa * CPUS_OF_A_NODE, CPUS_OF_A_NODE);
}

NV_API nv_return nvmlDeviceGetCpuAffinity(nv_device device, unsigned words, unsigned long *cpus) {
    return cpu_affinity(CALL_nvmlDeviceGetCpuAffinity, device, words, cpus);
}

NV_API nv_return nvmlDeviceGetCpuAffinityWithinScope(nv_device device, unsigned words, unsigned long *cpus,
                                                     unsigned scope) {
    (void)scope;
    return cpu_affinity(CALL_nvmlDeviceGetCpuAffinityWithinScope, device, words, cpus);
}

NV_API nv_return nvmlDeviceGetAddressingMode(nv_device device, nv_addressing_mode *mode) {
    enum { ADDRESSING_NONE = 0, ADDRESSING_ATS = 2 };
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetAddressingMode, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (mode == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (mode->version != NV_STRUCT_VERSION(nv_addressing_mode, 1)) return nv_leave(db, NV_ARGUMENT_VERSION_MISMATCH);
    return put(db, &mode->value, nv_board(db, &t).coherent ? ADDRESSING_ATS : ADDRESSING_NONE);
}

// The PCIe generation that came with the architecture; SXM boards are x16 too.
static nv_return pcie(enum nv_call call, nv_device device, int width, unsigned *out) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    return put(db, out, width ? 16 : nv_board(db, &t).arch == FG_AMPERE ? 4 : 5);
}

NV_API nv_return nvmlDeviceGetMaxPcieLinkGeneration(nv_device device, unsigned *generation) {
    return pcie(CALL_nvmlDeviceGetMaxPcieLinkGeneration, device, 0, generation);
}

NV_API nv_return nvmlDeviceGetCurrPcieLinkGeneration(nv_device device, unsigned *generation) {
    return pcie(CALL_nvmlDeviceGetCurrPcieLinkGeneration, device, 0, generation);
}

NV_API nv_return nvmlDeviceGetMaxPcieLinkWidth(nv_device device, unsigned *width) {
    return pcie(CALL_nvmlDeviceGetMaxPcieLinkWidth, device, 1, width);
}

NV_API nv_return nvmlDeviceGetCurrPcieLinkWidth(nv_device device, unsigned *width) {
    return pcie(CALL_nvmlDeviceGetCurrPcieLinkWidth, device, 1, width);
}

static nv_return state_of_mode(enum nv_call call, nv_device device, unsigned *mode, unsigned value) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(call, device, &db, &t);
    return result != NV_SUCCESS ? result : put(db, mode, value);
}

NV_API nv_return nvmlDeviceGetComputeMode(nv_device device, unsigned *mode) {
    return state_of_mode(CALL_nvmlDeviceGetComputeMode, device, mode, 0); // many processes may share
}

NV_API nv_return nvmlDeviceGetPersistenceMode(nv_device device, unsigned *mode) {
    return state_of_mode(CALL_nvmlDeviceGetPersistenceMode, device, mode, 1);
}

NV_API nv_return nvmlDeviceGetEccMode(nv_device device, unsigned *current, unsigned *pending) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetEccMode, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (current == NULL || pending == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *current = *pending = 1;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetNumGpuCores(nv_device device, unsigned *cores) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetNumGpuCores, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    struct fg_board board = nv_board(db, &t);
    return put(db, cores, (unsigned)board.sm * (board.arch == FG_AMPERE ? 64 : 128));
}

// Made of the UUID's digits, so that it is the same each time the node is made.
static void serial_of(const struct fg_gpu *gpu, char *text, size_t size) {
    snprintf(text, size, "%013llu", (unsigned long long)(fg_hash_text(gpu->uuid) % 10000000000000ull));
}

NV_API nv_return nvmlDeviceGetSerial(nv_device device, char *serial, unsigned length) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetSerial, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    char text[32];
    serial_of(nv_gpu(db, &t), text, sizeof text);
    return nv_leave(db, nv_put_text(serial, length, text));
}

NV_API nv_return nvmlDeviceGetHandleBySerial(const char *serial, nv_device *device) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlDeviceGetHandleBySerial, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (serial == NULL || device == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    for (int i = 0; i < (int)fg_read(&db->state->gpu_count); i++) {
        char text[32];
        serial_of(&db->state->gpus[i], text, sizeof text);
        if (strcmp(text, serial) != 0) continue;
        if (fg_read(&db->state->gpus[i].lost)) return nv_leave(db, NV_GPU_IS_LOST);
        *device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = i});
        return nv_leave(db, NV_SUCCESS);
    }
    return nv_leave(db, NV_NOT_FOUND);
}

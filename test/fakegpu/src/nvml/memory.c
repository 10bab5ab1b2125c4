// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs and MIG devices: what the processes hold, on top of what the driver keeps.
#include "call.h"
#include "device.h"
#include "limits.h"
#include "state/mig.h"
#include "state/proc.h"

static nv_memory_v2 memory_of(struct fg_db *db, const struct nv_target *t) {
    const unsigned long long mib = 1ull << 20;
    struct fg_board board = nv_board(db, t);
    nv_memory_v2 m = {0};
    if (t->kind == NV_KIND_MIG) {
        const struct fg_gi *gi = &nv_gpu(db, t)->gis[t->gi];
        m.total = (unsigned long long)fg_profile_filled(&board, (int)gi->profile).mib * mib;
        // The compute instances of a GPU instance share its memory.
        m.used = fg_proc_bytes(db, (unsigned)t->gpu, gi->id, FG_NO_INSTANCE);
    } else {
        m.total = (unsigned long long)board.total_mib * mib;
        m.reserved = (unsigned long long)board.reserved_mib * mib;
        m.used = fg_proc_bytes(db, (unsigned)t->gpu, FG_NO_INSTANCE, FG_NO_INSTANCE);
    }
    unsigned long long gone = m.reserved + m.used;
    m.free = gone < m.total ? m.total - gone : 0;
    return m;
}

NV_API nv_return nvmlDeviceGetMemoryInfo(nv_device device, nv_memory *memory) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetMemoryInfo, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (memory == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    nv_memory_v2 m = memory_of(db, &t);
    // The first version counts what the driver keeps as used.
    *memory = (nv_memory){.total = m.total, .free = m.free, .used = m.used + m.reserved};
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetMemoryInfo_v2(nv_device device, nv_memory_v2 *memory) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetMemoryInfo_v2, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (memory == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    unsigned version = memory->version;
    // Not "version mismatch": so the real driver answers.
    if (version != NV_STRUCT_VERSION(nv_memory_v2, 2)) return nv_leave(db, NV_FUNCTION_NOT_FOUND);
    *memory = memory_of(db, &t);
    nv_show_limit(db, &t, memory);
    memory->version = version;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetBAR1MemoryInfo(nv_device device, nv_bar1_memory *memory) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetBAR1MemoryInfo, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (memory == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    // The next power of two above the memory, of which the driver maps a little.
    unsigned long long size = 1ull << 30;
    while (size < (unsigned long long)nv_board(db, &t).total_mib << 20) size <<= 1;
    *memory = (nv_bar1_memory){.total = size, .free = size - (1ull << 20), .used = 1ull << 20};
    return nv_leave(db, NV_SUCCESS);
}

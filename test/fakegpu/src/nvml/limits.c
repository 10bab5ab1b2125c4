// SPDX-License-Identifier: Apache-2.0
// Memory limits of cgroups: drivers from R615 on.
#include "limits.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "state/limit.h"
#include "state/proc.h"

// What the path of a cgroup leads to.
struct place {
    char below[FG_CGROUP];
    uint64_t identity;
};

// Whether the kernel gives the cgroup the files of its controller for device memory: the one above it says so.
static int has_controller(const char *path) {
    char file[2 * FG_CGROUP + 32], text[256];
    snprintf(file, sizeof file, "%s/../cgroup.subtree_control", path);
    FILE *controllers = fopen(file, "re");
    if (controllers == NULL) return 0;
    size_t length = fread(text, 1, sizeof text - 1, controllers);
    fclose(controllers);
    text[length] = '\0';
    return strstr(text, "dmem") != NULL;
}

static nv_return find_place(struct fg_db *db, const char *path, struct place *place) {
    if (path == NULL) return NV_INVALID_ARGUMENT;
    place->identity = fg_directory_identity(path);
    if (place->identity == 0 || !fg_limit_path(db->state, path, place->below)) return NV_OPERATING_SYSTEM;
    int dmem = db->state->limits_backend == FG_LIMITS_DMEM && !db->state->dmem_anywhere;
    return dmem && !has_controller(path) ? NV_NOT_FOUND : NV_SUCCESS;
}

// Enters with a whole GPU of a driver that has limits; MIG handles are refused.
static nv_return enter(enum nv_call call, nv_device device, const void *limits, struct fg_db **db, struct nv_target *t) {
    nv_return result = nv_enter_device(call, device, db, t);
    if (result != NV_SUCCESS) return result;
    if (limits == NULL) return nv_leave(*db, NV_INVALID_ARGUMENT);
    if (!fg_limits_known((*db)->state) || t->kind != NV_KIND_GPU || nv_mig_on(*db, t)) return nv_leave(*db, NV_NOT_SUPPORTED);
    fg_limit_sweep(*db);
    return NV_SUCCESS;
}

NV_API nv_return nvmlDeviceSetMemoryLimits_v1(nv_device device, nv_set_limits *limits) {
    struct fg_db *db;
    struct nv_target t;
    struct place place;
    nv_return result = enter(CALL_nvmlDeviceSetMemoryLimits_v1, device, limits, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (geteuid() != 0) return nv_leave(db, NV_NO_PERMISSION);
    unsigned long long total = (unsigned long long)nv_board(db, &t).total_mib << 20;
    int none = limits->soft == 0 && limits->hard == FG_NO_LIMIT;
    if (!none && (limits->soft > limits->hard || limits->hard > total)) return nv_leave(db, NV_INVALID_ARGUMENT);
    result = find_place(db, limits->cgroup, &place);
    if (result != NV_SUCCESS) return nv_leave(db, result);
    if (fg_limit_set(db, (unsigned)t.gpu, place.below, place.identity, limits->soft, limits->hard) != 0) return nv_leave(db, NV_UNKNOWN);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetMemoryLimits_v1(nv_device device, nv_get_limits *limits) {
    struct fg_db *db;
    struct nv_target t;
    struct place place;
    nv_return result = enter(CALL_nvmlDeviceGetMemoryLimits_v1, device, limits, &db, &t);
    if (result != NV_SUCCESS) return result;
    result = find_place(db, limits->cgroup, &place);
    if (result != NV_SUCCESS) return nv_leave(db, result);
    const struct fg_limit *l = fg_limit_find(db, (unsigned)t.gpu, place.below);
    // The driver's own map knows what was set; the kernel's controller knows every cgroup.
    if (l == NULL && db->state->limits_backend == FG_LIMITS_MISC) return nv_leave(db, NV_NOT_SUPPORTED);
    limits->soft = l == NULL ? 0 : l->soft;
    limits->hard = l == NULL ? FG_NO_LIMIT : l->hard;
    limits->used = fg_limit_used(db, (unsigned)t.gpu, place.below);
    return nv_leave(db, NV_SUCCESS);
}

// The record of this process on the GPU, or one that it took before to ask; else it takes one. -1 where that cannot be, or
// where it is a process of the node itself.
static int record_of(struct fg_db *db, unsigned gpu) {
    uint64_t own_ns = fg_own_pid_ns();
    int asking = -1;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        uint32_t kind = fg_read(&p->kind);
        if ((kind != FG_PROC_CUDA && kind != FG_PROC_ASKING) || p->pid != (uint32_t)getpid() || p->pid_ns != own_ns) continue;
        if (kind == FG_PROC_CUDA && p->gpu == gpu) return i;
        if (kind == FG_PROC_ASKING) asking = i;
    }
    if (asking >= 0 || own_ns == db->state->home_pid_ns) return asking;
    struct fg_proc record = {.kind = FG_PROC_ASKING, .pid = (uint32_t)getpid(), .pid_ns = own_ns, .gpu = gpu, .gi = FG_NO_INSTANCE,
                             .ci = FG_NO_INSTANCE, .lane = FG_LANES};
    int slot = fg_proc_add(db, &record);
    if (slot >= 0) fg_hold_slot(db, slot);
    return slot;
}

void nv_show_limit(struct fg_db *db, const struct nv_target *t, nv_memory_v2 *memory) {
    if (t->kind != NV_KIND_GPU || !fg_limits_set(db->state)) return;
    int slot = record_of(db, (unsigned)t->gpu);
    if (slot < 0) return;
    fg_unlock(db);
    fg_locate(db, slot);
    fg_lock(db);
    uint64_t used, limit = fg_limit_shown(db, slot, (unsigned)t->gpu, &used);
    if (limit == 0) return;
    uint64_t room = used < limit ? limit - used : 0;
    *memory = (nv_memory_v2){.total = limit, .used = used, .free = room < memory->free ? room : memory->free};
}

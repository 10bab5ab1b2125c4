// SPDX-License-Identifier: Apache-2.0
// Lists of the processes on a GPU or a MIG device.
#include <stdlib.h>

#include "call.h"
#include "device.h"
#include "state/mig.h"
#include "state/proc.h"

// Where the instance ids of a target are numbers, else FG_NO_INSTANCE.
static void instance_of(struct fg_db *db, const struct nv_target *t, unsigned *gi, unsigned *ci) {
    *gi = *ci = FG_NO_INSTANCE;
    if (t->kind != NV_KIND_MIG) return;
    *gi = nv_gpu(db, t)->gis[t->gi].id;
    *ci = nv_gpu(db, t)->gis[t->gi].cis[t->ci].id;
}

// One entry for each process and instance; several contexts of a process add up.
static unsigned collect(struct fg_db *db, const struct nv_target *t, nv_process *list) {
    unsigned gi, ci, count = 0;
    instance_of(db, t, &gi, &ci);
    fg_proc_reap(db);
    int blind = db->state->blind && fg_own_pid_ns() != db->state->home_pid_ns;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        if (!fg_proc_matches(p, (unsigned)t->gpu, gi, ci) || p->contexts == 0) continue;
        unsigned at = 0, pid = fg_proc_pid(db, i);
        while (at < count && !(list[at].pid == pid && list[at].gi == p->gi && list[at].ci == p->ci)) at++;
        if (at == count) list[count++] = (nv_process){.pid = pid, .gi = p->gi, .ci = p->ci};
        if (!blind) list[at].used += fg_proc_own_bytes(db, i);
    }
    return count;
}

struct answer {
    struct fg_db *db;
    nv_process *list;
    unsigned count;
};

// Enters the call and collects; the caller copies in its own layout, then ends.
static nv_return begin(enum nv_call call, nv_device device, unsigned *room, const void *out, struct answer *answer) {
    struct nv_target t;
    *answer = (struct answer){0};
    nv_return result = nv_enter_device(call, device, &answer->db, &t);
    if (result != NV_SUCCESS) return result;
    if (room == NULL || (*room > 0 && out == NULL)) return nv_leave(answer->db, NV_INVALID_ARGUMENT);
    answer->list = calloc(FG_MAX_PROCS, sizeof *answer->list);
    if (answer->list == NULL) return nv_leave(answer->db, NV_MEMORY);
    answer->count = collect(answer->db, &t, answer->list);
    unsigned had = *room;
    *room = answer->count;
    if (answer->count <= had) return NV_SUCCESS;
    free(answer->list);
    return nv_leave(answer->db, NV_INSUFFICIENT_SIZE);
}

static nv_return end(struct answer *answer) {
    free(answer->list);
    return nv_leave(answer->db, NV_SUCCESS);
}

static nv_return compute_list(enum nv_call call, nv_device device, unsigned *count, nv_process *infos) {
    struct answer answer;
    nv_return result = begin(call, device, count, infos, &answer);
    if (result != NV_SUCCESS) return result;
    for (unsigned i = 0; i < answer.count; i++) infos[i] = answer.list[i];
    return end(&answer);
}

NV_API nv_return nvmlDeviceGetComputeRunningProcesses(nv_device device, unsigned *count, nv_process_v1 *infos) {
    struct answer answer;
    nv_return result = begin(CALL_nvmlDeviceGetComputeRunningProcesses, device, count, infos, &answer);
    if (result != NV_SUCCESS) return result;
    for (unsigned i = 0; i < answer.count; i++) {
        infos[i] = (nv_process_v1){.pid = answer.list[i].pid, .used = answer.list[i].used};
    }
    return end(&answer);
}

NV_API nv_return nvmlDeviceGetComputeRunningProcesses_v2(nv_device device, unsigned *count, nv_process *infos) {
    return compute_list(CALL_nvmlDeviceGetComputeRunningProcesses_v2, device, count, infos);
}

NV_API nv_return nvmlDeviceGetComputeRunningProcesses_v3(nv_device device, unsigned *count, nv_process *infos) {
    return compute_list(CALL_nvmlDeviceGetComputeRunningProcesses_v3, device, count, infos);
}

// There are no graphics and no MPS clients: these lists are empty.
static nv_return empty_list(enum nv_call call, nv_device device, unsigned *count) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(call, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (count == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *count = 0;
    return nv_leave(db, NV_SUCCESS);
}

#define EMPTY_LIST(name)                                                        \
    NV_API nv_return name(nv_device device, unsigned *count, void *infos) {     \
        (void)infos;                                                            \
        return empty_list(CALL_##name, device, count);                          \
    }
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3)

NV_API nv_return nvmlDeviceGetRunningProcessDetailList(nv_device device, nv_process_detail_list *list) {
    enum { MODE_COMPUTE = 0, MODE_MPS = 2 };
    if (list == NULL || list->mode > MODE_MPS) return NV_INVALID_ARGUMENT;
    if (list->version != NV_STRUCT_VERSION(nv_process_detail_list, 1)) return NV_ARGUMENT_VERSION_MISMATCH;
    if (list->mode != MODE_COMPUTE) return empty_list(CALL_nvmlDeviceGetRunningProcessDetailList, device, &list->count);
    struct answer answer;
    nv_return result = begin(CALL_nvmlDeviceGetRunningProcessDetailList, device, &list->count, list->entries, &answer);
    if (result != NV_SUCCESS) return result;
    for (unsigned i = 0; i < answer.count; i++) {
        const nv_process *p = &answer.list[i];
        list->entries[i] = (nv_process_detail){.pid = p->pid, .used = p->used, .gi = p->gi, .ci = p->ci};
    }
    return end(&answer);
}

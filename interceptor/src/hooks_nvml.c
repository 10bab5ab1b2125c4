// SPDX-License-Identifier: Apache-2.0
//
// What the management library tells: the same total, used and free as CUDA does, and only processes of this container, as
// the ledger has them. The real function is always asked first, so its errors stay its own.

#include <string.h>

#include "charge.h"
#include "export.h"
#include "quota.h"

#define MANAGER(symbol)                        \
    __typeof__(&symbol) real = NEEDED(symbol); \
    if (real == NULL) return NVML_NO_FUNCTION

static struct device *view_of(nvml_device handle) {
    char name[96];
    unsigned char uuid[16];
    if (process_limited() == NULL || !HAVE(nvmlDeviceGetUUID)) return NULL;
    if (REAL(nvmlDeviceGetUUID)(handle, name, sizeof name) != NVML_OK || strlen(name) < 4) return NULL;
    return quota_parse_uuid(name + 4, strlen(name + 4), uuid) ? device_view(uuid) : NULL;
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }

EXPORT nvml_result nvmlDeviceGetMemoryInfo(nvml_device handle, nvml_memory *memory) {
    MANAGER(nvmlDeviceGetMemoryInfo);
    nvml_result result = real(handle, memory);
    struct device *view = result == NVML_OK && memory != NULL ? view_of(handle) : NULL;
    if (view == NULL || view->state != DEVICE_LIMITED) return result;
    struct report report = charge_report(view);
    memory->total = lesser(report.limit, memory->total);
    memory->free = quota_free(memory->total, report.used, memory->free);
    memory->used = memory->total - memory->free;
    return result;
}

EXPORT nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device handle, nvml_memory_v2 *memory) {
    MANAGER(nvmlDeviceGetMemoryInfo_v2);
    nvml_result result = real(handle, memory);
    struct device *view = result == NVML_OK && memory != NULL ? view_of(handle) : NULL;
    if (view == NULL || view->state != DEVICE_LIMITED) return result;
    struct report report = charge_report(view);
    memory->total = lesser(report.limit, memory->total);
    memory->free = quota_free(memory->total, report.used, memory->free);
    memory->used = memory->total - memory->free;
    memory->reserved = 0; // what the driver keeps is no part of the limit
    return result;
}

// The processes of this PID namespace that hold something on the device. Says how many; writes those that fit.
static unsigned list_own(const struct device *view, nvml_process *list, unsigned room) {
    unsigned count = 0;
    uint32_t namespace = ledger_pid_namespace();
    for (int s = 0; s < view->share_count; s++) {
        struct ledger *ledger = &view->shares[s]->ledger;
        for (unsigned i = 0; ledger->page != NULL && i < SLUICE_USAGE_SLOTS; i++) {
            const struct sluice_usage_slot *slot = &ledger->page->slots[i];
            uint32_t held = quota_held(__atomic_load_n(&slot->word, __ATOMIC_ACQUIRE));
            if (held == 0 || slot->pid_namespace != namespace || !ledger_lives(ledger, i)) continue;
            unsigned at = 0;
            while (at < count && at < room && list[at].pid != slot->pid) at++;
            if (at < count && at < room) {
                list[at].used += (uint64_t)held * SLUICE_USAGE_UNIT;
                continue;
            }
            if (count < room) list[count] = (nvml_process){.pid = slot->pid, .used = (uint64_t)held * SLUICE_USAGE_UNIT};
            count++;
        }
    }
    return count;
}

static void add_instances(nvml_device handle, nvml_process *list, unsigned count) {
    unsigned gpu = NVML_NO_INSTANCE, compute = NVML_NO_INSTANCE;
    if (HAVE(nvmlDeviceGetGpuInstanceId) && REAL(nvmlDeviceGetGpuInstanceId)(handle, &gpu) != NVML_OK) gpu = NVML_NO_INSTANCE;
    if (HAVE(nvmlDeviceGetComputeInstanceId) && REAL(nvmlDeviceGetComputeInstanceId)(handle, &compute) != NVML_OK) {
        compute = NVML_NO_INSTANCE;
    }
    for (unsigned i = 0; i < count; i++) {
        list[i].gpu_instance = gpu;
        list[i].compute_instance = compute;
    }
}

// Answers for a list: how many there are, and all of them where the caller's room holds them. `wide` entries know instances.
static nvml_result answer(nvml_device handle, const struct device *view, unsigned *count, void *infos, bool wide) {
    enum { MOST = SLUICE_USAGE_SLOTS };
    nvml_process *own = track_memory(MOST * sizeof *own);
    if (own == NULL) return NVML_SHORT;
    unsigned found = lesser(list_own(view, own, MOST), MOST), room = *count;
    add_instances(handle, own, found);
    *count = found;
    bool fits = found <= room;
    for (unsigned i = 0; fits && i < found; i++) {
        if (wide) ((nvml_process *)infos)[i] = own[i];
        else ((nvml_process_v1 *)infos)[i] = (nvml_process_v1){.pid = own[i].pid, .used = own[i].used};
    }
    track_release(own, MOST * sizeof *own);
    return fits ? NVML_OK : NVML_SHORT;
}

// A list is asked of the real function for its errors alone, with no room.
#define LIST(symbol, compute, wide)                                                          \
    MANAGER(symbol);                                                                         \
    struct device *view = count != NULL ? view_of(handle) : NULL;                            \
    if (view == NULL || (*count > 0 && infos == NULL)) return real(handle, count, infos);    \
    unsigned none = 0;                                                                       \
    nvml_result result = real(handle, &none, NULL);                                          \
    if (result != NVML_OK && result != NVML_SHORT) return result;                            \
    if (compute) return answer(handle, view, count, infos, wide);                            \
    *count = 0;                                                                              \
    return NVML_OK

EXPORT nvml_result nvmlDeviceGetComputeRunningProcesses(nvml_device handle, unsigned *count, nvml_process_v1 *infos) {
    LIST(nvmlDeviceGetComputeRunningProcesses, true, false);
}

EXPORT nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetComputeRunningProcesses_v2, true, true);
}

EXPORT nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetComputeRunningProcesses_v3, true, true);
}

EXPORT nvml_result nvmlDeviceGetGraphicsRunningProcesses(nvml_device handle, unsigned *count, nvml_process_v1 *infos) {
    LIST(nvmlDeviceGetGraphicsRunningProcesses, false, false);
}

EXPORT nvml_result nvmlDeviceGetGraphicsRunningProcesses_v2(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, false, true);
}

EXPORT nvml_result nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, false, true);
}

EXPORT nvml_result nvmlDeviceGetMPSComputeRunningProcesses(nvml_device handle, unsigned *count, nvml_process_v1 *infos) {
    LIST(nvmlDeviceGetMPSComputeRunningProcesses, false, false);
}

EXPORT nvml_result nvmlDeviceGetMPSComputeRunningProcesses_v2(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, false, true);
}

EXPORT nvml_result nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml_device handle, unsigned *count, nvml_process *infos) {
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, false, true);
}

EXPORT nvml_result nvmlDeviceGetRunningProcessDetailList(nvml_device handle, nvml_process_details *details) {
    MANAGER(nvmlDeviceGetRunningProcessDetailList);
    struct device *view = details != NULL ? view_of(handle) : NULL;
    if (view == NULL || (details->count > 0 && details->processes == NULL)) return real(handle, details);
    nvml_process_details none = *details;
    none.count = 0;
    none.processes = NULL;
    nvml_result result = real(handle, &none);
    if (result != NVML_OK && result != NVML_SHORT) return result;
    unsigned room = details->count;
    details->count = 0;
    if (details->mode != NVML_MODE_COMPUTE && details->mode != NVML_MODE_ALL) return NVML_OK;
    nvml_process *own = track_memory(SLUICE_USAGE_SLOTS * sizeof *own);
    if (own == NULL) return NVML_SHORT;
    details->count = (unsigned)lesser(list_own(view, own, SLUICE_USAGE_SLOTS), SLUICE_USAGE_SLOTS);
    add_instances(handle, own, details->count);
    for (unsigned i = 0; details->count <= room && i < details->count; i++) {
        details->processes[i] = (nvml_process_detail){.pid = own[i].pid, .used = own[i].used,
                                                      .gpu_instance = own[i].gpu_instance,
                                                      .compute_instance = own[i].compute_instance};
    }
    track_release(own, SLUICE_USAGE_SLOTS * sizeof *own);
    return details->count <= room ? NVML_OK : NVML_SHORT;
}

static bool is_own(const struct device *view, unsigned pid) {
    uint32_t namespace = ledger_pid_namespace();
    for (int s = 0; s < view->share_count; s++) {
        const struct sluice_usage *page = view->shares[s]->ledger.page;
        for (unsigned i = 0; page != NULL && i < SLUICE_USAGE_SLOTS; i++) {
            const struct sluice_usage_slot *slot = &page->slots[i];
            if (slot->stamp != 0 && slot->pid == pid && slot->pid_namespace == namespace) return true;
        }
    }
    return false;
}

EXPORT nvml_result nvmlDeviceGetProcessUtilization(nvml_device handle, nvml_sample *samples, unsigned *count,
                                                   unsigned long long since) {
    MANAGER(nvmlDeviceGetProcessUtilization);
    nvml_result result = real(handle, samples, count, since);
    struct device *view = result == NVML_OK && samples != NULL && count != NULL ? view_of(handle) : NULL;
    if (view == NULL) return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++) {
        if (is_own(view, samples[i].pid)) samples[kept++] = samples[i];
    }
    *count = kept;
    return result;
}

EXPORT nvml_result nvmlDeviceGetAccountingPids(nvml_device handle, unsigned *count, unsigned *pids) {
    MANAGER(nvmlDeviceGetAccountingPids);
    nvml_result result = real(handle, count, pids);
    struct device *view = result == NVML_OK && pids != NULL && count != NULL ? view_of(handle) : NULL;
    if (view == NULL) return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++) {
        if (is_own(view, pids[i])) pids[kept++] = pids[i];
    }
    *count = kept;
    return result;
}

// A name is told only of a process that a list could have shown.
EXPORT nvml_result nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
    MANAGER(nvmlSystemGetProcessName);
    struct process *process = process_limited();
    bool any = false, own = false;
    for (int i = 0; process != NULL && i < DEVICES; i++) {
        const struct device *view = &process->views[i];
        if (view->state != DEVICE_LIMITED) continue;
        any = true;
        own |= is_own(view, pid);
    }
    return any && !own ? NVML_NOT_FOUND : real(pid, name, size);
}

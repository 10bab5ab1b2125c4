// SPDX-License-Identifier: Apache-2.0
//
// Beginning, in this process or again in a child.

#include "process.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "own.h"
#include "real.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

struct process *sluice_process;
struct process *sluice_paced;
bool sluice_watch_pid;

bool process_forked(const struct process *process) { return process->pid != (int)getpid(); }

static struct process *new_process(void) {
    struct process *made = track_memory(sizeof *made), *seen = NULL;
    if (made == NULL) return NULL;
    if (madvise(made, sizeof *made, MADV_WIPEONFORK) != 0) sluice_watch_pid = true;
    if (!__atomic_compare_exchange_n(&sluice_process, &seen, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        munmap(made, sizeof *made);
        return seen;
    }
    return made;
}

void process_paces(struct process *process, enum pacing from, enum pacing to) {
    lock_take(&process->pacing_lock);
    if (process->pacing == (uint32_t)from) process->pacing = (uint32_t)to;
    __atomic_store_n(&sluice_paced, process->pacing == PACING_NONE ? NULL : process, __ATOMIC_RELEASE);
    lock_drop(&process->pacing_lock);
}

static void begin(struct process *process) {
    char path[256];
    unsigned ignored = 0;
    real_own_path(path, sizeof path);
    process->pid = (int)getpid();
    process->mode = (uint32_t)mode_find(path);
    // Who preloads the agent's file once more under another name (//run/..., a link) chooses the loader's name for it.
    struct own_mapping mapping;
    if (process->mode != MODE_AGENT && own_mapping(&mapping)) process->mode = (uint32_t)mode_find(mapping.path);
    if (process->mode == MODE_AGENT) {
        process->share_count = share_find_all(process->shares, path, &ignored);
        process->heartbeat = share_heartbeat(path);
        if (ignored > 0) sluice_log(LOG_WARN, "%u limits files are not the agent's and were ignored", ignored);
    }
    process_paces(process, PACING_UNKNOWN, process->mode == MODE_INERT ? PACING_NONE : PACING_UNKNOWN);
    sluice_log(LOG_INFO, "loaded from %s, mode %u, %d shares", path, process->mode, process->share_count);
}

struct process *process_start(void) {
    int kept = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    struct process *process = __atomic_load_n(&sluice_process, __ATOMIC_ACQUIRE);
    if (process == NULL) process = new_process();
    if (process != NULL && sluice_watch_pid && process->ready && process_forked(process)) memset(process, 0, sizeof *process);
    if (process != NULL) {
        lock_take(&process->start_lock);
        if (!process->ready) begin(process);
        __atomic_store_n(&process->ready, 1, __ATOMIC_RELEASE);
        lock_drop(&process->start_lock);
    }
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return process;
}

bool process_hands_out(void) { return process_limited() != NULL; }

void process_count_unknown(const char *base) {
    struct process *process = process_limited();
    sluice_log(LOG_WARN, "%s was handed out in a variant that is not known", base);
    for (int i = 0; process != NULL && i < process->share_count; i++) {
        if (process->shares[i].joined) ledger_count(&process->shares[i].ledger.page->unknown_variants, 1);
    }
}

void process_closed(const char *what, const char *reason) {
    struct process *process = process_limited();
    if (process == NULL || __atomic_exchange_n(&process->told, 1, __ATOMIC_RELAXED) != 0) return;
    sluice_log(LOG_ALWAYS, "no GPU memory for this process: %s: %s", what, reason);
}

// SPDX-License-Identifier: Apache-2.0
#include "proc.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "object.h"

uint64_t fg_process_start(unsigned pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    // The name may hold spaces and parentheses: count fields from its end.
    char *at = strrchr(text, ')');
    if (at == NULL) return 0;
    // A zombie holds no GPU any more.
    if (at[1] == ' ' && (at[2] == 'Z' || at[2] == 'X')) return 0;
    for (int field = 2; field < 22 && at != NULL; field++) at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

uint64_t fg_own_pid_ns(void) {
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

// The PID that a process of this /proc has in its own namespace, 0 unknown.
static unsigned innermost_pid(const char *pid) {
    char path[300], line[256];
    unsigned innermost = 0;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    while (innermost == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "NSpid:", 6) != 0) continue;
        const char *last = strrchr(line, '\t');
        innermost = last == NULL ? 0 : (unsigned)strtoul(last + 1, NULL, 10);
    }
    fclose(file);
    return innermost;
}

unsigned fg_proc_pid(struct fg_db *db, int slot) {
    const struct fg_proc *p = &db->state->procs[slot];
    unsigned found = p->pid, shown = p->pid_ns == 0 ? fg_shown_pid(db, slot) : 0;
    if (shown != 0) return shown;
    DIR *all = p->pid_ns == fg_own_pid_ns() ? NULL : opendir("/proc");
    if (all == NULL) return found;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[300];
        struct stat info;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%s/ns/pid", entry->d_name);
        if (stat(path, &info) != 0 || (uint64_t)info.st_ino != p->pid_ns || innermost_pid(entry->d_name) != p->pid) continue;
        found = (unsigned)strtoul(entry->d_name, NULL, 10);
        break;
    }
    closedir(all);
    return found;
}

static int alive(struct fg_db *db, int slot, uint64_t own_ns) {
    const struct fg_proc *p = &db->state->procs[slot];
    switch (p->kind) {
    case FG_PROC_ATTACHED:
        // A PID of another namespace cannot be judged from here.
        return p->pid_ns != own_ns || fg_process_start(p->pid) == p->start_time;
    case FG_PROC_CUDA:
    case FG_PROC_ASKING:
        return p->pid_ns == own_ns && (pid_t)p->pid == getpid() ? 1 : fg_slot_held(db, slot);
    default:
        return 1;
    }
}

// Whether the memory of a process that was found dead is still being taken back.
static int lingers(struct fg_db *db, struct fg_proc *p) {
    if (db->state->linger_ms == 0) return 0;
    if (p->until == 0) __atomic_store_n(&p->until, fg_now() + db->state->linger_ms * 1000000ull, __ATOMIC_RELEASE);
    return fg_now() < p->until;
}

void fg_proc_free(struct fg_db *db, int slot) {
    fg_object_forget(db, slot);
    fg_lane_drop(db, db->state->procs[slot].lane);
    fg_publish(&db->state->procs[slot].kind, FG_PROC_FREE);
}

void fg_proc_reap(struct fg_db *db) {
    uint64_t own_ns = fg_own_pid_ns();
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        struct fg_proc *p = &db->state->procs[i];
        if (fg_read(&p->kind) != FG_PROC_FREE && !alive(db, i, own_ns) && !lingers(db, p)) fg_proc_free(db, i);
    }
}

int fg_proc_matches(const struct fg_proc *p, unsigned gpu, unsigned gi, unsigned ci) {
    uint32_t kind = fg_read(&p->kind);
    return kind != FG_PROC_FREE && kind != FG_PROC_ASKING && p->gpu == gpu && (gi == FG_NO_INSTANCE || p->gi == gi) &&
           (ci == FG_NO_INSTANCE || p->ci == ci);
}

int fg_proc_any(struct fg_db *db, unsigned gpu, unsigned gi, unsigned ci) {
    fg_proc_reap(db);
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        if (fg_proc_matches(&db->state->procs[i], gpu, gi, ci)) return 1;
    }
    return 0;
}

uint64_t fg_proc_bytes(struct fg_db *db, unsigned gpu, unsigned gi, unsigned ci) {
    fg_proc_reap(db);
    uint64_t sum = 0;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        if (fg_proc_matches(p, gpu, gi, ci)) sum += p->bytes + p->managed;
    }
    return sum + fg_object_bytes(db, gpu, gi);
}

uint64_t fg_proc_own_bytes(struct fg_db *db, int slot) {
    return db->state->procs[slot].bytes + fg_object_paid(db, slot);
}

int fg_proc_add(struct fg_db *db, const struct fg_proc *record) {
    fg_proc_reap(db);
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        struct fg_proc *p = &db->state->procs[i];
        if (fg_read(&p->kind) != FG_PROC_FREE) continue;
        struct fg_proc prepared = *record;
        prepared.kind = FG_PROC_FREE;
        *p = prepared;
        fg_publish(&p->kind, record->kind);
        return i;
    }
    return -1;
}

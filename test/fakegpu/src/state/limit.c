// SPDX-License-Identifier: Apache-2.0
#include "limit.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#include "proc.h"

int fg_limits_known(const struct fg_state *state) {
    enum { FIRST_BRANCH = 615 };
    return atoi(state->driver) >= FIRST_BRANCH;
}

int fg_limits_set(const struct fg_state *state) {
    for (uint32_t i = 0; i < fg_read(&state->limit_count); i++) {
        const struct fg_limit *l = &state->limits[i];
        if (fg_read(&l->used) && !fg_read(&l->gone) && __atomic_load_n(&l->hard, __ATOMIC_ACQUIRE) != FG_NO_LIMIT) return 1;
    }
    return 0;
}

int fg_limit_path(const struct fg_state *state, const char *path, char below[FG_CGROUP]) {
    size_t root = strlen(state->cgroup_root);
    if (strncmp(path, state->cgroup_root, root) != 0) return 0;
    path += root;
    if (*path != '\0' && *path != '/') return 0;
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/') length--;
    if (length >= FG_CGROUP) return 0;
    memcpy(below, path, length);
    below[length] = '\0';
    return 1;
}

struct fg_limit *fg_limit_find(struct fg_db *db, unsigned gpu, const char *cgroup) {
    for (uint32_t i = 0; i < fg_read(&db->state->limit_count); i++) {
        struct fg_limit *l = &db->state->limits[i];
        if (fg_read(&l->used) && !fg_read(&l->gone) && l->gpu == gpu && strcmp(l->cgroup, cgroup) == 0) return l;
    }
    return NULL;
}

int fg_limit_set(struct fg_db *db, unsigned gpu, const char *cgroup, uint64_t identity, uint64_t soft, uint64_t hard) {
    struct fg_limit *l = fg_limit_find(db, gpu, cgroup);
    if (l != NULL) {
        __atomic_store_n(&l->soft, soft, __ATOMIC_RELEASE);
        __atomic_store_n(&l->hard, hard, __ATOMIC_RELEASE);
        return 0;
    }
    uint32_t count = fg_read(&db->state->limit_count), i = 0;
    while (i < count && fg_read(&db->state->limits[i].used)) i++;
    if (i == FG_MAX_LIMITS) return -1;
    l = &db->state->limits[i];
    *l = (struct fg_limit){.gpu = gpu, .identity = identity, .soft = soft, .hard = hard};
    snprintf(l->cgroup, sizeof l->cgroup, "%s", cgroup);
    fg_publish(&l->used, 1);
    if (i == count) fg_publish(&db->state->limit_count, count + 1);
    return 0;
}

uint64_t fg_directory_identity(const char *path) {
    struct statx info;
    if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_TYPE | STATX_BTIME, &info) != 0 || !S_ISDIR(info.stx_mode)) return 0;
    uint64_t born = info.stx_mask & STATX_BTIME ? (uint64_t)info.stx_btime.tv_sec * 1000000000u + info.stx_btime.tv_nsec : 0;
    return (info.stx_ino + 1) ^ born << 16;
}

static int is_there(const struct fg_state *state, const struct fg_limit *l) {
    char path[2 * FG_CGROUP];
    snprintf(path, sizeof path, "%s%s", state->cgroup_root, l->cgroup);
    return fg_directory_identity(path) == l->identity;
}

void fg_limit_sweep(struct fg_db *db) {
    for (uint32_t i = 0; i < fg_read(&db->state->limit_count); i++) {
        struct fg_limit *l = &db->state->limits[i];
        if (!fg_read(&l->used) || fg_read(&l->gone) || is_there(db->state, l)) continue;
        int stays = db->state->limits_backend == FG_LIMITS_DMEM && l->soft > 0;
        if (stays) {
            fg_publish(&l->gone, 1);
        } else {
            fg_publish(&l->used, 0);
        }
    }
}

static int within(const char *cgroup, const char *of) {
    size_t length = strlen(of);
    return strncmp(cgroup, of, length) == 0 && (cgroup[length] == '\0' || cgroup[length] == '/');
}

// Whether a limit of one cgroup binds a process in another.
static int binds(const struct fg_state *state, const char *limited, const char *cgroup) {
    return state->limits_backend == FG_LIMITS_DMEM ? within(cgroup, limited) : strcmp(cgroup, limited) == 0;
}

uint64_t fg_limit_used(struct fg_db *db, unsigned gpu, const char *cgroup) {
    uint64_t sum = 0;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        if (!fg_proc_matches(p, gpu, FG_NO_INSTANCE, FG_NO_INSTANCE) || p->gi != FG_NO_INSTANCE) continue;
        if (fg_read(&p->located) == FG_LOCATED && binds(db->state, cgroup, p->cgroup)) sum += fg_proc_own_bytes(db, i);
    }
    return sum;
}

int fg_limit_allows(struct fg_db *db, int slot, uint64_t bytes) {
    const struct fg_proc *p = &db->state->procs[slot];
    if (p->gi != FG_NO_INSTANCE || fg_read(&p->located) != FG_LOCATED) return 1;
    for (uint32_t i = 0; i < fg_read(&db->state->limit_count); i++) {
        const struct fg_limit *l = &db->state->limits[i];
        if (!fg_read(&l->used) || fg_read(&l->gone) || l->gpu != p->gpu || l->hard == FG_NO_LIMIT) continue;
        if (!binds(db->state, l->cgroup, p->cgroup)) continue;
        uint64_t used = fg_limit_used(db, p->gpu, l->cgroup);
        if (used > l->hard || bytes > l->hard - used) return 0;
    }
    return 1;
}

uint64_t fg_limit_shown(struct fg_db *db, int slot, unsigned gpu, uint64_t *used) {
    const struct fg_proc *p = &db->state->procs[slot];
    if (p->gi != FG_NO_INSTANCE || fg_read(&p->located) != FG_LOCATED) return 0;
    const struct fg_limit *l = fg_limit_find(db, gpu, p->cgroup);
    if (l == NULL || l->hard == FG_NO_LIMIT) return 0;
    *used = fg_limit_used(db, gpu, p->cgroup);
    return l->hard;
}

void fg_locate(struct fg_db *db, int slot) {
    enum { LONGEST_NS = 2000000000, PAUSE_NS = 2000000 };
    uint32_t *located = &db->state->procs[slot].located;
    if (fg_read(located) != FG_UNLOCATED || !fg_limits_set(db->state)) return;
    for (uint64_t until = fg_now() + LONGEST_NS; fg_read(located) == FG_UNLOCATED && fg_now() < until;) {
        fg_show_pid(db, slot); // anew: another library of the process may have closed the file
        __atomic_fetch_add(&db->state->wanted, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &db->state->wanted, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    uint32_t unlocated = FG_UNLOCATED;
    __atomic_compare_exchange_n(located, &unlocated, FG_NOT_LOCATED, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void fg_tell_cgroup(struct fg_db *db, int slot, const char *cgroup) {
    struct fg_proc *p = &db->state->procs[slot];
    if (fg_read(&p->located) != FG_UNLOCATED) return;
    if (cgroup != NULL) snprintf(p->cgroup, sizeof p->cgroup, "%s", cgroup);
    fg_publish(&p->located, cgroup != NULL ? FG_LOCATED : FG_NOT_LOCATED);
}

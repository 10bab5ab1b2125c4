// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "state/proc.h"

// A C library has one state per process; nothing else in here is global.
static struct core library;
static pthread_mutex_t library_mutex = PTHREAD_MUTEX_INITIALIZER;
static enum { FRESH, READY, FORKED } phase;

static void before_fork(void) {
    pthread_mutex_lock(&library_mutex);
    if (phase == READY) fg_before_fork(&library.db);
}

static void after_fork_parent(void) {
    if (phase == READY) fg_after_fork_parent(&library.db);
    pthread_mutex_unlock(&library_mutex);
}

// A GPU cannot be used on both sides of a fork: the child has to exec first.
static void after_fork_child(void) {
    if (phase == READY) {
        fg_after_fork_abandon(&library.db);
        phase = FORKED;
    }
    pthread_mutex_unlock(&library_mutex);
}

static cu_result open_state(void) {
    switch (fg_open(&library.db, fg_state_path())) {
    case 0: return CU_SUCCESS;
    case -EPROTO: return CU_SYSTEM_DRIVER_MISMATCH;
    default: return CU_NO_DEVICE;
    }
}

static cu_result start(void) {
    cu_result result = open_state();
    if (result != CU_SUCCESS) return result;
    fg_lock(&library.db);
    result = core_enumerate(&library, getenv("CUDA_VISIBLE_DEVICES"));
    fg_unlock(&library.db);
    if (result != CU_SUCCESS) {
        fg_close(&library.db);
        return result;
    }
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    phase = READY;
    return CU_SUCCESS;
}

cu_result core_init(void) {
    pthread_mutex_lock(&library_mutex);
    cu_result result = phase == FRESH ? start() : phase == READY ? CU_SUCCESS : CU_NOT_INITIALIZED;
    pthread_mutex_unlock(&library_mutex);
    return result;
}

cu_result core_enter(struct core **core) {
    pthread_mutex_lock(&library_mutex);
    if (phase == READY) {
        *core = &library;
        return CU_SUCCESS;
    }
    pthread_mutex_unlock(&library_mutex);
    return CU_NOT_INITIALIZED;
}

void core_leave(struct core *core) {
    (void)core;
    pthread_mutex_unlock(&library_mutex);
}

int core_context_known(const struct core *core, cu_context context) {
    for (cu_context c = core->contexts; c != NULL; c = c->next) {
        if (c == context) return 1;
    }
    return 0;
}

cu_result core_enter_context(struct core **core, cu_context *context) {
    cu_result result = core_enter(core);
    if (result != CU_SUCCESS) return result;
    *context = core_current();
    if (*context == NULL) {
        result = CU_INVALID_CONTEXT;
    } else if (!core_context_known(*core, *context)) {
        result = CU_CONTEXT_IS_DESTROYED;
    }
    if (result != CU_SUCCESS) core_leave(*core);
    return result;
}

struct device *core_device(struct core *core, cu_device device) {
    return device >= 0 && device < core->device_count ? &core->devices[device] : NULL;
}

uint64_t core_used(struct core *core, const struct device *device) {
    return fg_proc_bytes(&core->db, device->gpu, device->gi, FG_NO_INSTANCE);
}

cu_result core_enter_unsafe(struct core **core, cu_context *context) {
    cu_result result = core_enter_context(core, context);
    if (result != CU_SUCCESS) return result;
    result = capture_forbids(*core);
    if (result != CU_SUCCESS) core_leave(*core);
    return result;
}

cu_result core_charge(struct core *core, struct device *device, uint64_t bytes) {
    cu_result result = core_appear(core, device);
    if (result != CU_SUCCESS || bytes == 0) return result;
    result = CU_OUT_OF_MEMORY;
    fg_lock(&core->db);
    uint64_t used = core_used(core, device);
    if (used <= device->memory && bytes <= device->memory - used) {
        // One word, so a process killed here has either allocated or not.
        __atomic_fetch_add(&core->db.state->procs[device->slot].bytes, bytes, __ATOMIC_RELEASE);
        result = CU_SUCCESS;
    }
    fg_unlock(&core->db);
    if (result != CU_SUCCESS) core_vanish(core, device);
    return result;
}

void core_refund(struct core *core, struct device *device, uint64_t bytes) {
    fg_lock(&core->db);
    __atomic_fetch_sub(&core->db.state->procs[device->slot].bytes, bytes, __ATOMIC_RELEASE);
    fg_unlock(&core->db);
    core_vanish(core, device);
}

const void *core_thread(void) {
    static __thread char self;
    return &self;
}

uint32_t core_lane(const struct core *core, int device) {
    int slot = core->devices[device].slot;
    return slot < 0 ? FG_LANES : core->db.state->procs[slot].lane;
}

int core_done(struct core *core, int device, uint64_t piece) {
    uint32_t lane = core_lane(core, device);
    if (lane == FG_LANES || fg_done(&core->db, lane, piece)) return 1;
    fg_advance(&core->db, lane);
    return fg_done(&core->db, lane, piece);
}

enum core_wait core_how(cu_context context) {
    enum { BLOCKING_SYNC = 4 };
    return context->flags & BLOCKING_SYNC ? CORE_SLEEP : CORE_WATCH;
}

void core_wait_until(uint64_t when, enum core_wait how) {
    enum { WATCHED_NS = 80000 };
    uint64_t wake = how == CORE_SLEEP ? when : when - WATCHED_NS;
    if (fg_now() < wake) {
        struct timespec at = {.tv_sec = (time_t)(wake / 1000000000u), .tv_nsec = (long)(wake % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
        }
    }
    while (fg_now() < when) {
    }
}

// What is expected may come sooner, when another process goes away.
void core_leave_until_done(struct core *core, int device, uint64_t piece, enum core_wait how) {
    enum { LONGEST_NS = 10000000 };
    while (!core_done(core, device, piece)) {
        uint64_t when = fg_expected(&core->db, core_lane(core, device), piece, fg_now() + LONGEST_NS);
        core_leave(core);
        core_wait_until(when, how);
        pthread_mutex_lock(&library_mutex);
    }
    core_leave(core);
}

// SPDX-License-Identifier: Apache-2.0
// Event sets: what is written into the state file after registration is delivered.
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "call.h"
#include "device.h"
#include "state/state.h"

struct nv_event_set_st {
    uint32_t next; // the number of the first event not yet looked at
    unsigned long long types[FG_MAX_GPUS];
};

NV_API nv_return nvmlEventSetCreate(nv_event_set *set) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlEventSetCreate, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (set == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    if (*set == NULL) return nv_leave(db, NV_MEMORY);
    (*set)->next = fg_read(&db->state->event_count);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlEventSetFree(nv_event_set set) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlEventSetFree, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (set == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    free(set);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceGetSupportedEventTypes(nv_device device, unsigned long long *types) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceGetSupportedEventTypes, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (types == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *types = NV_EVENTS;
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlDeviceRegisterEvents(nv_device device, unsigned long long types, nv_event_set set) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_gpu(CALL_nvmlDeviceRegisterEvents, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (set == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (types & ~NV_EVENTS) return nv_leave(db, NV_NOT_SUPPORTED);
    set->types[t.gpu] |= types;
    return nv_leave(db, NV_SUCCESS);
}

// Takes the next event that the set is registered for; under the lock.
static int take(struct fg_db *db, nv_event_set set, struct fg_event *event) {
    uint32_t count = fg_read(&db->state->event_count);
    if (count - set->next > FG_MAX_EVENTS) set->next = count - FG_MAX_EVENTS; // the oldest were overwritten
    while (set->next != count) {
        *event = db->state->events[set->next++ % FG_MAX_EVENTS];
        if (event->gpu < FG_MAX_GPUS && set->types[event->gpu] & event->type) return 1;
    }
    return 0;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static nv_return wait_for(enum nv_call call, nv_event_set set, nv_event *data, unsigned timeout_ms) {
    struct fg_db *db;
    nv_return result = nv_enter(call, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (set == NULL || data == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    long long until = now_ms() + timeout_ms;
    struct fg_event event;
    while (!take(db, set, &event)) {
        uint32_t seen = set->next;
        nv_leave(db, NV_SUCCESS);
        long long left = until - now_ms();
        if (left <= 0) return NV_TIMEOUT;
        struct timespec at_most = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
        syscall(SYS_futex, &db->state->event_count, FUTEX_WAIT, seen, &at_most, NULL, 0);
        fg_lock(db);
    }
    *data = (nv_event){
        .device = nv_handle(db, (struct nv_target){.kind = NV_KIND_GPU, .gpu = (int)event.gpu}), .type = event.type,
        .data = event.data, .gi = event.gi, .ci = event.ci,
    };
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlEventSetWait(nv_event_set set, nv_event *data, unsigned timeout_ms) {
    return wait_for(CALL_nvmlEventSetWait, set, data, timeout_ms);
}

NV_API nv_return nvmlEventSetWait_v2(nv_event_set set, nv_event *data, unsigned timeout_ms) {
    return wait_for(CALL_nvmlEventSetWait_v2, set, data, timeout_ms);
}

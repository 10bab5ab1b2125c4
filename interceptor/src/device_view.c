// SPDX-License-Identifier: Apache-2.0
//
// Devices as the management library names them. A program such as nvidia-smi holds nothing, so it is given no slot: ledgers
// are only looked at.

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "process.h"
#include "quota.h"

static enum device_state look_at_shares(struct process *process, struct device *view) {
    bool enforced = false;
    for (int i = 0; i < process->share_count && view->share_count < SHARES_PER_DEVICE; i++) {
        struct share *share = &process->shares[i];
        if (memcmp(share->limits->uuid, view->uuid, sizeof view->uuid) != 0 || !share_look(share)) continue;
        view->shares[view->share_count++] = share;
        enforced |= share_enforces(share);
    }
    // A device without a share is nobody's here: its processes are others'.
    if (view->share_count == 0) return DEVICE_CLOSED;
    return enforced ? DEVICE_LIMITED : DEVICE_FREE;
}

static enum device_state look_at_environment(struct device *view) {
    struct quota_limit limit;
    if (!quota_parse_limits(mode_limits(), -1, view->uuid, &limit)) return DEVICE_FREE;
    struct share *share = track_memory(sizeof *share);
    if (share == NULL) return DEVICE_FREE;
    view->shares[0] = share;
    // Before anybody has used the device there is no ledger, and everything is free.
    if (!share_look_alone(share, mode_group(), view->uuid)) {
        if (!limit.given) return DEVICE_FREE;
        share->fixed_limit = limit.bytes;
    }
    view->share_count = 1;
    return DEVICE_LIMITED;
}

// A device that CUDA uses here too: its ledger must be asked through the one descriptor that holds our own lock.
static struct device *used_here(struct process *process, const unsigned char uuid[16]) {
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = &process->devices[i];
        if (__atomic_load_n(&device->state, __ATOMIC_ACQUIRE) != DEVICE_LIMITED) continue;
        if (memcmp(device->uuid, uuid, sizeof device->uuid) == 0) return device;
    }
    return NULL;
}

struct device *device_view(const unsigned char uuid[16]) {
    struct process *process = process_limited();
    struct device *view = process == NULL ? NULL : used_here(process, uuid);
    int kept = errno, cancel;
    if (process == NULL || view != NULL) return view;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    lock_take(&process->device_lock);
    for (int i = 0; i < DEVICES && view == NULL; i++) {
        struct device *at = &process->views[i];
        if (at->state != DEVICE_UNKNOWN && memcmp(at->uuid, uuid, sizeof at->uuid) != 0) continue;
        view = at;
        // Who has a ledger by now is looked at again.
        bool looked = at->state == DEVICE_FREE || at->state == DEVICE_CLOSED || (at->state == DEVICE_LIMITED && at->shares[0]->ledger.page != NULL);
        if (looked) break;
        memcpy(at->uuid, uuid, sizeof at->uuid);
        at->share_count = 0;
        at->state = (uint32_t)(process->mode == MODE_AGENT ? look_at_shares(process, at) : look_at_environment(at));
    }
    lock_drop(&process->device_lock);
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return view != NULL && view->state != DEVICE_FREE ? view : NULL;
}

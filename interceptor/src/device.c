// SPDX-License-Identifier: Apache-2.0
//
// Which limit holds for a device: its ordinal in this process leads to its UUID, and that to its shares.

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "charge.h"
#include "pacer.h"
#include "process.h"
#include "quota.h"
#include "real.h"

static uint64_t cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Adds the shares of the agent that name the device, in their order.
static enum device_state find_shares(struct process *process, struct device *device) {
    const char *reason = NULL;
    bool enforced = false;
    for (int i = 0; i < process->share_count && device->share_count < SHARES_PER_DEVICE; i++) {
        struct share *share = &process->shares[i];
        if (memcmp(share->limits->uuid, device->uuid, sizeof device->uuid) != 0) continue;
        device->shares[device->share_count++] = share;
        enforced |= share_enforces(share) || share_paces(share);
    }
    if (device->share_count == 0) {
        process_closed(MODE_SHARE_ROOT, "no valid share for a device");
        return DEVICE_CLOSED;
    }
    if (!enforced) return DEVICE_FREE;
    for (int i = 0; i < device->share_count; i++) {
        if (share_join(device->shares[i], &reason)) continue;
        process_closed(device->shares[i]->directory, reason);
        return DEVICE_CLOSED;
    }
    return DEVICE_LIMITED;
}

static enum device_state make_share(struct process *process, struct device *device) {
    struct quota_limit limit, compute;
    const char *reason = "it is not an amount such as 2Gi, nor a list such as 0=2Gi,GPU-...=4Gi";
    if (!quota_parse_limits(mode_limits(), device->ordinal, device->uuid, &limit)) {
        process_closed("SLUICE_MEMORY_LIMIT", reason);
        return DEVICE_CLOSED;
    }
    bool good = quota_parse_limits(mode_compute(), device->ordinal, device->uuid, &compute);
    if (!good || (compute.given && (compute.bytes < 1 || compute.bytes > 100))) {
        process_closed("SLUICE_COMPUTE_LIMIT", "it is not a percentage from 1 to 100, nor a list such as 0=30,GPU-...=50");
        return DEVICE_CLOSED;
    }
    if (!limit.given && !compute.given) return DEVICE_FREE;
    if (process->share_count >= SHARES) return DEVICE_CLOSED;
    struct share *share = &process->shares[process->share_count];
    uint64_t bytes = limit.given ? limit.bytes : UINT64_MAX;
    if (!share_join_alone(share, mode_group(), device->uuid, bytes, mode_context(), &reason)) {
        process_closed("the ledger of SLUICE_GROUP", reason);
        return DEVICE_CLOSED;
    }
    share->fixed_compute = compute.given ? (uint32_t)compute.bytes * 100 : 0;
    process->share_count++;
    device->shares[device->share_count++] = share;
    return DEVICE_LIMITED;
}

// Asks the driver for the UUID. False while it does not know the device: then it gives no memory on it either.
static bool ask_uuid(struct device *device) {
    cu_uuid uuid;
    cu_result result = CU_SYMBOL_NOT_FOUND;
    if (HAVE(cuDeviceGetUuid_v2)) result = REAL(cuDeviceGetUuid_v2)(&uuid, device->ordinal);
    else if (HAVE(cuDeviceGetUuid)) result = REAL(cuDeviceGetUuid)(&uuid, device->ordinal);
    if (result == CU_OK) memcpy(device->uuid, uuid.bytes, sizeof device->uuid);
    return result == CU_OK;
}

static bool is_paced(const struct device *device) {
    for (int i = 0; i < device->share_count; i++) {
        if (share_paces(device->shares[i])) return true;
    }
    return false;
}

static void learn(struct process *process, struct device *device, int ordinal) {
    uint64_t began = cpu_now();
    device->ordinal = ordinal;
    device->share_count = 0;
    if (!ask_uuid(device)) return;
    enum device_state state =
        process->mode == MODE_AGENT ? find_shares(process, device) : make_share(process, device);
    if (state == DEVICE_LIMITED && is_paced(device) && !pacer_begin(process, device)) state = DEVICE_CLOSED;
    if (state == DEVICE_LIMITED) {
        struct ledger *ledger = &device->shares[0]->ledger;
        if (ledger->slot >= 0) ledger_count(&ledger->page->slots[ledger->slot].start_cpu, cpu_now() - began);
    }
    __atomic_store_n(&device->state, (uint32_t)state, __ATOMIC_RELEASE);
}

struct device *device_limited(int ordinal) {
    struct process *process = process_limited();
    if (process == NULL || ordinal < 0 || ordinal >= DEVICES) return NULL;
    struct device *device = &process->devices[ordinal];
    uint32_t state = __atomic_load_n(&device->state, __ATOMIC_ACQUIRE);
    if (state == DEVICE_UNKNOWN) {
        int kept = errno, cancel;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
        lock_take(&process->device_lock);
        if (device->state == DEVICE_UNKNOWN) learn(process, device, ordinal);
        state = device->state;
        lock_drop(&process->device_lock);
        pthread_setcancelstate(cancel, NULL);
        errno = kept;
    }
    return state == DEVICE_LIMITED || state == DEVICE_CLOSED ? device : NULL;
}

// A context that was made past the library, or before it was begun, is charged at first sight: it is there.
static void adopt_once(struct process *process, cu_context context, int ordinal) {
    struct track_entry entry = {.key = (uintptr_t)context, .kind = TRACK_CONTEXT, .device = (int16_t)ordinal,
                                .flags = __atomic_add_fetch(&process->contexts, 1, __ATOMIC_RELAXED)};
    struct device *device = device_limited(ordinal);
    if (device != NULL) {
        unsigned flags;
        int active = 0;
        struct track_entry known;
        lock_take(&device->lock);
        // The primary one may have been reset and retained again meanwhile.
        if (track_get(&process->track, TRACK_CONTEXT, (uintptr_t)context, &known)) {
            lock_drop(&device->lock);
            return;
        }
        bool primary = !device->primary_charged && HAVE(cuDevicePrimaryCtxGetState) &&
                       REAL(cuDevicePrimaryCtxGetState)(ordinal, &flags, &active) == CU_OK && active;
        uint64_t bytes = charge_context_figure(device);
        charge_force(device, bytes);
        if (primary) {
            device->primary = context;
            device->primary_charged = true;
            device->primary_bytes = bytes;
        } else {
            entry.bytes = bytes;
        }
        lock_drop(&device->lock);
    }
    track_put(&process->track, &entry);
    __atomic_fetch_add(&process->living, 1, __ATOMIC_ACQ_REL);
    pacer_renew(process);
}

// One thread does it, and only while the driver knows the context.
static bool adopt(struct process *process, cu_context context, struct track_entry *entry) {
    cu_device ordinal;
    lock_take(&process->context_lock);
    bool known = track_get(&process->track, TRACK_CONTEXT, (uintptr_t)context, entry);
    if (!known && HAVE(cuCtxGetDevice) && REAL(cuCtxGetDevice)(&ordinal) == CU_OK) {
        adopt_once(process, context, ordinal);
        known = track_get(&process->track, TRACK_CONTEXT, (uintptr_t)context, entry);
    }
    lock_drop(&process->context_lock);
    return known;
}

static bool locate(struct process *process, cu_context context, bool current, struct here *here) {
    struct track_entry entry;
    if (!track_get(&process->track, TRACK_CONTEXT, (uintptr_t)context, &entry)) {
        if (!current || !adopt(process, context, &entry)) return false;
    }
    here->context = context;
    here->number = entry.flags;
    here->device = device_limited(entry.device);
    return here->device != NULL;
}

bool device_here(struct here *here) {
    struct process *process = process_limited();
    cu_context context = NULL;
    if (process == NULL || !HAVE(cuCtxGetCurrent)) return false;
    if (REAL(cuCtxGetCurrent)(&context) != CU_OK || context == NULL) return false;
    return locate(process, context, true, here);
}

bool device_of_context(cu_context context, struct here *here) {
    struct process *process = process_limited();
    if (process == NULL) return false;
    if (context == NULL) return device_here(here);
    return locate(process, context, false, here) || device_here(here);
}

bool device_of_stream(cu_stream stream, struct here *here) {
    cu_context context = NULL;
    if (process_limited() == NULL) return false;
    if (stream == NULL || stream == CU_LEGACY_STREAM || stream == CU_THREAD_STREAM || !HAVE(cuStreamGetCtx) ||
        REAL(cuStreamGetCtx)(stream, &context) != CU_OK) {
        return device_here(here);
    }
    return device_of_context(context, here);
}

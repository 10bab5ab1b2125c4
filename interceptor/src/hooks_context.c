// SPDX-License-Identifier: Apache-2.0
//
// Contexts. One cannot be measured from inside, so each is charged the figure that the agent measured. A context that dies
// takes along everything that was allocated in it.

#include <string.h>

#include "charge.h"
#include "export.h"
#include "pacer.h"
#include "topics.h"

static void bury_one(struct process *process, const struct track_entry *entry) {
    struct device *device = &process->devices[entry->device];
    switch (entry->kind) {
    case TRACK_POINTER: linear_forget(process, entry); break;
    case TRACK_MODULE: charge_unpack(device, entry->bytes); break;
    default: charge_give(device, entry->bytes); break;
    }
}

// Gives back all that a context owned. The driver has freed it.
static void bury(struct process *process, cu_context context) {
    struct track_entry entry;
    while (track_take_owned(&process->track, TRACK_NOTHING, context, &entry)) bury_one(process, &entry);
}

static bool context_lives(struct process *process, cu_context context, uint32_t number) {
    struct track_entry entry;
    return track_get(&process->track, TRACK_CONTEXT, (uintptr_t)context, &entry) && entry.flags == number;
}

void context_has(struct process *process, const struct track_entry *put, uint32_t number) {
    struct track_entry entry;
    if (context_lives(process, put->owner, number)) return;
    // The driver may still refuse to destroy it: only the outcome counts.
    lock_take(&process->context_lock);
    bool lives = context_lives(process, put->owner, number);
    lock_drop(&process->context_lock);
    if (lives || !track_take(&process->track, put->kind, put->key, &entry)) return;
    if (entry.owner == put->owner) bury_one(process, &entry);
    else track_put(&process->track, &entry); // the address is another context's by now
}

// A context more, or one less.
static void context_counted(struct process *process, int change) {
    __atomic_fetch_add(&process->living, (uint32_t)change, __ATOMIC_ACQ_REL);
    pacer_renew(process);
}

// A context on a device where no limit holds: it is counted for good, so that nobody takes another for the only one.
static cu_result created_elsewhere(cu_result result) {
    struct process *process = process_limited();
    if (process != NULL && result == CU_OK) context_counted(process, 1);
    return result;
}

static void created(struct process *process, struct device *device, cu_context context, uint64_t bytes) {
    struct track_entry entry = {.key = (uintptr_t)context, .kind = TRACK_CONTEXT, .bytes = bytes,
                                .device = (int16_t)device->ordinal,
                                .flags = __atomic_add_fetch(&process->contexts, 1, __ATOMIC_RELAXED)};
    track_put(&process->track, &entry);
    context_counted(process, 1);
}

#define CREATE(context, device_ordinal, call)                                   \
    struct device *device = device_limited(device_ordinal);                     \
    if (device == NULL || (context) == NULL) return created_elsewhere(call);    \
    uint64_t bytes = charge_context_figure(device);                             \
    if (!charge_take(device, bytes)) return CU_OUT_OF_MEMORY;                   \
    cu_result result = call;                                                    \
    if (result != CU_OK) charge_give(device, bytes);                            \
    else created(process_limited(), device, *(context), bytes);                 \
    charge_driver_refused(device, result);                                      \
    return result

EXPORT cu_result cuCtxCreate(cu_context *context, unsigned flags, cu_device ordinal) {
    DRIVER(cuCtxCreate);
    CREATE(context, ordinal, real(context, flags, ordinal));
}

EXPORT cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device ordinal) {
    DRIVER(cuCtxCreate_v2);
    CREATE(context, ordinal, real(context, flags, ordinal));
}

EXPORT cu_result cuCtxCreate_v3(cu_context *context, void *affinities, int count, unsigned flags, cu_device ordinal) {
    DRIVER(cuCtxCreate_v3);
    CREATE(context, ordinal, real(context, affinities, count, flags, ordinal));
}

EXPORT cu_result cuCtxCreate_v4(cu_context *context, void *parameters, unsigned flags, cu_device ordinal) {
    DRIVER(cuCtxCreate_v4);
    CREATE(context, ordinal, real(context, parameters, flags, ordinal));
}

// The entry goes first: the driver may give the same handle to another thread at once. Until the outcome is known nobody
// takes the context for one that was never seen.
#define DESTROY(context, call)                                                              \
    struct process *process = process_limited();                                            \
    struct track_entry entry;                                                               \
    if (process == NULL) return call;                                                       \
    lock_take(&process->context_lock);                                                      \
    bool known = track_take(&process->track, TRACK_CONTEXT, (uintptr_t)(context), &entry);  \
    if (known) pacer_context_ends(&process->devices[entry.device]);                         \
    cu_result result = call;                                                                \
    if (known) pacer_context_ended(&process->devices[entry.device], context, result == CU_OK); \
    if (known && result == CU_OK) context_counted(process, -1);                            \
    if (result != CU_OK && known) track_put(&process->track, &entry);                       \
    lock_drop(&process->context_lock);                                                      \
    if (result != CU_OK) return result;                                                     \
    if (known) charge_give(&process->devices[entry.device], entry.bytes);                   \
    bury(process, context);                                                                 \
    return result

EXPORT cu_result cuCtxDestroy_v2(cu_context context) {
    DRIVER(cuCtxDestroy_v2);
    DESTROY(context, real(context));
}

EXPORT cu_result cuCtxDestroy(cu_context context) {
    DRIVER(cuCtxDestroy);
    DESTROY(context, real(context));
}

EXPORT cu_result cuCtxDetach(cu_context context) {
    DRIVER(cuCtxDetach);
    DESTROY(context, real(context));
}

EXPORT cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device ordinal) {
    DRIVER(cuDevicePrimaryCtxRetain);
    struct device *device = device_limited(ordinal);
    struct process *process = process_limited();
    if (device == NULL || context == NULL) return created_elsewhere(real(context, ordinal));
    lock_take(&device->lock);
    uint64_t bytes = device->primary_charged ? 0 : charge_context_figure(device);
    cu_result result = CU_OUT_OF_MEMORY;
    if (device->primary_charged || charge_take(device, bytes)) {
        result = real(context, ordinal);
        if (result != CU_OK) {
            charge_give(device, bytes);
            charge_driver_refused(device, result);
        } else if (!device->primary_charged) {
            device->primary = *context;
            device->primary_charged = true;
            device->primary_bytes = bytes;
            created(process, device, *context, 0);
        }
    }
    lock_drop(&device->lock);
    return result;
}

// Before a release or a reset of the primary context: nobody looks at its work meanwhile.
static struct device *primary_ends(cu_device ordinal) {
    struct device *device = device_limited(ordinal);
    if (device == NULL) return NULL;
    lock_take(&device->lock);
    pacer_context_ends(device);
    return device;
}

// After a release or a reset: was it the last? Ends what primary_ends began.
static cu_result primary_ended(struct device *device, cu_result result, bool reset) {
    struct process *process = process_limited();
    struct track_entry entry;
    unsigned flags;
    int active = reset ? 0 : 1;
    if (device == NULL) return result;
    if (result != CU_OK) active = 1;
    else if (HAVE(cuDevicePrimaryCtxGetState) && REAL(cuDevicePrimaryCtxGetState)(device->ordinal, &flags, &active) != CU_OK) active = 1;
    if (device->primary_charged && !active) {
        if (track_take(&process->track, TRACK_CONTEXT, (uintptr_t)device->primary, &entry)) charge_give(device, entry.bytes);
        pacer_context_ended(device, device->primary, true);
        context_counted(process, -1);
        bury(process, device->primary);
        charge_give(device, device->primary_bytes);
        device->primary_charged = false;
        device->primary = NULL;
    } else {
        pacer_context_ended(device, NULL, false);
    }
    lock_drop(&device->lock);
    return result;
}

EXPORT cu_result cuDevicePrimaryCtxRelease_v2(cu_device ordinal) {
    DRIVER(cuDevicePrimaryCtxRelease_v2);
    struct device *device = primary_ends(ordinal);
    return primary_ended(device, real(ordinal), false);
}

EXPORT cu_result cuDevicePrimaryCtxRelease(cu_device ordinal) {
    DRIVER(cuDevicePrimaryCtxRelease);
    struct device *device = primary_ends(ordinal);
    return primary_ended(device, real(ordinal), false);
}

EXPORT cu_result cuDevicePrimaryCtxReset_v2(cu_device ordinal) {
    DRIVER(cuDevicePrimaryCtxReset_v2);
    struct device *device = primary_ends(ordinal);
    return primary_ended(device, real(ordinal), true);
}

EXPORT cu_result cuDevicePrimaryCtxReset(cu_device ordinal) {
    DRIVER(cuDevicePrimaryCtxReset);
    struct device *device = primary_ends(ordinal);
    return primary_ended(device, real(ordinal), true);
}

// A green context keeps the primary one alive and adds a little that comes back with it.
#define GREEN_BYTES (6ull << 20)

EXPORT cu_result cuGreenCtxCreate(cu_green *green, void *resources, cu_device ordinal, unsigned flags) {
    DRIVER(cuGreenCtxCreate);
    struct device *device = device_limited(ordinal);
    if (device == NULL || green == NULL) return real(green, resources, ordinal, flags);
    // Retaining the primary context first charges it, and tells which it is.
    cu_context primary = NULL;
    cu_result result = cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result != CU_OK) return result;
    result = CU_OUT_OF_MEMORY;
    if (charge_take(device, GREEN_BYTES)) {
        result = real(green, resources, ordinal, flags);
        if (result == CU_OK) {
            struct track_entry entry = {.key = (uintptr_t)*green, .kind = TRACK_GREEN, .bytes = GREEN_BYTES,
                                        .owner = primary, .device = (int16_t)ordinal};
            track_put(&process_limited()->track, &entry);
        } else {
            charge_give(device, GREEN_BYTES);
        }
    }
    if (HAVE(cuDevicePrimaryCtxRelease_v2)) cuDevicePrimaryCtxRelease_v2(ordinal);
    return result;
}

EXPORT cu_result cuGreenCtxDestroy(cu_green green) {
    DRIVER(cuGreenCtxDestroy);
    struct process *process = process_limited();
    struct track_entry entry;
    if (process == NULL || !track_get(&process->track, TRACK_GREEN, (uintptr_t)green, &entry)) return real(green);
    struct device *device = primary_ends(entry.device);
    return primary_ended(device, real(green), false);
}

// The context of a green context: the same thing under another name, paid already.
EXPORT cu_result cuCtxFromGreenCtx(cu_context *context, cu_green green) {
    DRIVER(cuCtxFromGreenCtx);
    struct process *process = process_limited();
    struct track_entry entry, known;
    cu_result result = real(context, green);
    if (result != CU_OK || process == NULL || context == NULL) return result;
    if (track_get(&process->track, TRACK_CONTEXT, (uintptr_t)*context, &known)) return result;
    if (track_get(&process->track, TRACK_GREEN, (uintptr_t)green, &entry)) {
        created(process, &process->devices[entry.device], *context, 0);
    }
    return result;
}

// What a limit's value costs: a stack for every thread that can be resident, or the value itself.
static uint64_t limit_cost(const struct device *device, int limit, size_t value) {
    int multiprocessors = 0, threads = 0;
    if (limit != CU_LIMIT_STACK) return value;
    if (!HAVE(cuDeviceGetAttribute)) return 0;
    REAL(cuDeviceGetAttribute)(&multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, device->ordinal);
    REAL(cuDeviceGetAttribute)(&threads, CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR, device->ordinal);
    return (uint64_t)value * (unsigned)multiprocessors * (unsigned)threads;
}

// The figure of a context holds the values that it begins with; what is charged here is what comes on top. The entry's
// flags remember the first value.
EXPORT cu_result cuCtxSetLimit(int limit, size_t value) {
    DRIVER(cuCtxSetLimit);
    struct here here;
    size_t first = 0;
    bool sized = limit == CU_LIMIT_STACK || limit == CU_LIMIT_PRINTF || limit == CU_LIMIT_HEAP;
    if (!sized || !device_here(&here) || !HAVE(cuCtxGetLimit)) return real(limit, value);
    struct process *process = process_limited();
    struct track_entry entry = {.key = (uintptr_t)here.context + (uintptr_t)limit, .kind = TRACK_LIMIT,
                                .owner = here.context, .device = (int16_t)here.device->ordinal};
    if (!track_get(&process->track, TRACK_LIMIT, entry.key, &entry)) {
        if (REAL(cuCtxGetLimit)(&first, limit) != CU_OK) return real(limit, value);
        entry.flags = first > UINT32_MAX ? UINT32_MAX : (uint32_t)first;
    }
    uint64_t cost = value > entry.flags ? limit_cost(here.device, limit, value - entry.flags) : 0, before = entry.bytes;
    if (cost > before && !charge_take(here.device, cost - before)) return CU_OUT_OF_MEMORY;
    cu_result result = real(limit, value);
    if (result != CU_OK) {
        if (cost > before) charge_give(here.device, cost - before);
        return result;
    }
    if (cost < before) charge_give(here.device, before - cost);
    entry.bytes = cost;
    track_put(&process->track, &entry);
    return result;
}

void settle_dirty(struct process *process) {
    if (__atomic_load_n(&process->dirty, __ATOMIC_ACQUIRE) == 0) return;
    if (__atomic_exchange_n(&process->dirty, 0, __ATOMIC_ACQ_REL) == 0) return;
    pool_settle_dirty(process);
    graph_settle_dirty(process);
}

// After a synchronisation pools may have shrunk.
static cu_result synchronised(cu_result result) {
    struct process *process = process_limited();
    if (process != NULL) settle_dirty(process);
    return result;
}

EXPORT cu_result cuCtxSynchronize(void) {
    DRIVER(cuCtxSynchronize);
    return synchronised(real());
}

EXPORT cu_result cuCtxSynchronize_v2(cu_context context) {
    DRIVER(cuCtxSynchronize_v2);
    return synchronised(real(context));
}

EXPORT cu_result cuStreamSynchronize(cu_stream stream) {
    DRIVER(cuStreamSynchronize);
    return synchronised(real(stream));
}

EXPORT cu_result cuStreamSynchronize_ptsz(cu_stream stream) {
    DRIVER(cuStreamSynchronize_ptsz);
    return synchronised(real(stream));
}

EXPORT cu_result cuEventSynchronize(cu_event event) {
    DRIVER(cuEventSynchronize);
    return synchronised(real(event));
}

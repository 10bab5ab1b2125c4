// SPDX-License-Identifier: Apache-2.0
//
// Memory that graphs allocate. It comes from one pool a device, which grows when a graph is uploaded or launched, and is
// given back by trimming. The most that a graph's nodes can allocate is known when it is instantiated: as far as the pool
// might have to grow for it, that is charged before the launch and settled with the pool's own figure after it. Graphs
// without such nodes pass straight through.

#include <string.h>

#include "charge.h"
#include "export.h"
#include "paced.h"
#include "quota.h"
#include "topics.h"

enum { STARTED = 1 }; // flag of an entry: its bytes are part of the device's sum

static uint64_t reserved_on(const struct device *device) {
    uint64_t bytes = device->graph_charged;
    if (HAVE(cuDeviceGetGraphMemAttribute)) REAL(cuDeviceGetGraphMemAttribute)(device->ordinal, CU_GRAPH_RESERVED, &bytes);
    return bytes;
}

// Brings the charge to what the graphs' pool has reserved. What is there beyond the limit is charged all the same.
static void settle(struct device *device) {
    uint64_t now = reserved_on(device);
    if (now > device->graph_charged) charge_force(device, now - device->graph_charged);
    else charge_give(device, device->graph_charged - now);
    device->graph_charged = now;
    device->graph_dirty = 0;
}

void graph_settle_dirty(struct process *process) {
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = &process->devices[i];
        if (__atomic_load_n(&device->graph_dirty, __ATOMIC_RELAXED) == 0) continue;
        lock_take(&device->graph_lock);
        settle(device);
        lock_drop(&device->graph_lock);
    }
}

void graph_freed(struct process *process) {
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = &process->devices[i];
        if (__atomic_load_n(&device->graph_charged, __ATOMIC_RELAXED) == 0) continue;
        __atomic_store_n(&device->graph_dirty, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&process->dirty, 1, __ATOMIC_RELEASE);
    }
}

bool stream_captures(struct process *process, cu_stream stream, bool per_thread) {
    int status = 0;
    if (__atomic_load_n(&process->captures, __ATOMIC_ACQUIRE) == 0) return false;
    if (per_thread && HAVE(cuStreamIsCapturing_ptsz)) REAL(cuStreamIsCapturing_ptsz)(stream, &status);
    else if (HAVE(cuStreamIsCapturing)) REAL(cuStreamIsCapturing)(stream, &status);
    return status != 0;
}

// Bytes that the graph's nodes allocate on each device, those of graphs within it too.
static void add_nodes(cu_graph graph, uint64_t bytes[DEVICES], int depth) {
    size_t count = 0, room;
    cu_graph child;
    cu_graph_alloc alloc;
    if (depth > 8 || REAL(cuGraphGetNodes)(graph, NULL, &count) != CU_OK || count == 0) return;
    cu_node *nodes = track_memory(count * sizeof *nodes);
    room = count;
    if (nodes == NULL) return;
    if (REAL(cuGraphGetNodes)(graph, nodes, &count) != CU_OK) count = 0;
    for (size_t i = 0; i < count && i < room; i++) {
        int type = -1;
        if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CU_OK) continue;
        if (type == CU_NODE_GRAPH && HAVE(cuGraphChildGraphNodeGetGraph) &&
            REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) == CU_OK) {
            add_nodes(child, bytes, depth + 1);
        }
        if (type != CU_NODE_ALLOC || REAL(cuGraphMemAllocNodeGetParams)(nodes[i], &alloc) != CU_OK) continue;
        int device = alloc.properties.location.id;
        if (alloc.properties.location.type == CU_LOCATION_DEVICE && device >= 0 && device < DEVICES) {
            bytes[device] += quota_round(alloc.bytes, 512);
        }
    }
    track_release(nodes, room * sizeof *nodes);
}

// Remembers what an executable graph may allocate: one entry a device, of which few have any.
static cu_result instantiated(cu_exec *exec, cu_graph graph, cu_result result) {
    struct process *process = process_limited();
    uint64_t bytes[DEVICES] = {0};
    if (result != CU_OK || process == NULL || exec == NULL) return result;
    if (!HAVE(cuGraphGetNodes) || !HAVE(cuGraphNodeGetType) || !HAVE(cuGraphMemAllocNodeGetParams)) return result;
    add_nodes(graph, bytes, 0);
    for (int i = 0; i < DEVICES; i++) {
        struct track_entry entry = {.key = (uintptr_t)*exec + (unsigned)i, .kind = TRACK_EXEC, .owner = *exec,
                                    .bytes = bytes[i], .device = (int16_t)i};
        if (bytes[i] == 0 || device_limited(i) == NULL) continue;
        track_put(&process->track, &entry);
        __atomic_store_n(&process->graphs, 1, __ATOMIC_RELEASE);
    }
    return result;
}

EXPORT cu_result cuGraphInstantiate(cu_exec *exec, cu_graph graph, cu_node *wrong, char *log, size_t room) {
    DRIVER(cuGraphInstantiate);
    return instantiated(exec, graph, real(exec, graph, wrong, log, room));
}

EXPORT cu_result cuGraphInstantiate_v2(cu_exec *exec, cu_graph graph, cu_node *wrong, char *log, size_t room) {
    DRIVER(cuGraphInstantiate_v2);
    return instantiated(exec, graph, real(exec, graph, wrong, log, room));
}

EXPORT cu_result cuGraphInstantiateWithFlags(cu_exec *exec, cu_graph graph, unsigned long long flags) {
    DRIVER(cuGraphInstantiateWithFlags);
    return instantiated(exec, graph, real(exec, graph, flags));
}

// This one can upload as well, which makes room in the pool at once: the most that can take is charged meanwhile.
static bool charge_upload(cu_graph graph, const void *parameters, uint64_t bytes[DEVICES]) {
    enum { UPLOAD = 2 };
    uint64_t flags = 0;
    if (parameters != NULL) memcpy(&flags, parameters, sizeof flags);
    if (!(flags & UPLOAD) || !HAVE(cuGraphGetNodes) || !HAVE(cuGraphNodeGetType)) return true;
    add_nodes(graph, bytes, 0);
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = bytes[i] > 0 ? device_limited(i) : NULL;
        bytes[i] = device == NULL ? 0 : quota_round(bytes[i], QUOTA_CHUNK);
        if (device == NULL || charge_take(device, bytes[i])) continue;
        bytes[i] = 0;
        return false;
    }
    return true;
}

static cu_result instantiated_with(cu_exec *exec, cu_graph graph, cu_result result, const uint64_t bytes[DEVICES]) {
    struct process *process = process_limited();
    instantiated(exec, graph, result);
    for (int i = 0; process != NULL && i < DEVICES; i++) {
        if (bytes[i] == 0) continue;
        struct device *device = &process->devices[i];
        lock_take(&device->graph_lock);
        charge_give(device, bytes[i]);
        settle(device);
        lock_drop(&device->graph_lock);
    }
    return result;
}

#define INSTANTIATE_WITH(symbol)                                                                                \
    DRIVER(symbol);                                                                                             \
    uint64_t bytes[DEVICES] = {0};                                                                              \
    if (process_limited() == NULL) return real(exec, graph, parameters);                                        \
    if (!charge_upload(graph, parameters, bytes)) return instantiated_with(exec, graph, CU_OUT_OF_MEMORY, bytes); \
    return instantiated_with(exec, graph, real(exec, graph, parameters), bytes)

EXPORT cu_result cuGraphInstantiateWithParams(cu_exec *exec, cu_graph graph, void *parameters) {
    INSTANTIATE_WITH(cuGraphInstantiateWithParams);
}

EXPORT cu_result cuGraphInstantiateWithParams_ptsz(cu_exec *exec, cu_graph graph, void *parameters) {
    INSTANTIATE_WITH(cuGraphInstantiateWithParams_ptsz);
}

EXPORT cu_result cuGraphExecDestroy(cu_exec exec) {
    DRIVER(cuGraphExecDestroy);
    struct process *process = process_limited();
    struct track_entry entry;
    cu_result result = real(exec);
    if (result == CU_OK) pacer_forget_key(process, exec);
    if (result != CU_OK || process == NULL || process->graphs == 0) return result;
    while (track_take_owned(&process->track, TRACK_EXEC, exec, &entry)) {
        struct device *device = &process->devices[entry.device];
        lock_take(&device->graph_lock);
        if (entry.flags & STARTED) device->graph_sum -= entry.bytes;
        settle(device);
        lock_drop(&device->graph_lock);
    }
    return result;
}

// Charges how far the pool might have to grow for a graph: never beyond what all graphs started so far can allocate.
static bool charge_start(struct process *process, struct device *device, struct track_entry *entry) {
    uint64_t sum = device->graph_sum + (entry->flags & STARTED ? 0 : entry->bytes);
    uint64_t most = quota_round(sum, QUOTA_CHUNK), own = quota_round(entry->bytes, QUOTA_CHUNK);
    uint64_t growth = most > device->graph_charged ? most - device->graph_charged : 0;
    if (growth > own) growth = own;
    if (!charge_try(device, growth)) {
        // The pool keeps what ended graphs had.
        if (HAVE(cuDeviceGraphMemTrim)) REAL(cuDeviceGraphMemTrim)(device->ordinal);
        settle(device);
        if (!charge_take(device, growth)) return false;
    }
    device->graph_charged += growth;
    if (!(entry->flags & STARTED)) {
        device->graph_sum += entry->bytes;
        entry->flags |= STARTED;
        track_put(&process->track, entry);
    }
    return true;
}

// Charges a start on every device that the graph allocates on, and leaves their pools locked: one bit each.
static bool charge_all(struct process *process, cu_exec exec, uint64_t *locked) {
    struct track_entry entry;
    *locked = 0;
    for (int i = 0; i < DEVICES; i++) {
        struct device *device = &process->devices[i];
        if (device->state == DEVICE_UNKNOWN) continue;
        if (!track_get(&process->track, TRACK_EXEC, (uintptr_t)exec + (unsigned)i, &entry) || entry.owner != exec) continue;
        lock_take(&device->graph_lock);
        *locked |= 1ull << i;
        if (!charge_start(process, device, &entry)) return false;
    }
    return true;
}

static void settle_all(struct process *process, uint64_t locked) {
    for (int i = 0; i < DEVICES; i++) {
        if (!(locked >> i & 1)) continue;
        settle(&process->devices[i]);
        lock_drop(&process->devices[i].graph_lock);
    }
}

#define START(call)                                                                                       \
    struct process *process = process_limited();                                                          \
    if (process == NULL || __atomic_load_n(&process->graphs, __ATOMIC_ACQUIRE) == 0) return call;         \
    if (stream_captures(process, stream, per_thread)) return call;                                        \
    uint64_t locked;                                                                                      \
    cu_result result = charge_all(process, exec, &locked) ? call : CU_OUT_OF_MEMORY;                      \
    settle_all(process, locked);                                                                          \
    return result

static cu_result launch(cu_result (*real)(cu_exec, cu_stream), cu_exec exec, cu_stream stream, bool per_thread) {
    START(real(exec, stream));
}

static cu_result paced_launch(cu_result (*real)(cu_exec, cu_stream), cu_exec exec, cu_stream stream, bool per_thread) {
    if (!process_is_paced() || pacer_pass((uintptr_t)exec, pacer_named(stream, per_thread))) return launch(real, exec, stream, per_thread);
    PACED_CALL((uintptr_t)exec, stream, per_thread, launch(real, exec, stream, per_thread));
}

EXPORT cu_result cuGraphLaunch(cu_exec exec, cu_stream stream) {
    DRIVER(cuGraphLaunch);
    return paced_launch(real, exec, stream, false);
}

EXPORT cu_result cuGraphLaunch_ptsz(cu_exec exec, cu_stream stream) {
    DRIVER(cuGraphLaunch_ptsz);
    return paced_launch(real, exec, stream, true);
}

EXPORT cu_result cuGraphUpload(cu_exec exec, cu_stream stream) {
    DRIVER(cuGraphUpload);
    const bool per_thread = false;
    START(real(exec, stream));
}

EXPORT cu_result cuGraphUpload_ptsz(cu_exec exec, cu_stream stream) {
    DRIVER(cuGraphUpload_ptsz);
    const bool per_thread = true;
    START(real(exec, stream));
}

EXPORT cu_result cuDeviceGraphMemTrim(cu_device ordinal) {
    DRIVER(cuDeviceGraphMemTrim);
    cu_result result = real(ordinal);
    struct device *device = result == CU_OK ? device_limited(ordinal) : NULL;
    if (device == NULL) return result;
    lock_take(&device->graph_lock);
    settle(device);
    lock_drop(&device->graph_lock);
    return result;
}

// While streams are captured nobody asks one whether it is done.
void capture_counted(struct process *process, int change) {
    lock_take(&process->capture_lock);
    __atomic_fetch_add(&process->captures, (uint32_t)change, __ATOMIC_ACQ_REL);
    pacer_renew(process);
    lock_drop(&process->capture_lock);
}

// Captures are counted before they begin, so that nobody takes a capturing stream for a running one.
#define BEGIN_CAPTURE(call)                                                                  \
    struct process *process = process_limited();                                             \
    if (process == NULL) return call;                                                        \
    capture_counted(process, 1);                                                             \
    cu_result result = call;                                                                 \
    if (result != CU_OK) capture_counted(process, -1);                                       \
    return result

EXPORT cu_result cuStreamBeginCapture(cu_stream stream) {
    DRIVER(cuStreamBeginCapture);
    BEGIN_CAPTURE(real(stream));
}

EXPORT cu_result cuStreamBeginCapture_ptsz(cu_stream stream) {
    DRIVER(cuStreamBeginCapture_ptsz);
    BEGIN_CAPTURE(real(stream));
}

EXPORT cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) {
    DRIVER(cuStreamBeginCapture_v2);
    BEGIN_CAPTURE(real(stream, mode));
}

EXPORT cu_result cuStreamBeginCapture_v2_ptsz(cu_stream stream, int mode) {
    DRIVER(cuStreamBeginCapture_v2_ptsz);
    BEGIN_CAPTURE(real(stream, mode));
}

EXPORT cu_result cuStreamBeginCaptureToGraph(cu_stream stream, cu_graph graph, const cu_node *after, const void *edges,
                                             size_t count, int mode) {
    DRIVER(cuStreamBeginCaptureToGraph);
    BEGIN_CAPTURE(real(stream, graph, after, edges, count, mode));
}

EXPORT cu_result cuStreamBeginCaptureToGraph_ptsz(cu_stream stream, cu_graph graph, const cu_node *after, const void *edges,
                                                  size_t count, int mode) {
    DRIVER(cuStreamBeginCaptureToGraph_ptsz);
    BEGIN_CAPTURE(real(stream, graph, after, edges, count, mode));
}

// A call that ends no capture, because there was none, takes nothing off the count.
static cu_result ended(struct process *process, bool captured, cu_result result) {
    if (captured) capture_counted(process, -1);
    return result;
}

EXPORT cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    DRIVER(cuStreamEndCapture);
    struct process *process = process_limited();
    if (process == NULL) return real(stream, graph);
    bool captured = stream_captures(process, stream, false);
    return ended(process, captured, real(stream, graph));
}

EXPORT cu_result cuStreamEndCapture_ptsz(cu_stream stream, cu_graph *graph) {
    DRIVER(cuStreamEndCapture_ptsz);
    struct process *process = process_limited();
    if (process == NULL) return real(stream, graph);
    bool captured = stream_captures(process, stream, true);
    return ended(process, captured, real(stream, graph));
}

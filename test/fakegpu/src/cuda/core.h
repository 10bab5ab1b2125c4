// SPDX-License-Identifier: Apache-2.0
// The library's own state: devices, contexts, and the lock around them.
#ifndef FAKEGPU_CUDA_CORE_H
#define FAKEGPU_CUDA_CORE_H

#include "abi.h"
#include "state/board.h"
#include "state/engine.h"
#include "state/state.h"

// What a context costs on the device before anything is allocated (measured on an H200).
#define CONTEXT_MIB 518u
#define MAX_VISIBLE FG_MAX_GPUS

// One device that this process sees: a GPU or a MIG device.
struct device {
    unsigned gpu;
    uint32_t gi, ci; // ids, FG_NO_INSTANCE for a whole GPU
    char uuid[48];   // of the MIG device, if it is one
    struct fg_board board;
    int sm;
    uint64_t memory; // usable bytes
    int slot;        // of the process record, -1 without a context
    int contexts;    // living ones, the primary included
    int greens;      // green contexts, each of which keeps the primary one
    cu_pool default_pool, pool;            // made when first asked for
    uint64_t graph_reserved, graph_live;   // what graphs keep, and what of it is in use between launches
    uint64_t graph_reserved_high;
    cu_context primary;
    int primary_references;
    unsigned primary_flags;
};

struct cu_context_st {
    struct cu_context_st *next;
    int device;
    unsigned flags;
    struct cu_stream_st *streams; // the first is the default stream, the second has what destroyed ones left
    struct cu_module_st *modules;
    struct cu_event_st *events;
    struct range *pages; // that small allocations share
    uint64_t green_bytes; // of green contexts; they go with this one
    uint64_t code_bytes, code_charged; // modules that were loaded
    uint64_t limits[3], stack_charged;
};

struct cu_stream_st {
    struct cu_stream_st *next;
    cu_context context;
    unsigned flags;
    int priority;
    uint64_t last; // its last piece of work on the device, 0: none
    struct cu_capture *capture; // NULL: work is done, not recorded
    const void *thread; // whose default stream it is, NULL: nobody's
};

struct core {
    struct fg_db db;
    struct device devices[MAX_VISIBLE];
    int device_count;
    cu_context contexts;
    cu_pool pools;
    cu_graph graphs;
    cu_exec execs;
    struct cu_capture *captures;
    cu_event pending; // events that were recorded and are not known to be over
};

// Locks the library, for calls that need cuInit only.
cu_result core_enter(struct core **core);
// The same for calls that need a current context.
cu_result core_enter_context(struct core **core, cu_context *context);
// The same for calls that a capture forbids: made all the same, they invalidate it.
cu_result core_enter_unsafe(struct core **core, cu_context *context);
void core_leave(struct core *core);

cu_result core_init(void);
int core_context_known(const struct core *core, cu_context context);
cu_context core_current(void);
struct device *core_device(struct core *core, cu_device device);

// Registers the process on the device, which its memory needs.
cu_result core_appear(struct core *core, struct device *device);
// Forgets it when it has nothing there any more.
void core_vanish(struct core *core, struct device *device);

// Charges the process on the device, or gives back. Charging fails when the memory does not hold it.
cu_result core_charge(struct core *core, struct device *device, uint64_t bytes);
void core_refund(struct core *core, struct device *device, uint64_t bytes);
uint64_t core_used(struct core *core, const struct device *device);
// Whether so many bytes more fit into the device, and into the limits of the process's cgroup; with the state locked.
int core_fits(struct core *core, const struct device *device, uint64_t bytes);

// Finds the devices that CUDA_VISIBLE_DEVICES leaves.
cu_result core_enumerate(struct core *core, const char *visible);

// The stream of a handle in the context; NULL for one that is not its own.
cu_stream core_stream(cu_context context, cu_stream handle);
// The context of a stream that is no constant; NULL where there is none.
cu_context core_context_of(const struct core *core, cu_stream handle);
// The last piece of work that was queued in the context, or on the stream; the legacy one stands for the whole context.
uint64_t core_context_last(cu_context context);
uint64_t core_stream_last(cu_stream stream);
// Where the device's work of this process is queued, FG_LANES for nowhere: then it takes no time.
uint32_t core_lane(const struct core *core, int device);
// Whether a piece of work of the device is done by now.
int core_done(struct core *core, int device, uint64_t piece);
// A sleep ends tens of microseconds late, unless its end is watched for.
enum core_wait { CORE_WATCH, CORE_SLEEP };
void core_wait_until(uint64_t when, enum core_wait how);
// Leaves the library, and waits until the piece is done.
void core_leave_until_done(struct core *core, int device, uint64_t piece, enum core_wait how);
enum core_wait core_how(cu_context context);
// The thread that calls, as an address.
const void *core_thread(void);
// What comes with a synchronisation of the device: pools give back what they need not keep.
void core_synchronised(struct core *core);

// Frees what a context owns; called with the library locked.
void core_drop_allocations(struct core *core, cu_context context);
void core_drop_modules(struct core *core, cu_context context);
void core_drop_events(struct core *core, cu_context context);
// Notes when pending events were, while it is still remembered.
void core_note_events(struct core *core);

#endif

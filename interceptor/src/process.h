// SPDX-License-Identifier: Apache-2.0
//
// What the library knows in this process. All of it lies in one piece of memory that the kernel empties for a child of fork,
// however it was forked: a child is another process of the ledger, holds nothing, and begins as if just loaded.

#ifndef SLUICE_PROCESS_H
#define SLUICE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "lock.h"
#include "mode.h"
#include "share.h"
#include "track.h"

#define DEVICES 64
#define SHARES_PER_DEVICE 8

enum device_state { DEVICE_UNKNOWN, DEVICE_FREE, DEVICE_LIMITED, DEVICE_CLOSED };

// One device as CUDA numbers it in this process.
struct device {
    uint32_t state; // an enum device_state
    int ordinal;
    unsigned char uuid[16];
    int share_count;
    struct share *shares[SHARES_PER_DEVICE];
    struct sluice_lock lock;       // around the primary context
    struct sluice_lock graph_lock; // around the graph pool
    struct sluice_lock pack_lock;  // around what is packed
    cu_context primary;
    bool primary_charged;
    uint64_t primary_bytes;
    uint64_t graph_charged, graph_dirty; // what the graphs' pool has, and whether it may have changed
    uint64_t graph_sum; // the most that all graphs started so far allocate
    uint64_t packed;       // bytes of small arrays and modules that share pages
    uint64_t small_pages;  // pages of small blocks
    uint64_t small_bytes;  // bytes in them
    struct pacer *pacer;   // where the time on it is held
};

struct pacer;

// Whether the time on the GPU is held.
enum pacing { PACING_UNKNOWN, PACING_NONE, PACING_SOME };

struct process {
    uint32_t ready; // stored last
    uint32_t mode;
    uint32_t pacing; // an enum pacing
    struct sluice_lock pacing_lock;
    uint32_t living;      // contexts
    uint32_t device_count; // that CUDA has here
    const struct sluice_heartbeat *heartbeat;
    struct sluice_lock capture_lock; // streams are asked, or captures begin
    struct sluice_lock helper_lock;
    uint32_t helper;      // an enum of helper.c
    uint32_t helper_call; // a futex: goes up with each call
    uint32_t captures; // streams that are being captured, or about to be
    uint32_t graphs;   // some executable graph allocates
    uint32_t dirty;    // some pool may have shrunk since it was last looked at
    uint32_t exports;  // some memory was exported
    uint32_t imports;  // some memory of others was imported
    uint32_t bindings; // some memory is held by another object
    uint32_t contexts; // that were ever seen: a number for each, since the driver uses handles again
    uint32_t told;     // the reason of failing closed was given
    int pid;           // where the kernel cannot empty memory at fork
    struct sluice_lock start_lock;
    struct sluice_lock device_lock; // around learning a device
    struct sluice_lock context_lock; // around the end of a context, and its first sight
    struct sluice_lock vmm_lock;
    struct sluice_lock pool_list_lock;
    void *mappings; // free records of hooks_vmm.c
    void *pools;    // of hooks_pool.c
    int share_count;
    struct share shares[SHARES];
    struct device devices[DEVICES];
    struct device views[DEVICES]; // as the management library names them; never charged
    struct track_table track;
};

extern struct process *sluice_process __attribute__((visibility("hidden")));
extern bool sluice_watch_pid __attribute__((visibility("hidden")));

// The process, while something may be paced in it; NULL otherwise. A child of fork finds its parent's answer, and an empty process.
extern struct process *sluice_paced __attribute__((visibility("hidden")));
static inline bool process_is_paced(void) { return __atomic_load_n(&sluice_paced, __ATOMIC_ACQUIRE) != NULL; }
// Changes what is known of that, if it is still what it was.
void process_paces(struct process *process, enum pacing from, enum pacing to);

struct process *process_start(void);
bool process_forked(const struct process *process);

// The process, begun at its first use; NULL where no limit holds at all.
static inline struct process *process_limited(void) {
    struct process *process = __atomic_load_n(&sluice_process, __ATOMIC_ACQUIRE);
    if (process == NULL || __atomic_load_n(&process->ready, __ATOMIC_ACQUIRE) == 0 ||
        (__builtin_expect(sluice_watch_pid, 0) && process_forked(process))) {
        process = process_start();
    }
    return process == NULL || process->mode == MODE_INERT ? NULL : process;
}

// Whether replacements are handed out to who asks by name.
bool process_hands_out(void);
// Counts a function handed out in a variant that is not known.
void process_count_unknown(const char *base);

// Says once why memory is refused.
void process_closed(const char *what, const char *reason);

// The table of what is held, and the device of an ordinal where a limit holds for it, NULL where none does.
struct device *device_limited(int ordinal);

// The device of a UUID, to be looked at by who may hold nothing on it: limited, or closed where it has no share; NULL where
// no limit holds for it.
struct device *device_view(const unsigned char uuid[16]);

// The device of the thread's current context, and the context. False where there is none, or no limit holds for it.
struct here {
    struct device *device;
    cu_context context;
    uint32_t number; // of the context
};
bool device_here(struct here *here);
// The same for a stream's context.
bool device_of_stream(cu_stream stream, struct here *here);
bool device_of_context(cu_context context, struct here *here);

#endif // SLUICE_PROCESS_H

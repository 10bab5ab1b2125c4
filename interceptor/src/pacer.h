// SPDX-License-Identifier: Apache-2.0
//
// Pacing of one device in this process: what lets a launch pass, makes it wait, and sees when the work is done.
//
// A launch passes by the fast path (pacer_pass) while the gate's word is the one by which the process was admitted. All else is
// under the lock: admission, waiting, events, and the end of a slice, which the helper thread (helper.c) sees to.

#ifndef SLUICE_PACER_H
#define SLUICE_PACER_H

#include "gate.h"
#include "pace.h"
#include "process.h"

#define PACER_CACHED 32u     // lanes that a thread has at hand, a power of two
#define PACER_NOT_ADMITTED 7u // no gate has such a word
#define PACER_NO_STREAM UINT64_MAX // of a lane whose stream was destroyed

enum pacer_state {
    PACER_IDLE,   // nothing was launched, or all is drained
    PACER_OPEN,   // admitted
    PACER_ENDING, // the slice is over, and its work may not be done
};

struct pacer {
    // The fast path's: the word by which the process is admitted, and where it has to be found.
    const uint32_t *word;
    uint32_t admitted;
    uint32_t self_word; // of a process that paces itself
    struct pace pace;
    // Under the lock.
    struct sluice_lock lock;
    struct process *process;
    struct device *device;
    enum pacer_state state;
    struct gate gates[SHARES_PER_DEVICE];
    int gate_count;
    struct gate *by; // the gate that admitted; NULL: the process paces itself
    struct pace_self self;
    uint32_t rate;       // of a process that paces itself
    uint64_t open_until, opened_at, ended_at;
    uint64_t lenient_at, lenience; // when a launch is let pass in a slice that does not drain, and how long after that the next
    uint64_t flushed, opened_gpu; // GPU time: told to the ledger, and at the opening
    uint32_t base, seen; // launches: at the opening, and at the helper's last look
    uint64_t seen_at;
    bool quiet; // nothing was outstanding at that look
    uint32_t waiters;
    cu_event events[PACE_LANES][PACE_MARKS];
    void *event_context[PACE_LANES];
};

// The lanes of this thread by the streams that its launches name. They are good while the lane's epoch is the process's, which
// changes when a lane is made.
struct pacer_cache {
    uint64_t stream;
    struct pace_lane *lane;
};
extern __thread struct pacer_cache pacer_cache[PACER_CACHED] __attribute__((visibility("hidden"), tls_model("initial-exec")));

static inline struct pacer_cache *pacer_cached(uint64_t stream) { return &pacer_cache[stream * 0x9e3779b97f4a7c15ull >> 59]; }

// Lanes of the epoch may be used without asking the driver. It has a value of no lane while none may.
extern uint64_t sluice_epoch __attribute__((visibility("hidden")));
enum { EPOCH_OF_NONE = 1, EPOCH_ASK = 2, EPOCH_FIRST = 3 };

// A launch on its way through the slow path.
struct pacer_launch {
    uint64_t key;    // of what is launched
    uint64_t named;  // its stream
    cu_stream handle;
    bool per_thread;
    uint64_t stream; // never 0: the default streams have their constants
    struct pacer *pacer;
    struct pace_lane *lane;
    cu_context context;
    uint32_t at; // place of its function
    bool mark;   // an event follows
};

// A stream as a launch names it, and as lanes know it.
static inline uint64_t pacer_named(cu_stream stream, bool per_thread) {
    return (uintptr_t)(per_thread && stream == NULL ? CU_THREAD_STREAM : stream);
}
static inline uint64_t pacer_stream(uint64_t named) { return named == 0 ? (uintptr_t)CU_LEGACY_STREAM : named; }

// The fast path: the launch is accounted, and no event follows.
static inline __attribute__((always_inline)) bool pacer_pass(uint64_t key, uint64_t named) {
    const struct pacer_cache *cached = pacer_cached(named);
    struct pace_lane *lane = cached->lane;
    if (__builtin_expect(cached->stream != named, 0)) return false;
    if (__builtin_expect(lane->epoch != __atomic_load_n(&sluice_epoch, __ATOMIC_RELAXED), 0)) return false;
    const struct pacer *pacer = lane->pacer;
    uint32_t word = __atomic_load_n(__atomic_load_n(&pacer->word, __ATOMIC_RELAXED), __ATOMIC_ACQUIRE);
    if (__builtin_expect(word != __atomic_load_n(&pacer->admitted, __ATOMIC_RELAXED), 0)) return false;
    return pace_pass(lane, pacer->pace.functions, key);
}

// The slow path, before and after the driver's function. False where the launch is not paced, and pacer_after is not due.
bool pacer_before(struct pacer_launch *launch);
cu_result pacer_after(struct pacer_launch *launch, cu_result result);

// Begins pacing of a device whose shares are known; false where there is no memory for it.
bool pacer_begin(struct process *process, struct device *device);

// Our own calls of the driver must not end anybody's capture: with one going on, they are made in relaxed mode, and no stream is
// asked; without one, none begins meanwhile.
struct pacer_hold {
    bool alone; // nothing is captured
    int mode;   // of captures, that the thread had
    bool relaxed;
};
struct pacer_hold pacer_hold(struct process *process);
void pacer_release(struct process *process, const struct pacer_hold *hold);

// What a look may ask: the streams of a context, or with `all` of every one, where the thread's current context may be another
// afterwards.
struct pacer_look {
    uint64_t now;
    cu_context context;
    bool all, alone;
};
// Under the lock, and between hold and release: sees how far the work is; does what is due, and says when to look again.
void pacer_poll(struct pacer *pacer, const struct pacer_look *look);
uint64_t pacer_act(struct pacer *pacer, const struct pacer_look *look);

uint64_t pacer_now(void);

// What ends: launches are timed anew where a key may be used again, streams and contexts are not asked any more.
void pacer_forget_key(struct process *process, const void *key);
void pacer_forget_keys(struct process *process);
void pacer_stream_ends(struct process *process, cu_stream stream);
// Keeps the helper out while a context may end; with `ended` it has.
void pacer_context_ends(struct device *device);
void pacer_context_ended(struct device *device, cu_context context, bool ended);

// Closes the lane's batch by an event, under the lock.
void pacer_close_batch(struct pacer *pacer, struct pace_lane *lane);

// The number of contexts, or whether streams are captured, has changed: what lanes may be used without asking.
void pacer_renew(struct process *process);

// admit.c. Under the lock: whether a launch may pass now; the futex to wait at where it may not, and its value.
struct pacer_place {
    const uint32_t *word;
    uint32_t value;
    uint64_t until; // when to look again at the latest
};
bool pacer_admit(struct pacer *pacer, uint64_t now, struct pacer_place *place);
// Whether the slice that admitted goes on; its end.
bool pacer_still_open(struct pacer *pacer, uint64_t now);
void pacer_end_slice(struct pacer *pacer, uint64_t now);
// All work of a slice that is over is done.
void pacer_drained(struct pacer *pacer, uint64_t now);
// Tells the ledger what the work took.
void pacer_flush(struct pacer *pacer);

#endif // SLUICE_PACER_H

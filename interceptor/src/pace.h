// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of pacing: how long functions take, what is ahead of the GPU, when an event is due, what the GPU was busy for.
// It asks no clock and no driver: times come in as arguments, in nanoseconds, and what it wants recorded goes out as the
// number of a mark. All of it, but for pace_pass, is called with the pacer locked.
//
// Launches of a thread to a stream make a lane. Those since the lane's last event are a batch: their estimates add up, and an
// event closes the batch before it grows past a millisecond. The time between two events of a stream that was busy
// throughout is what the batch really took, from which the estimates are learned.

#ifndef SLUICE_PACE_H
#define SLUICE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_FUNCTIONS 2048u // a power of two
#define PACE_MEMBERS 16u     // functions that a batch can tell apart, a power of two
#define PACE_MARKS 32u       // events of a lane, a power of two
#define PACE_LANES 64u

#define PACE_MOST_AHEAD 2000000ll  // what may be ahead of the GPU
#define PACE_BATCH 1000000ll       // estimates that one event covers at most
#define PACE_LEAST_BATCH 250000ll  // the same where there are many lanes
#define PACE_UNKNOWN 1000000ll     // what a function is taken for until it is known
#define PACE_LEAST_WAIT 20000000ll // no wait for the GPU is given up earlier
#define PACE_WINDOW 50000000ll     // of a process that paces itself
#define PACE_NEVER_FITS UINT32_MAX // the estimate of an unknown function, for the fast path

// How long a function, a graph or a class of copies takes.
struct pace_function {
    uint64_t key;
    uint32_t estimate; // PACE_NEVER_FITS until it is known
    uint32_t samples;
};

struct pace_batch {
    uint16_t member[PACE_MEMBERS]; // functions by their place in the table
    uint16_t count[PACE_MEMBERS];  // how often each was launched
};

struct pace_mark {
    int64_t estimate;  // of the batch that it closes
    int64_t settled;   // what of it was known to be done already
    uint64_t recorded; // when the event was recorded
    struct pace_batch batch;
    uint16_t others; // launches of functions that the batch does not tell apart
    bool start;      // closes no batch: the queue was empty, and the next batch begins here
    bool exact;      // the stream was busy from the mark before to this one
};

struct pace_lane {
    // Of its thread alone, without a lock; others read them.
    uint64_t stream;   // 0: the lane is free
    uint64_t epoch;    // while it is the process's, the lane is good
    int64_t room;      // estimates that may still be launched before an event is due
    uint32_t launches; // since the lane was made
    uint32_t others;
    struct pace_batch batch;
    struct pacer *pacer;
    // Under the lock.
    int64_t limit;   // the room with which the batch began
    int64_t settled; // what is known to be done of it without an event
    int64_t looked;  // what was pending when somebody last looked, and when that was first seen
    uint64_t looked_at;
    const void *owner;     // its thread
    void *context;         // that the stream lies in
    uint32_t head, tail;   // marks head to tail - 1 are outstanding; the one before head is the last that was done
    uint64_t position;     // when the mark before head was reached
    uint64_t running_since; // when the head began to run, as far as is known
    struct pace_mark marks[PACE_MARKS];
};

struct pace {
    struct pace_function functions[PACE_FUNCTIONS];
    struct pace_lane lanes[PACE_LANES];
    uint32_t lanes_used; // one more than the highest that was ever used
    int64_t marked;      // estimates of outstanding marks
    uint64_t busy_until; // up to where the GPU's time was counted
    uint64_t gpu_time;   // that work took, lanes at the same time counted once
    uint64_t longest;
    uint64_t done;     // marks
    uint64_t bound_off; // no bound holds until more marks than that are done
    uint32_t retired;  // launches of lanes that are gone
    int64_t estimated, measured; // of the work from which the concurrency is learned
    int64_t concurrency;         // in thousandths, at least 1000
};

void pace_begin(struct pace *pace);

static inline uint32_t pace_place(uint64_t key) { return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 53) & (PACE_FUNCTIONS - 1); }

// The fast path: whether a launch passes without an event, accounted. Without a lock, for the lane's own thread.
static inline __attribute__((always_inline)) bool pace_pass(struct pace_lane *lane, const struct pace_function *functions, uint64_t key) {
    uint32_t at = pace_place(key), slot = at & (PACE_MEMBERS - 1);
    const struct pace_function *function = &functions[at];
    if (__builtin_expect(__atomic_load_n(&function->key, __ATOMIC_RELAXED) != key || lane->batch.member[slot] != at, 0)) return false;
    int64_t room = lane->room - (int64_t)__atomic_load_n(&function->estimate, __ATOMIC_RELAXED);
    if (__builtin_expect(room < 0, 0)) return false;
    __atomic_store_n(&lane->room, room, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->launches, lane->launches + 1, __ATOMIC_RELAXED);
    lane->batch.count[slot]++;
    return true;
}

// The place of a function in the table, where it is put in the stead of another if it has to be.
uint32_t pace_function_at(struct pace *pace, uint64_t key);
int64_t pace_estimate(const struct pace *pace, uint32_t at);
static inline bool pace_known(const struct pace *pace, uint32_t at) { return pace->functions[at].estimate != PACE_NEVER_FITS; }
void pace_forget(struct pace *pace, uint64_t key);

// The lane of a thread and a stream; a free one, or the one that has been idle, is made it. NULL where all are busy.
struct pace_lane *pace_lane_of(struct pace *pace, const void *owner, void *context, uint64_t stream);
// A free lane keeps no work.
void pace_lane_drop(struct pace *pace, struct pace_lane *lane);

// What was launched on the lane after its last event and is not known to be done.
int64_t pace_pending(const struct pace_lane *lane);
static inline bool pace_lane_busy(const struct pace_lane *lane) { return lane->head != lane->tail || pace_pending(lane) > 0; }
bool pace_busy(const struct pace *pace);
uint32_t pace_launches(const struct pace *pace);

// Accounts a launch, or takes one back that the driver refused.
void pace_add(struct pace *pace, struct pace_lane *lane, uint32_t at);
void pace_undo(struct pace *pace, struct pace_lane *lane, uint32_t at);

// Whether the batch has to be closed now, with the launch of `at` in it; before it is launched: whether what came before
// must not be mixed with it.
bool pace_mark_due(const struct pace *pace, const struct pace_lane *lane, uint32_t at);
static inline bool pace_mark_room(const struct pace_lane *lane) { return lane->tail - lane->head < PACE_MARKS - 2; }

// Closes the batch, or with `start` begins one on an empty queue. The number of the mark whose event is to be recorded.
uint32_t pace_mark(struct pace *pace, struct pace_lane *lane, uint64_t now, bool start);
// The event of the last mark could not be recorded: what it closed counts as done.
void pace_unmark(struct pace *pace, struct pace_lane *lane);

// The head is done; `elapsed` is the time between the event before it and its own, 0 where there is none before.
void pace_reached(struct pace *pace, struct pace_lane *lane, uint64_t elapsed, uint64_t now);

// A look at what is pending on a lane: with the stream empty (`empty`), or past its time where the stream cannot be asked.
// It is done when it did not change since the look before. True when nothing is pending any more.
bool pace_look(struct pace *pace, struct pace_lane *lane, bool asked, bool empty, uint64_t now);

// What is ahead of the GPU, and whether a launch has to wait for it.
int64_t pace_ahead(const struct pace *pace, uint64_t now);
bool pace_must_wait(const struct pace *pace, int64_t ahead);
// How long to wait for what is ahead, until the bound is given up.
static inline int64_t pace_patience(int64_t ahead) { return 2 * ahead > PACE_LEAST_WAIT ? 2 * ahead : PACE_LEAST_WAIT; }
void pace_give_up(struct pace *pace);

// A process that paces itself: what it may use of each window.
struct pace_self {
    uint64_t window;
    int64_t level; // negative: debt
};
// When a slice that begins now ends; 0 where nothing is left of this window. The rate is in hundredths of a percent.
uint64_t pace_self_open(struct pace_self *self, uint64_t now, uint32_t rate);
static inline void pace_self_charge(struct pace_self *self, uint64_t used) { self->level -= (int64_t)used; }
static inline uint64_t pace_next_window(uint64_t now) { return (now / PACE_WINDOW + 1) * PACE_WINDOW; }

#endif // SLUICE_PACE_H

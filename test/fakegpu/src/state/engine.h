// SPDX-License-Identifier: Apache-2.0
// The time of the GPUs: what was queued, what of it runs, and when it is done.
//
// Each process has a lane on each GPU that it uses: a queue whose pieces run one after another. Lanes of one GPU that have
// work at the same moment get equal parts of it. There is nobody who keeps the time: whoever wants to know brings the run
// up to the present, from the last published state and what has been queued since. So results do not depend on when, or
// whether, anybody looks.
//
// Nothing here is locked. A new state is made in a buffer of the looker's own and published by one word if nobody else was
// faster, so that a process may be stopped or killed at any instruction without another noticing.
#ifndef FAKEGPU_ENGINE_H
#define FAKEGPU_ENGINE_H

#include <stdint.h>

#include "state.h"

#define FG_ENDLESS UINT64_MAX // work that is never done
#define FG_DEPTH 2048u        // pieces of a lane that are remembered
#define FG_QUEUED 1024u       // pieces of a lane that may wait, so that a finished one is remembered for as long again

// A piece of work. It waits for another lane's piece, if it names one; then it takes its time. A piece of a meeting keeps its
// GPU busy, too, until as many pieces of the same meeting run as it has parties.
struct fg_piece {
    uint64_t ns;
    uint64_t arrival; // CLOCK_MONOTONIC ns
    uint64_t meeting; // 0: none
    uint64_t after;   // the piece of the lane after_lane, plus one; 0: none
    uint32_t after_lane;
    uint32_t parties;
    uint64_t finished; // the piece's number in the highest 16 bits, then ns since the engine's epoch; 0 ns: not finished
};

// What the owner of a lane says.
struct fg_lane {
    uint64_t life; // goes up with each owner
    uint64_t gone; // the life of the owner that is no more
    uint64_t base; // the pieces that the lane had at the begin of this life
    uint64_t tail; // pieces ever queued
    uint32_t slot; // of the owner's process record
    uint32_t gpu;
    uint32_t gi, ci;
};

// How far a lane has come.
struct fg_run {
    uint64_t life;
    uint64_t head;  // pieces that are done
    uint64_t left;  // ns of the first that is not, once it has begun
    uint64_t busy;  // ns of its GPU's time that this owner had
    uint32_t begun; // the first piece that is not done has the GPU
    uint32_t met;   // it waits for no other party
};

struct fg_moment {
    uint64_t clock; // CLOCK_MONOTONIC ns
    uint64_t busy[FG_MAX_GPUS]; // ns in which each GPU had work
    uint32_t lanes; // as many from the first have ever been used
    uint32_t reserved;
    struct fg_run runs[FG_LANES];
};

struct fg_engine {
    uint64_t epoch; // CLOCK_MONOTONIC ns when the node was made; all else begins as zeros
    uint64_t current; // {generation, buffer}: the state that holds, 16 bits for the buffer
    uint32_t lanes;
    uint32_t reserved[11];
    struct fg_lane lane[FG_LANES];
    struct fg_moment buffers[2 * FG_LANES]; // two for each lane's owner
    struct fg_piece pieces[FG_LANES][FG_DEPTH];
};

uint64_t fg_now(void); // CLOCK_MONOTONIC ns

// Takes a lane for a process record; FG_LANES when there is none. The caller holds the state's lock, as for giving it back.
uint32_t fg_lane_take(struct fg_db *db, uint32_t slot, const struct fg_lane *of);
void fg_lane_drop(struct fg_db *db, uint32_t lane);

// Of the lane's owner, one thread at a time:
// queues a piece and returns its number plus one, so that 0 is no piece.
uint64_t fg_queue(struct fg_db *db, uint32_t lane, const struct fg_piece *piece);
// Brings the run up to the present.
void fg_advance(struct fg_db *db, uint32_t own);
// Whether a piece (its number plus one) is done, as far as the run was brought.
int fg_done(struct fg_db *db, uint32_t lane, uint64_t piece);
// When a done piece was, in CLOCK_MONOTONIC ns, while it is remembered.
uint64_t fg_finished(struct fg_db *db, uint32_t lane, uint64_t piece);
// When it will be done, if nothing changes, or the horizon if that is sooner.
uint64_t fg_expected(struct fg_db *db, uint32_t lane, uint64_t piece, uint64_t horizon);

// Anybody's look: the state now. Nothing is published.
void fg_look(struct fg_db *db, struct fg_moment *moment);
// Whether the lane has the GPU in that state.
int fg_running(const struct fg_moment *moment, uint32_t lane);

#endif

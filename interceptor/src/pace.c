// SPDX-License-Identifier: Apache-2.0
//
// Estimates, lanes, batches and windows.

#include "pace.h"

#include <string.h>

#define LEAST_ESTIMATE 500
#define MOST_ESTIMATE 4000000000ll
#define LEARN_CONCURRENCY 5000000 // busy time from which the concurrency is taken anew
#define MOST_CONCURRENCY 64000

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

void pace_begin(struct pace *pace) {
    pace->concurrency = 1000;
    pace->bound_off = UINT64_MAX;
}

uint32_t pace_function_at(struct pace *pace, uint64_t key) {
    uint32_t at = pace_place(key);
    struct pace_function *function = &pace->functions[at];
    if (function->key != key) {
        function->samples = 0;
        __atomic_store_n(&function->estimate, PACE_NEVER_FITS, __ATOMIC_RELAXED);
        __atomic_store_n(&function->key, key, __ATOMIC_RELAXED);
    }
    return at;
}

int64_t pace_estimate(const struct pace *pace, uint32_t at) {
    return pace_known(pace, at) ? pace->functions[at].estimate : PACE_UNKNOWN;
}

void pace_forget(struct pace *pace, uint64_t key) {
    struct pace_function *function = &pace->functions[pace_place(key)];
    if (function->key == key) __atomic_store_n(&function->key, 0, __ATOMIC_RELAXED);
}

int64_t pace_pending(const struct pace_lane *lane) {
    return lane->limit - __atomic_load_n(&lane->room, __ATOMIC_RELAXED) - lane->settled;
}

static int64_t left_of(const struct pace_mark *mark) { return mark->estimate - mark->settled; }

bool pace_busy(const struct pace *pace) {
    for (uint32_t i = 0; i < pace->lanes_used; i++) {
        if (pace->lanes[i].stream != 0 && pace_lane_busy(&pace->lanes[i])) return true;
    }
    return false;
}

uint32_t pace_launches(const struct pace *pace) {
    uint32_t sum = pace->retired;
    for (uint32_t i = 0; i < pace->lanes_used; i++) sum += __atomic_load_n(&pace->lanes[i].launches, __ATOMIC_RELAXED);
    return sum;
}

// Begins a batch. With many lanes each is smaller, so that all together are little more than one.
static void new_batch(const struct pace *pace, struct pace_lane *lane) {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < pace->lanes_used; i++) lanes += pace->lanes[i].stream != 0 && pace_lane_busy(&pace->lanes[i]);
    lane->limit = greater(PACE_BATCH / (lanes == 0 ? 1 : lanes), PACE_LEAST_BATCH);
    lane->settled = 0;
    lane->looked = 0;
    lane->others = 0;
    memset(lane->batch.count, 0, sizeof lane->batch.count);
    __atomic_store_n(&lane->room, lane->limit, __ATOMIC_RELAXED);
}

void pace_lane_drop(struct pace *pace, struct pace_lane *lane) {
    for (uint32_t i = lane->head; i != lane->tail; i++) pace->marked -= left_of(&lane->marks[i % PACE_MARKS]);
    pace->retired += lane->launches;
    memset(lane, 0, sizeof *lane);
}

struct pace_lane *pace_lane_of(struct pace *pace, const void *owner, void *context, uint64_t stream) {
    struct pace_lane *open = NULL, *idle = NULL;
    for (uint32_t i = 0; i < PACE_LANES; i++) {
        struct pace_lane *lane = &pace->lanes[i];
        if (lane->stream == stream && lane->owner == owner && lane->context == context) return lane;
        if (lane->stream == 0 && open == NULL) open = lane;
        if (lane->stream != 0 && idle == NULL && !pace_lane_busy(lane)) idle = lane;
        if (i >= pace->lanes_used && open != NULL) break;
    }
    if (open == NULL) open = idle;
    if (open == NULL) return NULL;
    pace_lane_drop(pace, open);
    open->owner = owner;
    open->context = context;
    open->stream = stream;
    memset(open->batch.member, 0xff, sizeof open->batch.member);
    if ((uint32_t)(open - pace->lanes) >= pace->lanes_used) pace->lanes_used = (uint32_t)(open - pace->lanes) + 1;
    new_batch(pace, open);
    return open;
}

void pace_add(struct pace *pace, struct pace_lane *lane, uint32_t at) {
    uint32_t slot = at & (PACE_MEMBERS - 1);
    if (lane->batch.count[slot] == 0) lane->batch.member[slot] = (uint16_t)at;
    if (lane->batch.member[slot] == at) lane->batch.count[slot]++;
    else lane->others++;
    __atomic_store_n(&lane->room, lane->room - pace_estimate(pace, at), __ATOMIC_RELAXED);
    __atomic_store_n(&lane->launches, lane->launches + 1, __ATOMIC_RELAXED);
}

void pace_undo(struct pace *pace, struct pace_lane *lane, uint32_t at) {
    uint32_t slot = at & (PACE_MEMBERS - 1);
    if (lane->batch.member[slot] == at && lane->batch.count[slot] > 0) lane->batch.count[slot]--;
    __atomic_store_n(&lane->room, lesser(lane->room + pace_estimate(pace, at), lane->limit - lane->settled), __ATOMIC_RELAXED);
    __atomic_store_n(&lane->launches, lane->launches - 1, __ATOMIC_RELAXED);
}

bool pace_mark_due(const struct pace *pace, const struct pace_lane *lane, uint32_t at) {
    return !pace_known(pace, at) || lane->room - pace_estimate(pace, at) < 0;
}

// Whether the stream was busy from the mark before to now, in which the batch was launched: it had not reached that mark yet,
// or the batch was launched on an empty queue in less time than it takes.
static bool busy_throughout(const struct pace_lane *lane, int64_t estimate, uint64_t now) {
    const struct pace_mark *before = &lane->marks[(lane->tail - 1) % PACE_MARKS];
    if (lane->tail == 0) return false;
    if (lane->head != lane->tail && !before->start) return true;
    return before->start && (int64_t)(now - before->recorded) < estimate;
}

uint32_t pace_mark(struct pace *pace, struct pace_lane *lane, uint64_t now, bool start) {
    struct pace_mark *mark = &lane->marks[lane->tail % PACE_MARKS];
    int64_t estimate = start ? 0 : lane->limit - lane->room;
    *mark = (struct pace_mark){.estimate = estimate, .recorded = now, .settled = start ? 0 : lane->settled,
                               .start = start, .others = (uint16_t)lane->others,
                               .exact = !start && lane->settled == 0 && busy_throughout(lane, estimate, now)};
    if (lane->head == lane->tail) lane->running_since = now;
    if (!start) {
        mark->batch = lane->batch;
        new_batch(pace, lane);
    }
    pace->marked += left_of(mark);
    return lane->tail++ % PACE_MARKS;
}

void pace_unmark(struct pace *pace, struct pace_lane *lane) {
    pace->marked -= left_of(&lane->marks[--lane->tail % PACE_MARKS]);
}

// Moves an estimate towards a sample; an inexact one is only an upper bound.
static void learn_one(struct pace *pace, uint32_t at, int64_t sample, bool exact) {
    struct pace_function *function = &pace->functions[at % PACE_FUNCTIONS];
    int64_t estimate = function->estimate;
    sample = lesser(greater(sample, LEAST_ESTIMATE), MOST_ESTIMATE);
    if (function->samples == 0) estimate = exact ? sample : lesser(sample, PACE_UNKNOWN);
    else if (sample < estimate / 2 || (exact && sample > 2 * estimate)) estimate += (sample - estimate) / 2;
    else if (sample < estimate || exact) estimate += (sample - estimate) / 4;
    function->samples++;
    __atomic_store_n(&function->estimate, (uint32_t)greater(estimate, LEAST_ESTIMATE), __ATOMIC_RELAXED);
}

static void learn(struct pace *pace, const struct pace_mark *mark, int64_t elapsed) {
    uint32_t members = 0, launches = 0, only = 0;
    for (uint32_t i = 0; i < PACE_MEMBERS; i++) {
        if (mark->batch.count[i] == 0) continue;
        members++;
        only = i;
        launches += mark->batch.count[i];
    }
    if (members == 1 && mark->others == 0) {
        learn_one(pace, mark->batch.member[only], elapsed / launches, mark->exact);
        if (mark->exact && elapsed / launches > (int64_t)pace->longest) pace->longest = (uint64_t)(elapsed / launches);
        return;
    }
    if (mark->estimate <= 0) return;
    int64_t thousandths = lesser(greater(elapsed * 1000 / mark->estimate, 500), 2000);
    for (uint32_t i = 0; i < PACE_MEMBERS; i++) {
        uint32_t at = mark->batch.member[i];
        if (mark->batch.count[i] == 0 || !pace_known(pace, at)) continue;
        learn_one(pace, at, pace_estimate(pace, at) * thousandths / 1000, mark->exact);
    }
}

static void learn_concurrency(struct pace *pace, int64_t estimated, int64_t measured) {
    pace->estimated += estimated;
    pace->measured += measured;
    if (pace->measured < LEARN_CONCURRENCY) return;
    int64_t now = lesser(greater(pace->estimated * 1000 / pace->measured, 1000), MOST_CONCURRENCY);
    pace->concurrency = (pace->concurrency + now) / 2;
    pace->estimated = pace->measured = 0;
}

// Counts a stretch of the GPU's time, but for what of it another lane's was counted already.
static int64_t count_time(struct pace *pace, uint64_t from, uint64_t to) {
    if (from < pace->busy_until) from = pace->busy_until;
    if (to <= from) return 0;
    pace->busy_until = to;
    pace->gpu_time += to - from;
    return (int64_t)(to - from);
}

void pace_reached(struct pace *pace, struct pace_lane *lane, uint64_t elapsed, uint64_t now) {
    const struct pace_mark *mark = &lane->marks[lane->head % PACE_MARKS];
    bool first = lane->head == 0;
    lane->head++;
    lane->running_since = now;
    pace->done++;
    pace->marked -= left_of(mark);
    uint64_t end = first || mark->start ? mark->recorded : lane->position + elapsed;
    if (first && !mark->start) end = now;
    if (end > now) end = now;
    lane->position = end;
    if (mark->start) return;
    int64_t busy = mark->exact ? (int64_t)elapsed : lesser(first ? INT64_MAX : (int64_t)elapsed, left_of(mark));
    int64_t counted = count_time(pace, end - (uint64_t)busy, end);
    if (first) return;
    learn(pace, mark, (int64_t)elapsed);
    if (mark->exact) learn_concurrency(pace, mark->estimate, counted);
}

bool pace_look(struct pace *pace, struct pace_lane *lane, bool asked, bool empty, uint64_t now) {
    int64_t pending = pace_pending(lane);
    if (pending <= 0) return true;
    bool same = lane->looked == pending;
    if (!same) {
        lane->looked = pending;
        lane->looked_at = now;
        return false;
    }
    // A stream that cannot be asked is given the time that its work is thought to take.
    if (!(asked ? empty : (int64_t)(now - lane->looked_at) > pending)) return false;
    count_time(pace, now - (uint64_t)pending, now);
    lane->settled += pending;
    lane->looked = 0;
    return true;
}

int64_t pace_ahead(const struct pace *pace, uint64_t now) {
    int64_t sum = pace->marked, progress = 0;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < pace->lanes_used; i++) {
        const struct pace_lane *lane = &pace->lanes[i];
        if (lane->stream == 0) continue;
        sum += greater(pace_pending(lane), 0);
        const struct pace_mark *head = &lane->marks[lane->head % PACE_MARKS];
        if (lane->head == lane->tail || head->recorded >= oldest) continue;
        oldest = head->recorded;
        progress = lesser((int64_t)(now - lane->running_since), left_of(head));
    }
    return (sum - progress) * 1000 / pace->concurrency;
}

bool pace_must_wait(const struct pace *pace, int64_t ahead) { return ahead > PACE_MOST_AHEAD && pace->done != pace->bound_off; }

void pace_give_up(struct pace *pace) { pace->bound_off = pace->done; }

uint64_t pace_self_open(struct pace_self *self, uint64_t now, uint32_t rate) {
    uint64_t window = now / PACE_WINDOW;
    int64_t grant = PACE_WINDOW * (int64_t)(rate > 10000 ? 10000 : rate) / 10000;
    if (window != self->window) {
        uint64_t passed = self->window == 0 || window - self->window > 1000000 ? 1000000 : window - self->window;
        self->level = lesser(self->level + (int64_t)passed * grant, grant);
        self->window = window;
    }
    if (rate >= 10000) return pace_next_window(now);
    return self->level > 0 ? now + (uint64_t)self->level : 0;
}

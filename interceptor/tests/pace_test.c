// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of pacing, with a clock and a GPU that are only numbers.

#include "pace.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define US 1000ull
#define MS 1000000ull

// A GPU that runs launches of each stream one after another, and streams at the same time up to `width`.
struct gpu {
    struct pace pace;
    uint64_t now;
    uint64_t stream_end[8];
    uint64_t events[PACE_LANES][PACE_MARKS]; // when each is reached
    uint64_t last[PACE_LANES];
    unsigned events_recorded;
    int owner;
};

static struct gpu *new_gpu(void) {
    struct gpu *gpu = calloc(1, sizeof *gpu);
    gpu->now = 1000 * MS;
    pace_begin(&gpu->pace);
    return gpu;
}

static void record(struct gpu *gpu, struct pace_lane *lane, unsigned stream, bool start) {
    uint32_t mark = pace_mark(&gpu->pace, lane, gpu->now, start);
    uint64_t end = gpu->stream_end[stream];
    gpu->events[lane - gpu->pace.lanes][mark] = end > gpu->now ? end : gpu->now;
    gpu->events_recorded++;
}

static void poll(struct gpu *gpu) {
    for (uint32_t i = 0; i < gpu->pace.lanes_used; i++) {
        struct pace_lane *lane = &gpu->pace.lanes[i];
        while (lane->head != lane->tail) {
            uint64_t at = gpu->events[i][lane->head % PACE_MARKS];
            if (at > gpu->now) break;
            uint64_t elapsed = lane->head == 0 ? 0 : at - gpu->last[i];
            gpu->last[i] = at;
            pace_reached(&gpu->pace, lane, elapsed, gpu->now);
        }
    }
}

// One launch, as the slow path makes it; the host takes 4 us for each. Says whether it passed without an event.
static bool launch(struct gpu *gpu, unsigned stream, uint64_t key, uint64_t takes) {
    struct pace_lane *lane = pace_lane_of(&gpu->pace, &gpu->owner, NULL, 100 + stream);
    bool fast = pace_pass(lane, gpu->pace.functions, key), mark = false;
    if (!fast) {
        poll(gpu);
        while (pace_must_wait(&gpu->pace, pace_ahead(&gpu->pace, gpu->now))) {
            gpu->now += 50 * US;
            poll(gpu);
        }
        uint32_t at = pace_function_at(&gpu->pace, key);
        mark = pace_mark_due(&gpu->pace, lane, at);
        if (!pace_known(&gpu->pace, at) && pace_pending(lane) > 0) record(gpu, lane, stream, false);
        if (lane->head == lane->tail && lane->limit == lane->room) record(gpu, lane, stream, true);
        pace_add(&gpu->pace, lane, at);
    }
    gpu->now += 4 * US;
    uint64_t start = gpu->stream_end[stream] > gpu->now ? gpu->stream_end[stream] : gpu->now;
    gpu->stream_end[stream] = start + takes;
    if (mark) record(gpu, lane, stream, false);
    return fast;
}

static uint64_t queued(const struct gpu *gpu, unsigned stream) {
    return gpu->stream_end[stream] > gpu->now ? gpu->stream_end[stream] - gpu->now : 0;
}

static void durations_are_learned(void) {
    const struct {
        const char *name;
        uint64_t takes;
        unsigned launches;
    } tests[] = {{"20 us", 20 * US, 2000}, {"500 us", 500 * US, 300}, {"20 ms", 20 * MS, 40}};
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        struct gpu *gpu = new_gpu();
        uint64_t most = 0;
        for (unsigned n = 0; n < tests[i].launches; n++) {
            launch(gpu, 0, 7000, tests[i].takes);
            if (n > tests[i].launches / 2 && queued(gpu, 0) > most) most = queued(gpu, 0);
        }
        int64_t estimate = pace_estimate(&gpu->pace, pace_function_at(&gpu->pace, 7000));
        int64_t off = estimate - (int64_t)tests[i].takes;
        CHECK(llabs(off) * 10 < (int64_t)tests[i].takes, "%s: learned %ld ns", tests[i].name, (long)estimate);
        uint64_t bound = (uint64_t)PACE_MOST_AHEAD + (uint64_t)PACE_BATCH + tests[i].takes + 200 * US;
        CHECK(most <= bound, "%s: %lu us were queued, want at most %lu", tests[i].name, (unsigned long)(most / US), (unsigned long)(bound / US));
        uint64_t work = tests[i].takes * tests[i].launches;
        CHECK(gpu->events_recorded <= 3 * (work / MS + 1) + 20, "%s: %u events for %lu ms", tests[i].name, gpu->events_recorded, (unsigned long)(work / MS));
        free(gpu);
    }
}

static void the_gpu_is_kept_busy(void) {
    struct gpu *gpu = new_gpu();
    for (int n = 0; n < 200; n++) launch(gpu, 0, 7000, 500 * US);
    uint64_t before = gpu->stream_end[0];
    for (int n = 0; n < 1000; n++) launch(gpu, 0, 7000, 500 * US);
    CHECK(gpu->stream_end[0] - before == 1000 * 500 * US, "idle for %lu us", (unsigned long)((gpu->stream_end[0] - before) / US - 500000));
    free(gpu);
}

static void short_launches_take_the_fast_path(void) {
    struct gpu *gpu = new_gpu();
    int fast = 0;
    for (int n = 0; n < 500; n++) launch(gpu, 0, 7000, 20 * US);
    for (int n = 0; n < 1000; n++) fast += launch(gpu, 0, 7000, 20 * US);
    CHECK(fast >= 960, "only %d of 1000 launches passed", fast);
    free(gpu);
}

static void gpu_time_is_counted_once(void) {
    struct gpu *gpu = new_gpu();
    uint64_t work = 0;
    for (int n = 0; n < 400; n++) {
        launch(gpu, 0, 7000, 500 * US);
        work += 500 * US;
    }
    gpu->now = gpu->stream_end[0] + MS;
    poll(gpu);
    int64_t off = (int64_t)gpu->pace.gpu_time - (int64_t)work;
    CHECK(llabs(off) < (int64_t)work / 50, "counted %lu of %lu us", (unsigned long)(gpu->pace.gpu_time / US), (unsigned long)(work / US));
    // Four streams at once: the time, not the sum of the work.
    struct gpu *wide = new_gpu();
    uint64_t began = wide->now;
    for (int n = 0; n < 1600; n++) launch(wide, (unsigned)n % 4, 7000, 500 * US);
    wide->now = wide->stream_end[3] + 2 * MS;
    poll(wide);
    uint64_t passed = wide->now - began;
    CHECK(wide->pace.gpu_time <= passed && wide->pace.gpu_time > passed * 9 / 10, "counted %lu of %lu us",
          (unsigned long)(wide->pace.gpu_time / US), (unsigned long)(passed / US));
    CHECK(wide->pace.concurrency > 3000, "concurrency %ld", (long)wide->pace.concurrency);
    free(gpu);
    free(wide);
}

static void pauses_are_no_work(void) {
    struct gpu *gpu = new_gpu();
    uint64_t work = 0;
    for (int n = 0; n < 600; n++) {
        launch(gpu, 0, 7000, 100 * US);
        work += 100 * US;
        // The program waits for it, and then does something else.
        gpu->now = gpu->stream_end[0] + 5 * MS;
    }
    poll(gpu);
    int64_t estimate = pace_estimate(&gpu->pace, pace_function_at(&gpu->pace, 7000));
    CHECK(estimate < 130000, "learned %ld ns of 100000", (long)estimate);
    CHECK(gpu->pace.gpu_time < work * 3 / 2, "counted %lu of %lu us", (unsigned long)(gpu->pace.gpu_time / US), (unsigned long)(work / US));
    free(gpu);
}

static void mixed_batches_follow_what_they_take(void) {
    struct gpu *gpu = new_gpu();
    for (int n = 0; n < 2000; n++) launch(gpu, 0, 7000 + (uint64_t)(n % 4), (uint64_t)(n % 4 + 1) * 20 * US);
    // They become twice as long.
    for (int n = 0; n < 8000; n++) launch(gpu, 0, 7000 + (uint64_t)(n % 4), (uint64_t)(n % 4 + 1) * 40 * US);
    int64_t sum = 0;
    for (uint64_t f = 0; f < 4; f++) sum += pace_estimate(&gpu->pace, pace_function_at(&gpu->pace, 7000 + f));
    CHECK(sum > 340000 && sum < 460000, "the four take %ld ns, want 400000", (long)sum);
    free(gpu);
}

static void a_wait_is_given_up_until_something_is_done(void) {
    struct gpu *gpu = new_gpu();
    launch(gpu, 0, 7000, 1000 * MS);
    launch(gpu, 0, 7000, 1000 * MS);
    launch(gpu, 0, 7000, 1000 * MS);
    struct pace *pace = &gpu->pace;
    gpu->now += 10 * MS;
    launch(gpu, 1, 7001, 10 * US);
    pace->marked += 10 * (int64_t)MS;
    CHECK(pace_must_wait(pace, pace_ahead(pace, gpu->now)), "nothing is ahead");
    pace_give_up(pace);
    CHECK(!pace_must_wait(pace, pace_ahead(pace, gpu->now)), "the bound still holds");
    pace->done++;
    CHECK(pace_must_wait(pace, pace_ahead(pace, gpu->now)), "the bound does not hold again");
    CHECK(pace_patience(1) == PACE_LEAST_WAIT && pace_patience(PACE_LEAST_WAIT) == 2 * PACE_LEAST_WAIT, "the patience is another");
    free(gpu);
}

static void pending_work_needs_two_looks(void) {
    struct gpu *gpu = new_gpu();
    for (int n = 0; n < 100; n++) launch(gpu, 0, 7000, 20 * US);
    gpu->now += 50 * MS;
    poll(gpu);
    struct pace_lane *lane = pace_lane_of(&gpu->pace, &gpu->owner, NULL, 100);
    while (pace_pending(lane) <= 0) launch(gpu, 0, 7000, 20 * US);
    gpu->now += 50 * MS;
    poll(gpu);
    CHECK(pace_busy(&gpu->pace), "nothing is pending");
    CHECK(!pace_look(&gpu->pace, lane, true, true, gpu->now), "one look was enough");
    CHECK(!pace_look(&gpu->pace, lane, true, false, gpu->now), "a stream that is not empty is done");
    CHECK(pace_look(&gpu->pace, lane, true, true, gpu->now) && !pace_busy(&gpu->pace), "two looks were not enough");
    // A stream that cannot be asked is given its time.
    while (pace_pending(lane) <= 0) launch(gpu, 0, 7000, 20 * US);
    pace_look(&gpu->pace, lane, false, false, gpu->now);
    CHECK(!pace_look(&gpu->pace, lane, false, false, gpu->now), "no time was given");
    CHECK(pace_look(&gpu->pace, lane, false, false, gpu->now + 2 * MS), "too much time was given");
    free(gpu);
}

static void lanes_are_used_again(void) {
    struct gpu *gpu = new_gpu();
    uint32_t launches = 0;
    for (uint64_t s = 0; s < 3 * PACE_LANES; s++) {
        struct pace_lane *lane = pace_lane_of(&gpu->pace, &gpu->owner, NULL, 1000 + s);
        CHECK(lane != NULL, "no lane for stream %lu", (unsigned long)s);
        if (lane == NULL) break;
        lane->launches++;
        launches++;
    }
    CHECK(pace_launches(&gpu->pace) == launches, "%u launches, want %u", pace_launches(&gpu->pace), launches);
    for (uint32_t i = 0; i < PACE_LANES; i++) pace_mark(&gpu->pace, &gpu->pace.lanes[i], gpu->now, true);
    CHECK(pace_lane_of(&gpu->pace, &gpu->owner, NULL, 1) == NULL, "a busy lane was taken");
    free(gpu);
}

static void windows_hold_the_rate(void) {
    const struct {
        uint32_t rate;
        uint64_t kernel, every; // every: one kernel in so much time; 0: as many as pass
        double least, most;     // percent
    } tests[] = {
        {3000, 500 * US, 0, 29.5, 30.5}, {1000, 20 * US, 0, 9.5, 10.5},   {6000, 20 * MS, 0, 58, 62}, {100, 500 * US, 0, 0.8, 1.2},
        {10000, 500 * US, 0, 99, 100.1}, {3000, 500 * US, 5 * MS, 9, 10.1},
    };
    for (unsigned i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        struct pace_self self = {0};
        uint64_t now = 12345 * MS, end = now + 10000 * MS, used = 0;
        while (now < end) {
            uint64_t until = pace_self_open(&self, now, tests[i].rate), slice = 0;
            if (until == 0) {
                now = pace_next_window(now);
                continue;
            }
            do {
                slice += tests[i].kernel;
            } while (now + slice < until && tests[i].every == 0);
            pace_self_charge(&self, slice);
            now += tests[i].every > slice ? tests[i].every : slice;
            used += slice;
        }
        double part = 100.0 * (double)used / 10000.0 / (double)MS;
        CHECK(part >= tests[i].least && part <= tests[i].most, "rate %u: %.2f %%", tests[i].rate, part);
    }
}

int main(void) {
    durations_are_learned();
    the_gpu_is_kept_busy();
    short_launches_take_the_fast_path();
    gpu_time_is_counted_once();
    pauses_are_no_work();
    mixed_batches_follow_what_they_take();
    a_wait_is_given_up_until_something_is_done();
    pending_work_needs_two_looks();
    lanes_are_used_again();
    windows_hold_the_rate();
    return finish("pace");
}

// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <stddef.h>
#include <time.h>

#define PEERS_NS 100000 // how often a process that waits for its peers looks
#define FINISHED_BITS 48
#define FINISHED_MASK ((1ull << FINISHED_BITS) - 1)
#define BUFFER_BITS 16
#define BUFFER_MASK ((1ull << BUFFER_BITS) - 1)

uint64_t fg_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

// A run of the state into the future. The pieces' own records are written only where the run is to be published.
struct simulation {
    struct fg_engine *engine;
    struct fg_moment *moment;
    int records;
    uint32_t active[FG_LANES]; // lanes that have their GPU
    uint32_t actives;
    uint64_t arrival; // the next piece that will come
};

static struct fg_piece *piece_of(struct fg_engine *engine, uint32_t lane, uint64_t number) {
    return &engine->pieces[lane][number % FG_DEPTH];
}

// Whoever comes first writes when a piece was done. A looker that was stopped for long finds another number in its place.
static void record(const struct simulation *s, uint32_t lane, uint64_t number) {
    uint64_t *word = &piece_of(s->engine, lane, number)->finished, unwritten = number << FINISHED_BITS;
    uint64_t since = s->moment->clock - s->engine->epoch;
    uint64_t written = unwritten | ((since > 0 ? since : 1) & FINISHED_MASK);
    if (s->records) __atomic_compare_exchange_n(word, &unwritten, written, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void finish(const struct simulation *s, uint32_t lane) {
    struct fg_run *run = &s->moment->runs[lane];
    record(s, lane, run->head);
    run->head++;
    run->begun = run->met = 0;
}

// A new owner begins with nothing queued; what one that is no more has queued is dropped.
static int own(const struct simulation *s, uint32_t lane) {
    const struct fg_lane *of = &s->engine->lane[lane];
    struct fg_run *run = &s->moment->runs[lane];
    uint64_t life = load(&of->life);
    if (run->life != life) *run = (struct fg_run){.life = life, .head = of->base};
    if (load(&of->gone) != life) return life > 0;
    run->head = load(&of->tail);
    run->begun = run->met = 0;
    return 0;
}

static int waits(const struct simulation *s, const struct fg_piece *piece) {
    return piece->after != 0 && s->moment->runs[piece->after_lane].head < piece->after &&
           load(&s->engine->lane[piece->after_lane].gone) != s->moment->runs[piece->after_lane].life;
}

// Lets the lane's first piece begin if it can, and passes those that take no time. Whether anything changed.
static int begin(struct simulation *s, uint32_t lane) {
    struct fg_run *run = &s->moment->runs[lane];
    int changed = 0;
    if (!own(s, lane)) return 0;
    while (run->head < load(&s->engine->lane[lane].tail) && !run->begun) {
        const struct fg_piece *piece = piece_of(s->engine, lane, run->head);
        if (piece->arrival > s->moment->clock) {
            if (piece->arrival < s->arrival) s->arrival = piece->arrival;
            break;
        }
        if (waits(s, piece)) break;
        run->begun = 1;
        run->met = piece->meeting == 0;
        run->left = piece->ns;
        changed = 1;
        if (run->met && run->left == 0) finish(s, lane);
    }
    return changed;
}

// Lets those pieces of a meeting go on whose parties are all there.
static int meet(const struct simulation *s, uint32_t lane) {
    uint32_t there = 0;
    struct fg_run *runs = s->moment->runs;
    const struct fg_piece *piece = piece_of(s->engine, lane, runs[lane].head);
    for (int counted = 0; counted < 2; counted++) {
        for (uint32_t l = 0; l < s->moment->lanes; l++) {
            if (!runs[l].begun || runs[l].met || piece_of(s->engine, l, runs[l].head)->meeting != piece->meeting) continue;
            there += !counted;
            runs[l].met = (uint32_t)counted;
        }
        if (there < piece->parties) return 0;
    }
    return 1;
}

// Brings every lane to where it stands at this moment, before time goes on.
static void settle(struct simulation *s) {
    for (int changed = 1; changed;) {
        changed = 0;
        s->arrival = UINT64_MAX;
        s->actives = 0;
        for (uint32_t lane = 0; lane < s->moment->lanes; lane++) {
            changed |= begin(s, lane);
            const struct fg_run *run = &s->moment->runs[lane];
            if (run->begun) s->active[s->actives++] = lane;
            if (!run->begun || run->met) continue;
            changed |= meet(s, lane);
        }
        for (uint32_t i = 0; i < s->actives; i++) {
            const struct fg_run *run = &s->moment->runs[s->active[i]];
            if (!run->begun || !run->met || run->left > 0) continue;
            finish(s, s->active[i]);
            changed = 1;
        }
    }
}

static int together(const struct fg_engine *engine, uint32_t a, uint32_t b) {
    const struct fg_lane *one = &engine->lane[a], *other = &engine->lane[b];
    return one->gpu == other->gpu && one->gi == other->gi && one->ci == other->ci;
}

// With how many, itself included, a lane shares what it runs on.
static uint64_t sharers(const struct simulation *s, uint32_t lane) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < s->actives; i++) count += (uint64_t)together(s->engine, s->active[i], lane);
    return count;
}

// Lets time go on to the next thing that happens, at most to `until`.
static void step(struct simulation *s, uint64_t until) {
    uint64_t shared[FG_LANES], passes = (until < s->arrival ? until : s->arrival) - s->moment->clock;
    for (uint32_t i = 0; i < s->actives; i++) {
        const struct fg_run *run = &s->moment->runs[s->active[i]];
        shared[i] = sharers(s, s->active[i]);
        if (run->met && run->left != FG_ENDLESS && run->left * shared[i] < passes) passes = run->left * shared[i];
    }
    uint64_t busy = 0; // a bit for each GPU
    s->moment->clock += passes;
    for (uint32_t i = 0; i < s->actives; i++) {
        struct fg_run *run = &s->moment->runs[s->active[i]];
        uint64_t part = passes / shared[i];
        run->busy += part;
        if (run->met && run->left != FG_ENDLESS) run->left -= part;
        busy |= 1ull << s->engine->lane[s->active[i]].gpu;
    }
    for (; busy != 0; busy &= busy - 1) s->moment->busy[__builtin_ctzll(busy)] += passes;
}

static void run_until(struct simulation *s, uint64_t until) {
    uint32_t lanes = __atomic_load_n(&s->engine->lanes, __ATOMIC_ACQUIRE);
    for (; s->moment->lanes < lanes; s->moment->lanes++) s->moment->runs[s->moment->lanes] = (struct fg_run){0};
    for (settle(s); s->moment->clock < until; settle(s)) step(s, until);
}

// Copies the state that holds; the word that named it is returned.
static uint64_t copy_current(const struct fg_engine *engine, struct fg_moment *to) {
    for (;;) {
        uint64_t current = load(&engine->current);
        const struct fg_moment *from = &engine->buffers[current & BUFFER_MASK];
        uint32_t lanes = from->lanes <= FG_LANES ? from->lanes : FG_LANES; // it may be written over just now
        size_t words = (offsetof(struct fg_moment, runs) + lanes * sizeof(struct fg_run)) / sizeof(uint64_t);
        // Each load comes before those after it, so that the last tells whether all were good.
        for (size_t i = 0; i < words; i++) ((uint64_t *)to)[i] = load((const uint64_t *)from + i);
        if (load(&engine->current) == current && to->lanes == lanes) return current;
    }
}

void fg_look(struct fg_db *db, struct fg_moment *moment) {
    copy_current(db->engine, moment);
    struct simulation s = {.engine = db->engine, .moment = moment};
    run_until(&s, fg_now());
}

// Finds owners that were killed: the kernel has dropped their locks.
static void bury(struct fg_db *db, uint32_t self) {
    enum { EVERY_NS = 5000000 };
    struct fg_engine *engine = db->engine;
    uint64_t now = fg_now();
    if (now - db->buried < EVERY_NS) return;
    db->buried = now;
    for (uint32_t lane = 0; lane < __atomic_load_n(&engine->lanes, __ATOMIC_ACQUIRE); lane++) {
        struct fg_lane *of = &engine->lane[lane];
        uint64_t life = load(&of->life);
        uint32_t slot = fg_read(&of->slot);
        if (lane == self || load(&of->gone) == life || fg_owned(db, slot) || fg_slot_held(db, (int)slot)) continue;
        if (load(&of->life) == life && fg_read(&of->slot) == slot) store(&of->gone, life);
    }
}

void fg_advance(struct fg_db *db, uint32_t self) {
    struct fg_engine *engine = db->engine;
    bury(db, self);
    for (uint64_t until = fg_now();;) {
        uint64_t buffer = 2ull * self;
        buffer += (load(&engine->current) & BUFFER_MASK) == buffer;
        struct fg_moment *mine = &engine->buffers[buffer];
        uint64_t current = copy_current(engine, mine);
        if (mine->clock >= until) return;
        struct simulation s = {.engine = engine, .moment = mine, .records = 1};
        run_until(&s, until);
        uint64_t next = ((current >> BUFFER_BITS) + 1) << BUFFER_BITS | buffer;
        if (__atomic_compare_exchange_n(&engine->current, &current, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    }
}

int fg_done(struct fg_db *db, uint32_t lane, uint64_t piece) {
    const struct fg_engine *engine = db->engine;
    if (piece == 0) return 1;
    for (;;) {
        uint64_t current = load(&engine->current);
        const struct fg_moment *moment = &engine->buffers[current & BUFFER_MASK];
        int done = lane < moment->lanes && moment->runs[lane].life == engine->lane[lane].life && load(&moment->runs[lane].head) >= piece;
        if (load(&engine->current) == current) return done;
    }
}

uint64_t fg_finished(struct fg_db *db, uint32_t lane, uint64_t piece) {
    return db->engine->epoch + (load(&piece_of(db->engine, lane, piece - 1)->finished) & FINISHED_MASK);
}

uint64_t fg_expected(struct fg_db *db, uint32_t lane, uint64_t piece, uint64_t horizon) {
    struct fg_moment moment;
    copy_current(db->engine, &moment);
    struct simulation s = {.engine = db->engine, .moment = &moment};
    run_until(&s, moment.clock);
    while (moment.clock < horizon && moment.runs[lane].head < piece) {
        // Nobody knows when the peers come.
        if (moment.runs[lane].begun && !moment.runs[lane].met) return moment.clock + PEERS_NS;
        step(&s, horizon);
        settle(&s);
    }
    return moment.clock;
}

int fg_running(const struct fg_moment *moment, uint32_t lane) { return lane < moment->lanes && moment->runs[lane].begun; }

uint64_t fg_queue(struct fg_db *db, uint32_t lane, const struct fg_piece *piece) {
    struct fg_engine *engine = db->engine;
    uint64_t number = engine->lane[lane].tail;
    struct fg_piece *place = piece_of(engine, lane, number);
    *place = *piece;
    place->arrival = fg_now();
    store(&place->finished, number << FINISHED_BITS);
    store(&engine->lane[lane].tail, number + 1);
    return number + 1;
}

uint32_t fg_lane_take(struct fg_db *db, uint32_t slot, const struct fg_lane *of) {
    struct fg_engine *engine = db->engine;
    uint32_t lanes = fg_read(&engine->lanes), free = 0;
    while (free < lanes && engine->lane[free].gone != engine->lane[free].life) free++;
    if (free == FG_LANES) return FG_LANES;
    struct fg_lane *taken = &engine->lane[free];
    taken->gpu = of->gpu;
    taken->gi = of->gi;
    taken->ci = of->ci;
    taken->base = taken->tail;
    fg_publish(&taken->slot, slot);
    store(&taken->life, taken->life + 1);
    if (free == lanes) fg_publish(&engine->lanes, lanes + 1);
    return free;
}

void fg_lane_drop(struct fg_db *db, uint32_t lane) {
    if (lane < FG_LANES) store(&db->engine->lane[lane].gone, db->engine->lane[lane].life);
}

// SPDX-License-Identifier: Apache-2.0
//
// Slices as the gate's words, the ledger and the bell tell of them: a process between an arbiter and a GPU that are played here.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "helper.h"
#include "pacer.h"

#define MS 1000000ull
#define FOREVER UINT64_MAX

static unsigned helper_calls;

// In the stead of the thread.
void helper_start(struct process *process) { (void)process; }
void helper_call(struct process *process) {
    (void)process;
    helper_calls++;
}

struct scene {
    struct process process;
    struct pacer pacer;
    struct share share;
    struct sluice_limits limits;
    struct sluice_heartbeat heartbeat;
    struct pace_lane *lane;
    uint64_t now;
    int bell;
    char directory[64];
};

static struct scene *begin(uint32_t compute_share) {
    struct scene *s = calloc(1, sizeof *s);
    char path[96];
    const char *reason = "";
    snprintf(s->directory, sizeof s->directory, "/tmp/sluice-gate-XXXXXX");
    if (mkdtemp(s->directory) == NULL) exit(2);
    snprintf(path, sizeof path, "%s/usage", s->directory);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, SLUICE_USAGE_SIZE) != 0) exit(2);
    close(fd);
    if (!ledger_open(&s->share.ledger, path, &reason) || !ledger_join(&s->share.ledger, 0, &reason)) exit(2);
    snprintf(path, sizeof path, "%s/bell", s->directory);
    if (mkfifo(path, 0600) != 0) exit(2);
    s->bell = open(path, O_RDONLY | O_NONBLOCK);
    snprintf(s->share.directory, sizeof s->share.directory, "%s", s->directory);
    s->limits.version = SLUICE_ABI_VERSION;
    s->limits.enforce = SLUICE_ENFORCE_COMPUTE;
    s->limits.compute_share = compute_share;
    s->share.limits = &s->limits;
    s->process.heartbeat = &s->heartbeat;
    s->pacer.process = &s->process;
    s->pacer.self_word = SLUICE_GATE_CLOSED;
    s->pacer.word = &s->pacer.self_word;
    s->pacer.admitted = PACER_NOT_ADMITTED;
    s->pacer.gates[0].share = &s->share;
    s->pacer.gate_count = 1;
    s->now = 1000 * PACE_WINDOW;
    s->heartbeat.now = s->now;
    pace_begin(&s->pacer.pace);
    s->lane = pace_lane_of(&s->pacer.pace, s, NULL, 1);
    return s;
}

static void end(struct scene *s) {
    char path[96];
    ledger_close(&s->share.ledger);
    close(s->bell);
    if (s->pacer.gates[0].bell.fd > 0) close(s->pacer.gates[0].bell.fd);
    snprintf(path, sizeof path, "%s/usage", s->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/bell", s->directory);
    unlink(path);
    rmdir(s->directory);
    free(s);
}

static void gate(struct scene *s, uint32_t sequence, enum sluice_gate_state state, uint64_t until) {
    s->limits.gate.open_until = until;
    s->limits.gate.word = sequence << 3 | state;
}

static bool admit(struct scene *s) {
    struct pacer_place place;
    return pacer_admit(&s->pacer, s->now, &place);
}

// Work that is launched, and that is done.
static void launch(struct scene *s) { pace_add(&s->pacer.pace, s->lane, pace_function_at(&s->pacer.pace, 7000)); }
static void done(struct scene *s) { s->lane->settled += pace_pending(s->lane); }

static uint64_t said(const struct scene *s) { return s->share.ledger.page->slots[s->share.ledger.slot].pace; }

static unsigned rung(const struct scene *s) {
    char bytes[64];
    ssize_t got = read(s->bell, bytes, sizeof bytes);
    return got > 0 ? (unsigned)got : 0;
}

static void check_said(const struct scene *s, const char *when, uint32_t launches, uint32_t sequence, uint32_t bits) {
    uint64_t want = (uint64_t)launches << 32 | sequence << 3 | bits;
    CHECK(said(s) == want, "%s: it says {%u, %u, %u}, want {%u, %u, %u}", when, SLUICE_PACE_LAUNCHES(said(s)),
          SLUICE_PACE_SEQUENCE(said(s)), SLUICE_PACE_BITS(said(s)), launches, sequence, bits);
}

static void an_open_gate_admits(void) {
    struct scene *s = begin(3000);
    gate(s, 4, SLUICE_GATE_CLOSED, 0);
    CHECK(!admit(s), "a shut gate admits");
    gate_want(&s->pacer.gates[0]);
    gate_want(&s->pacer.gates[0]);
    check_said(s, "waiting", 0, 4, SLUICE_PACE_WANTS);
    CHECK(rung(s) == 1, "the bell was not rung once");
    gate(s, 5, SLUICE_GATE_OPEN, s->now + 20 * MS);
    CHECK(admit(s) && *s->pacer.word == s->pacer.admitted, "an open gate does not admit");
    check_said(s, "admitted", 0, 5, SLUICE_PACE_RUNS);
    CHECK(s->share.ledger.page->slices == 1, "%lu slices", (unsigned long)s->share.ledger.page->slices);
    launch(s);
    launch(s);
    s->now += 20 * MS;
    CHECK(!admit(s) && *s->pacer.word != s->pacer.admitted, "it is admitted past the end");
    check_said(s, "at the end", 2, 5, SLUICE_PACE_RUNS);
    CHECK(rung(s) == 0, "the bell was rung without a reason");
    done(s);
    s->pacer.waiters = 1;
    pacer_drained(&s->pacer, s->now);
    check_said(s, "drained", 2, 5, SLUICE_PACE_DRAINED | SLUICE_PACE_WANTS);
    CHECK(rung(s) == 1, "DRAINED did not ring");
    end(s);
}

static void whoever_has_drained_is_not_admitted_again(void) {
    struct scene *s = begin(3000);
    gate(s, 7, SLUICE_GATE_OPEN, FOREVER);
    CHECK(admit(s), "an open gate does not admit");
    pacer_end_slice(&s->pacer, s->now);
    pacer_drained(&s->pacer, s->now);
    CHECK(!admit(s), "the same slice admits again");
    gate_want(&s->pacer.gates[0]);
    check_said(s, "waiting again", 0, 7, SLUICE_PACE_DRAINED | SLUICE_PACE_WANTS);
    gate(s, 8, SLUICE_GATE_OPEN, FOREVER);
    CHECK(admit(s), "the next slice does not admit");
    end(s);
}

static void every_way_of_shutting_ends_a_slice(void) {
    const enum sluice_gate_state states[] = {SLUICE_GATE_CLOSED, SLUICE_GATE_CLOSING, SLUICE_GATE_OVERRUN, SLUICE_GATE_NONE};
    for (unsigned i = 0; i < sizeof states / sizeof states[0]; i++) {
        struct scene *s = begin(3000);
        gate(s, 7, SLUICE_GATE_OPEN, FOREVER);
        CHECK(admit(s) && pacer_still_open(&s->pacer, s->now), "an open gate does not admit");
        gate(s, 7, states[i], FOREVER);
        CHECK(!pacer_still_open(&s->pacer, s->now), "state %u leaves the slice open", states[i]);
        pacer_end_slice(&s->pacer, s->now);
        gate_count_overrun(s->pacer.by);
        gate_count_overrun(s->pacer.by);
        uint64_t want = states[i] == SLUICE_GATE_OVERRUN;
        CHECK(s->share.ledger.page->overruns == want, "%lu overruns, want %lu", (unsigned long)s->share.ledger.page->overruns, (unsigned long)want);
        end(s);
    }
}

static void without_a_lease_it_paces_itself(void) {
    struct scene *s = begin(3000);
    gate(s, 7, SLUICE_GATE_OPEN, FOREVER);
    CHECK(admit(s), "an open gate does not admit");
    launch(s);
    s->now += SLUICE_LEASE_NS + 1;
    CHECK(!pacer_still_open(&s->pacer, s->now), "an old lease keeps the gate open");
    pacer_end_slice(&s->pacer, s->now);
    done(s);
    pacer_drained(&s->pacer, s->now);
    CHECK(admit(s) && s->pacer.by == NULL, "it does not pace itself");
    CHECK(s->pacer.open_until == s->now + 15 * MS, "30 %% of a window are %lu us", (unsigned long)(s->pacer.open_until - s->now) / 1000);
    check_said(s, "pacing itself", 0, 7, SLUICE_PACE_RUNS);
    s->now += 15 * MS;
    s->pacer.pace.gpu_time += 15 * MS;
    CHECK(!admit(s), "it is admitted beyond its part");
    pacer_drained(&s->pacer, s->now);
    CHECK(!admit(s), "a window admits twice");
    s->now = pace_next_window(s->now);
    CHECK(admit(s), "the next window does not admit");
    // An arbiter comes, and shuts all gates.
    s->heartbeat.now = s->now;
    gate(s, 7, SLUICE_GATE_CLOSED, 0);
    CHECK(!admit(s), "it goes on pacing itself beside an arbiter");
    done(s);
    pacer_drained(&s->pacer, s->now);
    check_said(s, "drained for the arbiter", 0, 7, SLUICE_PACE_DRAINED);
    CHECK(!admit(s), "a shut gate admits");
    end(s);
}

static void a_gang_may_finish_what_another_has_launched(void) {
    struct scene *s = begin(3000);
    gate(s, 7, SLUICE_GATE_OPEN, s->now + 20 * MS);
    CHECK(admit(s), "an open gate does not admit");
    launch(s);
    launch(s);
    s->now += 20 * MS;
    CHECK(!admit(s), "it is admitted past the end");
    s->limits.gate.finish = 6ull << 32 | 3;
    CHECK(!admit(s), "what another slice may finish was let pass");
    s->limits.gate.finish = 7ull << 32 | 3;
    CHECK(admit(s), "the third launch has to wait");
    launch(s);
    CHECK(!admit(s), "a fourth was let pass");
    done(s);
    pacer_drained(&s->pacer, s->now);
    rung(s);
    s->limits.gate.finish = 7ull << 32 | 4;
    CHECK(admit(s) && s->pacer.state == PACER_ENDING, "having drained, it may not finish");
    check_said(s, "finishing", 4, 7, SLUICE_PACE_RUNS);
    launch(s);
    CHECK(!admit(s), "a fifth was let pass");
    done(s);
    pacer_drained(&s->pacer, s->now);
    check_said(s, "finished", 4, 7, SLUICE_PACE_DRAINED);
    end(s);
}

static void a_gang_may_finish_a_slice_that_it_slept_through(void) {
    struct scene *s = begin(3000);
    gate(s, 7, SLUICE_GATE_OPEN, FOREVER);
    CHECK(admit(s), "an open gate does not admit");
    launch(s);
    done(s);
    pacer_end_slice(&s->pacer, s->now);
    pacer_drained(&s->pacer, s->now);
    gate(s, 8, SLUICE_GATE_OVERRUN, 0);
    CHECK(!admit(s), "it is admitted without a reason");
    s->limits.gate.finish = 8ull << 32 | 2;
    CHECK(admit(s), "it may not finish");
    check_said(s, "finishing", 1, 8, SLUICE_PACE_RUNS);
    launch(s);
    CHECK(admit(s), "its second launch has to wait");
    launch(s);
    CHECK(!admit(s), "a third was let pass");
    done(s);
    pacer_drained(&s->pacer, s->now);
    check_said(s, "finished", 2, 8, SLUICE_PACE_DRAINED);
    gate(s, 9, SLUICE_GATE_OPEN, FOREVER);
    CHECK(admit(s), "the next slice does not admit");
    end(s);
}

static void what_waits_for_a_launch_gets_it_in_the_end(void) {
    struct scene *s = begin(3000);
    gate(s, 5, SLUICE_GATE_OPEN, s->now + 20 * MS);
    CHECK(admit(s), "an open gate does not admit");
    launch(s);
    s->now += 20 * MS;
    gate(s, 5, SLUICE_GATE_OVERRUN, 0);
    CHECK(!admit(s), "it is admitted past the end");
    s->now += 150 * MS;
    CHECK(!admit(s), "it is let pass at once");
    s->now += 100 * MS;
    CHECK(admit(s), "it is never let pass");
    check_said(s, "let pass", 2, 5, SLUICE_PACE_RUNS);
    launch(s);
    CHECK(!admit(s), "another is let pass at once");
    s->now += 300 * MS;
    CHECK(!admit(s), "the times between do not grow");
    s->now += 200 * MS;
    CHECK(admit(s), "a second one is never let pass");
    end(s);
}

static void a_gang_may_finish_the_first_slice_of_all(void) {
    struct scene *s = begin(3000);
    gate(s, 0, SLUICE_GATE_OVERRUN, 0);
    CHECK(!admit(s), "it is admitted without a reason");
    gate_want(&s->pacer.gates[0]);
    s->limits.gate.finish = 3;
    CHECK(admit(s), "it may not finish");
    check_said(s, "finishing", 1, 0, SLUICE_PACE_RUNS);
    end(s);
}

static void the_share_is_divided_by_who_works(void) {
    struct scene *s = begin(3000);
    s->share.ledger.page->slots[s->share.ledger.slot].pace = 0;
    CHECK(gate_rate(&s->pacer.gates[0]) == 3000, "rate %u", gate_rate(&s->pacer.gates[0]));
    // A dead process counts for nothing.
    s->share.ledger.page->slots[5].pace = SLUICE_PACE_RUNS;
    s->share.ledger.page->slots_used = 6;
    CHECK(gate_rate(&s->pacer.gates[0]) == 3000, "with a dead process %u", gate_rate(&s->pacer.gates[0]));
    s->limits.compute_share = 0;
    CHECK(gate_rate(&s->pacer.gates[0]) == 100, "best effort %u", gate_rate(&s->pacer.gates[0]));
    s->limits.enforce = 0;
    s->now += SLUICE_LEASE_NS + 1;
    CHECK(admit(s), "a share that holds nothing has it wait");
    end(s);
}

static void a_bell_without_a_listener_kills_nobody(void) {
    struct scene *s = begin(3000);
    gate(s, 4, SLUICE_GATE_CLOSED, 0);
    gate_want(&s->pacer.gates[0]);
    close(s->bell);
    gate(s, 5, SLUICE_GATE_OPEN, s->now + MS);
    CHECK(admit(s), "an open gate does not admit");
    pacer_end_slice(&s->pacer, s->now);
    pacer_drained(&s->pacer, s->now);
    CHECK(s->pacer.gates[0].bell.fd == 0, "the bell stays open");
    char path[96];
    snprintf(path, sizeof path, "%s/bell", s->directory);
    s->bell = open(path, O_RDONLY | O_NONBLOCK);
    gate_want(&s->pacer.gates[0]);
    CHECK(rung(s) == 1, "a new listener hears nothing");
    end(s);
}

int main(void) {
    an_open_gate_admits();
    whoever_has_drained_is_not_admitted_again();
    every_way_of_shutting_ends_a_slice();
    without_a_lease_it_paces_itself();
    a_gang_may_finish_what_another_has_launched();
    a_gang_may_finish_a_slice_that_it_slept_through();
    what_waits_for_a_launch_gets_it_in_the_end();
    a_gang_may_finish_the_first_slice_of_all();
    the_share_is_divided_by_who_works();
    a_bell_without_a_listener_kills_nobody();
    CHECK(helper_calls > 0, "the helper was never called");
    return finish("gate");
}

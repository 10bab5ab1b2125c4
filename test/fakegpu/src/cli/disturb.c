// SPDX-License-Identifier: Apache-2.0
// The commands that disturb a node: faults, events, processes, resets.
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli.h"
#include "nvml/results.h"
#include "nvml_calls.h"
#include "state/mig.h"
#include "state/proc.h"

extern const char *const nv_call_names[];

static int known_call(const char *name) {
    for (int i = 0; i < CALL_COUNT; i++) {
        if (strcmp(nv_call_names[i], name) == 0) return 1;
    }
    return 0;
}

static int prepare_hang(const struct options *o, struct fg_fault *fault) {
    const char *call = o->call == NULL ? "*" : o->call;
    if (o->call != NULL && !known_call(call)) return fail("NVML has no call \"%s\"", call);
    *fault = (struct fg_fault){.used = 1, .gpu = (int32_t)o->gpu, .left = -1, .hangs = 1};
    snprintf(fault->call, sizeof fault->call, "%s", call);
    return 0;
}

static int prepare_fault(const struct options *o, struct fg_fault *fault) {
    if (o->hang) return prepare_hang(o, fault);
    if (o->call == NULL) return fail("--call NAME, --hang, --lost, --found or --clear is needed");
    if (!known_call(o->call)) return fail("NVML has no call \"%s\"", o->call);
    if (o->result == NULL && o->delay_ms < 0) return fail("--return CODE or --delay-ms MS is needed");
    int result = o->result == NULL ? 0 : nv_result_by_name(o->result);
    if (result < 0) return fail("\"%s\" is no NVML return code", o->result);
    *fault = (struct fg_fault){.used = 1,
                               .result = result,
                               .gpu = (int32_t)o->gpu,
                               .left = o->count < 0 ? 1 : o->count == 0 ? -1 : (int32_t)o->count,
                               .delay_ms = o->delay_ms < 0 ? 0 : (uint32_t)o->delay_ms};
    snprintf(fault->call, sizeof fault->call, "%s", o->call);
    return 0;
}

static int set_fault(struct fg_db *db, const struct fg_fault *fault) {
    for (int i = 0; i < FG_MAX_FAULTS; i++) {
        struct fg_fault *slot = &db->state->faults[i];
        if (fg_read(&slot->used)) continue;
        struct fg_fault prepared = *fault;
        prepared.used = 0;
        *slot = prepared;
        fg_publish(&slot->used, 1);
        return 0;
    }
    return fail("all %d faults are set", FG_MAX_FAULTS);
}

static int change_faults(const struct options *o, struct fg_db *db) {
    if (o->lost || o->found) {
        int gpu = chosen_gpu(o, db);
        if (gpu < 0) return 1;
        fg_publish(&db->state->gpus[gpu].lost, o->lost != 0);
        return 0;
    }
    if (o->clear) {
        for (int i = 0; i < FG_MAX_FAULTS; i++) fg_publish(&db->state->faults[i].used, 0);
        for (int i = 0; i < FG_MAX_GPUS; i++) fg_publish(&db->state->gpus[i].lost, 0);
        return 0;
    }
    struct fg_fault fault;
    if (o->gpu >= 0 && chosen_gpu(o, db) < 0) return 1;
    return prepare_fault(o, &fault) != 0 ? 1 : set_fault(db, &fault);
}

static int raise_xid(const struct options *o, struct fg_db *db) {
    enum { EVENT_XID = 8 };
    struct fg_event event = {.type = EVENT_XID, .data = (uint64_t)o->xid};
    int gpu = chosen_gpu(o, db);
    if (gpu < 0) return 1;
    if (o->xid < 0) return fail("--xid X is missing");
    if (chosen_instance(o, db, gpu, &event.gi, &event.ci) != 0) return 1;
    event.gpu = (uint32_t)gpu;
    uint32_t count = fg_read(&db->state->event_count);
    db->state->events[count % FG_MAX_EVENTS] = event;
    fg_publish(&db->state->event_count, count + 1);
    syscall(SYS_futex, &db->state->event_count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

// The place of a word in a list that ends with NULL; -1 after saying what is wrong.
static int choice(const char *option, const char *text, const char *const *words) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) return i;
    }
    fail("--%s cannot be \"%s\"", option, text);
    return -1;
}

// One of the signs that an option names takes the place of the others; the first word is for none.
static int set_sign(const char *option, const char *text, const char *const *words, const uint32_t *signs, uint32_t *word) {
    if (text == NULL) return 0;
    int chosen = choice(option, text, words);
    if (chosen < 0) return 1;
    uint32_t value = fg_read(word);
    for (int i = 1; words[i] != NULL; i++) value &= ~signs[i];
    fg_publish(word, value | signs[chosen]);
    return 0;
}

// How a GPU is and what its driver wants done about it.
static int change_health(const struct options *o, struct fg_db *db) {
    static const char *const recoveries[] = {"none", "reset", "reboot", "drain-p2p", "drain-reset", NULL};
    static const char *const remaps[] = {"none", "pending", "failed", NULL};
    static const char *const brakes[] = {"none", "thermal", "power", NULL};
    static const char *const virtuals[] = {"off", "unlicensed", "licensed", NULL};
    static const uint32_t remap_signs[] = {0, FG_SIGN_REMAP_PENDING, FG_SIGN_REMAP_FAILED};
    static const uint32_t brake_signs[] = {0, FG_SIGN_THERMAL, FG_SIGN_POWER};
    static const uint32_t virtual_signs[] = {0, FG_SIGN_VIRTUAL, FG_SIGN_VIRTUAL | FG_SIGN_LICENSED};
    int chosen = chosen_gpu(o, db);
    if (chosen < 0) return 1;
    struct fg_gpu *gpu = &db->state->gpus[chosen];
    if (o->recovery != NULL) {
        int action = choice("recovery", o->recovery, recoveries);
        if (action < 0) return 1;
        fg_publish(&gpu->recovery, (uint32_t)action);
    }
    if (o->ecc >= 0) fg_publish(&gpu->uncorrected, (uint32_t)o->ecc);
    return set_sign("remap", o->remap, remaps, remap_signs, &gpu->signs) != 0 ||
           set_sign("brake", o->brake, brakes, brake_signs, &gpu->signs) != 0 ||
           set_sign("virtual", o->is_virtual, virtuals, virtual_signs, &gpu->signs) != 0;
}

static int attach(const struct options *o, struct fg_db *db) {
    int gpu = chosen_gpu(o, db);
    if (gpu < 0) return 1;
    if (o->pid < 1 || o->memory_mib < 0) return fail("--pid P and --memory MIB are needed");
    struct fg_proc record = {.kind = o->stay ? FG_PROC_STAYING : FG_PROC_ATTACHED,
                             .pid = (uint32_t)o->pid,
                             .start_time = fg_process_start((unsigned)o->pid),
                             .pid_ns = fg_own_pid_ns(),
                             .bytes = (uint64_t)o->memory_mib << 20,
                             .gpu = (uint32_t)gpu,
                             .lane = FG_LANES,
                             .contexts = 1};
    if (record.start_time == 0 && !o->stay) return fail("there is no process %ld; --stay keeps it all the same", o->pid);
    if (chosen_instance(o, db, gpu, &record.gi, &record.ci) != 0) return 1;
    return fg_proc_add(db, &record) < 0 ? fail("the node has %d processes already", FG_MAX_PROCS) : 0;
}

static int detach(const struct options *o, struct fg_db *db) {
    int found = 0;
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        struct fg_proc *p = &db->state->procs[i];
        uint32_t kind = fg_read(&p->kind);
        if ((kind != FG_PROC_ATTACHED && kind != FG_PROC_STAYING) || p->pid != (uint32_t)o->pid) continue;
        if (o->gpu >= 0 && p->gpu != (uint32_t)o->gpu) continue;
        fg_proc_free(db, i);
        found = 1;
    }
    return found ? 0 : fail("no attached process %ld", o->pid);
}

static int reset(const struct options *o, struct fg_db *db) {
    int gpu = chosen_gpu(o, db);
    if (gpu < 0) return 1;
    return fg_gpu_reset(db, (unsigned)gpu) == FG_OK ? 0 : fail("GPU %d is in use by a process", gpu);
}

static int reboot_node(const struct options *o, struct fg_db *db) {
    (void)o;
    fg_node_reboot(db);
    return 0;
}

static int on_off(const char *option, const char *text, uint32_t *word) {
    if (text == NULL) return 0;
    int on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0) return fail("--%s is on or off, not \"%s\"", option, text);
    fg_publish(word, (uint32_t)on);
    return 0;
}

// What the driver does beyond the plain: each is off in a new node.
static int behave(const struct options *o, struct fg_db *db) {
    if (o->timing == NULL && o->blind == NULL && o->linger_ms < 0) return fail("--timing, --linger-ms or --blind is needed");
    if (o->linger_ms >= 0) fg_publish(&db->state->linger_ms, (uint32_t)o->linger_ms);
    return on_off("timing", o->timing, &db->state->timing) != 0 || on_off("blind", o->blind, &db->state->blind) != 0;
}

static int locked(const struct options *o, int (*change)(const struct options *, struct fg_db *)) {
    struct fg_db db;
    if (open_state(o, &db) != 0) return 1;
    fg_lock(&db);
    int failed = change(o, &db);
    fg_unlock(&db);
    fg_close(&db);
    return failed;
}

int command_fault(const struct options *o) { return locked(o, change_faults); }
int command_xid(const struct options *o) { return locked(o, raise_xid); }
int command_health(const struct options *o) { return locked(o, change_health); }
int command_attach(const struct options *o) { return locked(o, attach); }
int command_detach(const struct options *o) { return locked(o, detach); }
int command_reset(const struct options *o) { return locked(o, reset); }
int command_reboot(const struct options *o) { return locked(o, reboot_node); }
int command_behave(const struct options *o) { return locked(o, behave); }

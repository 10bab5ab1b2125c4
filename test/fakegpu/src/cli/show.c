// SPDX-License-Identifier: Apache-2.0
// The commands that tell: show and count.
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "nvml/results.h"
#include "nvml_calls.h"
#include "state/engine.h"
#include "state/limit.h"
#include "state/mig.h"
#include "state/proc.h"

extern const char *const nv_call_names[];

static const char *on_off(unsigned bits, unsigned bit) { return bits & bit ? "on" : "off"; }

static void show_instances(const struct fg_gpu *gpu, const struct fg_board *board) {
    for (int i = 0; i < FG_MAX_GIS; i++) {
        const struct fg_gi *gi = &gpu->gis[i];
        if (!fg_read(&gi->used)) continue;
        int shown = 0;
        for (int c = 0; c < FG_MAX_CIS; c++) {
            if (!fg_read(&gi->cis[c].used)) continue;
            char uuid[48];
            fg_mig_uuid(gpu, gi->id, gi->cis[c].id, uuid);
            printf("    %s:%u  gi %u  ci %u  %s\n", board->profiles[gi->profile].name, gi->start, gi->id,
                   gi->cis[c].id, uuid);
            shown = 1;
        }
        if (!shown) printf("    %s:%u  gi %u  no compute instance\n", board->profiles[gi->profile].name, gi->start, gi->id);
    }
}

static void show_processes(struct fg_db *db, unsigned gpu) {
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        if (!fg_proc_matches(p, gpu, FG_NO_INSTANCE, FG_NO_INSTANCE)) continue;
        printf("    process %u  %llu MiB", p->pid, (unsigned long long)(fg_proc_own_bytes(db, i) >> 20));
        if (p->gi != FG_NO_INSTANCE) printf("  gi %u", p->gi);
        printf("\n");
    }
}

static void show_faults(const struct fg_state *state) {
    for (int i = 0; i < FG_MAX_FAULTS; i++) {
        const struct fg_fault *f = &state->faults[i];
        if (!fg_read(&f->used)) continue;
        printf("fault %s: %s", f->call, f->hangs ? "hangs" : nv_result_name(f->result));
        if (f->delay_ms > 0) printf(" after %u ms", f->delay_ms);
        if (f->gpu >= 0) printf(", GPU %d", f->gpu);
        if (f->left >= 0) printf(", %d more", f->left);
        printf("\n");
    }
}

static void show_health(const struct fg_gpu *gpu) {
    static const char *const signs[] = {"a row remap is pending", "no spare rows", "too hot", "power brake", "virtual", "licensed"};
    if (fg_read(&gpu->recovery) != 0) printf("   recovery action %u\n", fg_read(&gpu->recovery));
    if (fg_read(&gpu->uncorrected) != 0) printf("   %u uncorrected memory errors\n", fg_read(&gpu->uncorrected));
    for (unsigned i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (fg_read(&gpu->signs) >> i & 1) printf("   %s\n", signs[i]);
    }
}

static void show_limits(struct fg_db *db, unsigned gpu) {
    for (uint32_t i = 0; i < fg_read(&db->state->limit_count); i++) {
        const struct fg_limit *l = &db->state->limits[i];
        if (!fg_read(&l->used) || l->gpu != gpu || (l->soft == 0 && l->hard == FG_NO_LIMIT)) continue;
        printf("    cgroup %s  ", l->cgroup);
        if (fg_read(&l->gone)) {
            printf("gone, and still has %llu MiB reserved\n", (unsigned long long)(l->soft >> 20));
            continue;
        }
        printf("soft %llu MiB  hard %llu MiB  used %llu MiB\n", (unsigned long long)(l->soft >> 20),
               (unsigned long long)(l->hard >> 20), (unsigned long long)(fg_limit_used(db, gpu, l->cgroup) >> 20));
    }
}

static void show_text(struct fg_db *db) {
    struct fg_state *state = db->state;
    printf("driver %s, %u GPUs\n", state->driver, fg_read(&state->gpu_count));
    for (unsigned i = 0; i < fg_read(&state->gpu_count); i++) {
        const struct fg_gpu *gpu = &state->gpus[i];
        struct fg_board board;
        if (!fg_board_find(gpu->board, &board)) continue;
        unsigned mig = fg_read(&gpu->mig);
        printf("%u  %s  %s  MIG %s", i, gpu->uuid, board.product, on_off(mig, FG_MIG_CURRENT));
        if (!(mig & FG_MIG_CURRENT) != !(mig & FG_MIG_PENDING)) printf(" (pending %s)", on_off(mig, FG_MIG_PENDING));
        printf("  bus %02x  NUMA %u  used %llu of %d MiB%s\n", gpu->bus, gpu->numa,
               (unsigned long long)(fg_proc_bytes(db, i, FG_NO_INSTANCE, FG_NO_INSTANCE) >> 20),
               board.total_mib - board.reserved_mib, fg_read(&gpu->lost) ? "  LOST" : "");
        show_health(gpu);
        show_instances(gpu, &board);
        show_processes(db, i);
        show_limits(db, i);
    }
    show_faults(state);
}

static void json_instances(const struct fg_gpu *gpu, const struct fg_board *board) {
    const char *comma = "";
    for (int i = 0; i < FG_MAX_GIS; i++) {
        const struct fg_gi *gi = &gpu->gis[i];
        if (!fg_read(&gi->used)) continue;
        const struct fg_profile *p = &board->profiles[gi->profile];
        printf("%s{\"profile\":\"%s\",\"profileId\":%d,\"start\":%u,\"size\":%d,\"gi\":%u,\"computeInstances\":[", comma,
               p->name, p->id, gi->start, p->size, gi->id);
        const char *inner = "";
        for (int c = 0; c < FG_MAX_CIS; c++) {
            if (!fg_read(&gi->cis[c].used)) continue;
            char uuid[48];
            fg_mig_uuid(gpu, gi->id, gi->cis[c].id, uuid);
            printf("%s{\"ci\":%u,\"profile\":%u,\"uuid\":\"%s\"}", inner, gi->cis[c].id, gi->cis[c].profile, uuid);
            inner = ",";
        }
        printf("]}");
        comma = ",";
    }
}

// What of its GPU's time the process has had, and how many pieces of work are done and how many queued.
static void json_work(struct fg_db *db, const struct fg_moment *moment, const struct fg_proc *p) {
    uint32_t lane = p->lane;
    if (lane >= moment->lanes) return;
    const struct fg_run *run = &moment->runs[lane];
    printf(",\"busyNs\":%llu,\"done\":%llu,\"queued\":%llu", (unsigned long long)run->busy,
           (unsigned long long)(run->head - db->engine->lane[lane].base),
           (unsigned long long)(db->engine->lane[lane].tail - run->head));
}

static void json_processes(struct fg_db *db, const struct fg_moment *moment, unsigned gpu) {
    const char *comma = "";
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        if (!fg_proc_matches(p, gpu, FG_NO_INSTANCE, FG_NO_INSTANCE)) continue;
        printf("%s{\"pid\":%u,\"hostPid\":%u,\"bytes\":%llu,\"contexts\":%u", comma, p->pid, fg_proc_pid(db, i),
               (unsigned long long)fg_proc_own_bytes(db, i), p->contexts);
        if (p->gi != FG_NO_INSTANCE) printf(",\"gi\":%u", p->gi);
        if (p->ci != FG_NO_INSTANCE) printf(",\"ci\":%u", p->ci);
        json_work(db, moment, p);
        printf("}");
        comma = ",";
    }
}

static void json_limits(struct fg_db *db) {
    const char *comma = "";
    for (uint32_t i = 0; i < fg_read(&db->state->limit_count); i++) {
        const struct fg_limit *l = &db->state->limits[i];
        if (!fg_read(&l->used) || (l->soft == 0 && l->hard == FG_NO_LIMIT)) continue;
        printf("%s{\"gpu\":%u,\"cgroup\":\"%s\",\"soft\":%llu,\"hard\":%llu,\"gone\":%s,\"usedBytes\":%llu}", comma, l->gpu, l->cgroup,
               (unsigned long long)l->soft, (unsigned long long)l->hard, fg_read(&l->gone) ? "true" : "false",
               (unsigned long long)fg_limit_used(db, l->gpu, l->cgroup));
        comma = ",";
    }
}

static void json_faults(const struct fg_state *state) {
    const char *comma = "";
    for (int i = 0; i < FG_MAX_FAULTS; i++) {
        const struct fg_fault *f = &state->faults[i];
        if (!fg_read(&f->used)) continue;
        printf("%s{\"call\":\"%s\",\"return\":\"%s\",\"gpu\":%d,\"left\":%d,\"delayMs\":%u}", comma, f->call,
               nv_result_name(f->result), f->gpu, f->left, f->delay_ms);
        comma = ",";
    }
}

static void show_json(struct fg_db *db) {
    struct fg_state *state = db->state;
    struct fg_moment moment;
    fg_look(db, &moment);
    printf("{\"driver\":\"%s\",\"clockNs\":%llu,\"gpus\":[", state->driver, (unsigned long long)moment.clock);
    for (unsigned i = 0; i < fg_read(&state->gpu_count); i++) {
        const struct fg_gpu *gpu = &state->gpus[i];
        struct fg_board board;
        if (!fg_board_find(gpu->board, &board)) continue;
        unsigned mig = fg_read(&gpu->mig);
        printf("%s{\"index\":%u,\"minor\":%u,\"uuid\":\"%s\",\"board\":\"%s\",\"product\":\"%s\",", i > 0 ? "," : "", i,
               gpu->minor, gpu->uuid, gpu->board, board.product);
        printf("\"pciBusId\":\"0000:%02x:00.0\",\"numa\":%u,\"totalMiB\":%d,\"reservedMiB\":%d,", gpu->bus, gpu->numa,
               board.total_mib, board.reserved_mib);
        printf("\"usedBytes\":%llu,\"busyNs\":%llu,", (unsigned long long)fg_proc_bytes(db, i, FG_NO_INSTANCE, FG_NO_INSTANCE),
               (unsigned long long)moment.busy[i]);
        printf("\"migMode\":{\"current\":%s,\"pending\":%s},\"lost\":%s,\"instances\":[",
               mig & FG_MIG_CURRENT ? "true" : "false", mig & FG_MIG_PENDING ? "true" : "false",
               fg_read(&gpu->lost) ? "true" : "false");
        json_instances(gpu, &board);
        printf("],\"processes\":[");
        json_processes(db, &moment, i);
        printf("]}");
    }
    printf("],\"limits\":[");
    json_limits(db);
    printf("],\"faults\":[");
    json_faults(state);
    printf("]}\n");
}

int command_show(const struct options *o) {
    struct fg_db db;
    if (open_state(o, &db) != 0) return 1;
    fg_lock(&db);
    fg_proc_reap(&db);
    fg_limit_sweep(&db);
    if (o->json) {
        show_json(&db);
    } else {
        show_text(&db);
    }
    fg_unlock(&db);
    fg_close(&db);
    return 0;
}

int command_count(const struct options *o) {
    struct fg_db db;
    if (open_state(o, &db) != 0) return 1;
    for (int i = 0; i < CALL_COUNT; i++) {
        unsigned long long made = __atomic_load_n(&db.state->calls[i], __ATOMIC_RELAXED);
        if (made > 0) printf("%s %llu\n", nv_call_names[i], made);
    }
    fg_close(&db);
    return 0;
}

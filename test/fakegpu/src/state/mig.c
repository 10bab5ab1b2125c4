// SPDX-License-Identifier: Apache-2.0
#include "mig.h"

#include <stdio.h>
#include <string.h>

#include "proc.h"
#include "uuid.h"

static unsigned span(unsigned start, int size) { return ((1u << size) - 1) << start; }

static unsigned taken_slices(const struct fg_gpu *gpu, const struct fg_board *board) {
    unsigned taken = 0;
    for (int i = 0; i < FG_MAX_GIS; i++) {
        const struct fg_gi *gi = &gpu->gis[i];
        if (fg_read(&gi->used)) taken |= span(gi->start, board->profiles[gi->profile].size);
    }
    return taken;
}

struct engines {
    int dec, enc, jpeg, ofa, slices, same;
};

static void add_engines(struct engines *sum, const struct fg_profile *p) {
    sum->dec += p->dec;
    sum->enc += p->enc;
    sum->jpeg += p->jpeg;
    sum->ofa += p->ofa;
    sum->slices += p->slices;
}

// Engines that all instances together hold, and how many are of that profile.
static struct engines engines_in_use(const struct fg_gpu *gpu, const struct fg_board *board, int profile) {
    struct engines sum = {0};
    for (int i = 0; i < FG_MAX_GIS; i++) {
        const struct fg_gi *gi = &gpu->gis[i];
        if (!fg_read(&gi->used)) continue;
        struct fg_profile p = fg_profile_filled(board, (int)gi->profile);
        add_engines(&sum, &p);
        sum.same += (int)gi->profile == profile;
    }
    return sum;
}

// A GPU has the engines of its largest profile.
static struct engines engines_of_board(const struct fg_board *board) {
    struct engines most = {0};
    for (size_t i = 0; i < board->profile_count; i++) {
        struct fg_profile p = fg_profile_filled(board, (int)i);
        if (p.dec > most.dec) most.dec = p.dec;
        if (p.enc > most.enc) most.enc = p.enc;
        if (p.jpeg > most.jpeg) most.jpeg = p.jpeg;
        if (p.ofa > most.ofa) most.ofa = p.ofa;
        if (p.slices > most.slices) most.slices = p.slices;
    }
    return most;
}

static int engines_allow(const struct fg_gpu *gpu, const struct fg_board *board, int profile, int more) {
    struct fg_profile p = fg_profile_filled(board, profile);
    struct engines use = engines_in_use(gpu, board, profile);
    struct engines all = engines_of_board(board);
    return use.same + more <= p.max && use.dec + more * p.dec <= all.dec && use.enc + more * p.enc <= all.enc &&
           use.jpeg + more * p.jpeg <= all.jpeg && use.ofa + more * p.ofa <= all.ofa &&
           use.slices + more * p.slices <= all.slices;
}

int fg_gi_fits(const struct fg_gpu *gpu, const struct fg_board *board, int profile, unsigned start) {
    const struct fg_profile *p = &board->profiles[profile];
    if (start >= 32 || !(p->starts >> start & 1)) return 0;
    return !(taken_slices(gpu, board) & span(start, p->size)) && engines_allow(gpu, board, profile, 1);
}

int fg_gi_capacity(const struct fg_gpu *gpu, const struct fg_board *board, int profile) {
    const struct fg_profile *p = &board->profiles[profile];
    unsigned taken = taken_slices(gpu, board);
    int count = 0;
    for (unsigned start = 0; start < 32; start++) {
        if (!(p->starts >> start & 1) || taken & span(start, p->size)) continue;
        if (!engines_allow(gpu, board, profile, count + 1)) break;
        taken |= span(start, p->size);
        count++;
    }
    return count;
}

// The driver numbers instances like the nodes of a binary tree: 0 is the whole
// GPU, 1 and 2 its halves, and so on. The same place has the same id again.
static unsigned id_of_place(const struct fg_board *board, const struct fg_profile *p, unsigned start) {
    unsigned first = 0, parts = 1;
    while ((int)(parts * 2) * p->size <= board->memory_slices) {
        first += parts;
        parts *= 2;
    }
    return first + start / (unsigned)p->size;
}

int fg_gi_create(struct fg_gpu *gpu, const struct fg_board *board, int profile, int start, int *slot) {
    const struct fg_profile *p = &board->profiles[profile];
    if (start >= 0 && (start >= 32 || !(p->starts >> start & 1))) return FG_INVALID_ARGUMENT;
    if (start < 0) {
        for (start = 31; start >= 0 && !fg_gi_fits(gpu, board, profile, (unsigned)start);) start--;
        if (start < 0) return FG_INSUFFICIENT_RESOURCES;
    }
    if (!fg_gi_fits(gpu, board, profile, (unsigned)start)) return FG_INSUFFICIENT_RESOURCES;
    for (int i = 0; i < FG_MAX_GIS; i++) {
        struct fg_gi *gi = &gpu->gis[i];
        if (fg_read(&gi->used)) continue;
        gi->generation++;
        gi->profile = (uint32_t)profile;
        gi->start = (uint32_t)start;
        gi->id = id_of_place(board, p, (unsigned)start);
        // A reset that was killed half way may have left compute instances of a former owner.
        for (int c = 0; c < FG_MAX_CIS; c++) gi->cis[c].used = 0;
        fg_publish(&gi->used, 1);
        *slot = i;
        return FG_OK;
    }
    return FG_INSUFFICIENT_RESOURCES;
}

int fg_gi_destroy(struct fg_db *db, unsigned gpu, int slot) {
    struct fg_gi *gi = &db->state->gpus[gpu].gis[slot];
    for (int c = 0; c < FG_MAX_CIS; c++) {
        if (fg_read(&gi->cis[c].used)) return FG_IN_USE;
    }
    if (fg_proc_any(db, gpu, gi->id, FG_NO_INSTANCE)) return FG_IN_USE;
    fg_publish(&gi->used, 0);
    return FG_OK;
}

int fg_ci_profile(const struct fg_profile *gi, unsigned constant, struct fg_ci_profile *out) {
    static const int slices[FG_CI_PROFILES] = {1, 2, 3, 4, 7, 8, 6, 0, 7};
    if (constant >= FG_CI_PROFILES) return 0;
    int own = slices[constant];
    // Three slices do not divide a four-slice instance; the driver offers 1, 2 and 4 there.
    if (own == 0 || own > gi->slices || (own == 3 && gi->slices == 4)) return 0;
    *out = (struct fg_ci_profile){
        .constant = (int)constant, .slices = own, .count = gi->slices / own, .full = own == gi->slices};
    return 1;
}

unsigned fg_ci_starts(const struct fg_profile *gi, const struct fg_ci_profile *ci) {
    unsigned starts = 0;
    int step = ci->slices == 3 ? 4 : ci->slices; // 3 slices lie on the halves
    for (int at = 0; at + ci->slices <= gi->slices; at += step) starts |= 1u << at;
    return starts;
}

static unsigned taken_by_cis(const struct fg_gi *gi) {
    unsigned taken = 0;
    for (int c = 0; c < FG_MAX_CIS; c++) {
        if (fg_read(&gi->cis[c].used)) taken |= span(gi->cis[c].start, (int)gi->cis[c].size);
    }
    return taken;
}

int fg_ci_capacity(const struct fg_gi *gi, const struct fg_profile *profile, unsigned constant) {
    struct fg_ci_profile ci;
    if (!fg_ci_profile(profile, constant, &ci)) return -1;
    unsigned taken = taken_by_cis(gi), starts = fg_ci_starts(profile, &ci);
    int count = 0;
    for (unsigned at = 0; at < 8; at++) {
        if (starts >> at & 1 && !(taken & span(at, ci.slices))) {
            taken |= span(at, ci.slices);
            count++;
        }
    }
    return count;
}

int fg_ci_create(struct fg_gi *gi, const struct fg_profile *profile, unsigned constant, int start, int *slot) {
    struct fg_ci_profile ci;
    if (!fg_ci_profile(profile, constant, &ci)) return FG_NOT_SUPPORTED;
    unsigned taken = taken_by_cis(gi), starts = fg_ci_starts(profile, &ci);
    if (start >= 0 && (start >= 8 || !(starts >> start & 1))) return FG_INVALID_ARGUMENT;
    if (start < 0) {
        for (start = 0; start < 8 && (!(starts >> start & 1) || taken & span((unsigned)start, ci.slices));) start++;
    }
    if (start >= 8 || taken & span((unsigned)start, ci.slices)) return FG_INSUFFICIENT_RESOURCES;

    unsigned ids = 0;
    for (int c = 0; c < FG_MAX_CIS; c++) {
        if (fg_read(&gi->cis[c].used)) ids |= 1u << gi->cis[c].id;
    }
    for (int c = 0; c < FG_MAX_CIS; c++) {
        struct fg_ci *made = &gi->cis[c];
        if (fg_read(&made->used)) continue;
        made->generation++;
        made->profile = constant;
        made->start = (uint32_t)start;
        made->size = (uint32_t)ci.slices;
        made->id = (uint32_t)__builtin_ctz(~ids);
        fg_publish(&made->used, 1);
        *slot = c;
        return FG_OK;
    }
    return FG_INSUFFICIENT_RESOURCES;
}

int fg_ci_destroy(struct fg_db *db, unsigned gpu, int gi_slot, int ci_slot) {
    struct fg_gi *gi = &db->state->gpus[gpu].gis[gi_slot];
    struct fg_ci *ci = &gi->cis[ci_slot];
    if (fg_proc_any(db, gpu, gi->id, ci->id)) return FG_IN_USE;
    fg_publish(&ci->used, 0);
    return FG_OK;
}

int fg_gi_by_id(const struct fg_gpu *gpu, unsigned id) {
    for (int i = 0; i < FG_MAX_GIS; i++) {
        if (fg_read(&gpu->gis[i].used) && gpu->gis[i].id == id) return i;
    }
    return -1;
}

int fg_ci_by_id(const struct fg_gi *gi, unsigned id) {
    for (int c = 0; c < FG_MAX_CIS; c++) {
        if (fg_read(&gi->cis[c].used) && gi->cis[c].id == id) return c;
    }
    return -1;
}

int fg_mig_device_at(const struct fg_gpu *gpu, unsigned index, int *gi_slot, int *ci_slot) {
    for (unsigned gi_id = 0; gi_id < 32; gi_id++) {
        int g = fg_gi_by_id(gpu, gi_id);
        if (g < 0) continue;
        for (unsigned ci_id = 0; ci_id < FG_MAX_CIS; ci_id++) {
            int c = fg_ci_by_id(&gpu->gis[g], ci_id);
            if (c < 0 || index-- > 0) continue;
            *gi_slot = g;
            *ci_slot = c;
            return 1;
        }
    }
    return 0;
}

int fg_mig_device_index(const struct fg_gpu *gpu, int gi_slot, int ci_slot) {
    int g, c;
    for (unsigned index = 0; fg_mig_device_at(gpu, index, &g, &c); index++) {
        if (g == gi_slot && c == ci_slot) return (int)index;
    }
    return -1;
}

void fg_mig_uuid(const struct fg_gpu *gpu, unsigned gi_id, unsigned ci_id, char *uuid) {
    fg_uuid_format("MIG", fg_hash_text(gpu->uuid), (uint64_t)gi_id << 32 | ci_id, uuid);
}

// SPDX-License-Identifier: Apache-2.0
// MIG instances that somebody makes and destroys by hand, past whoever divides the node's GPUs.
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "state/mig.h"

// An instance as "PROFILE:START" of a board; 0 where it has no such profile.
static int profile_named(const struct fg_board *board, const char *text, int *profile, unsigned long *start) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL) return 0;
    char *end;
    *start = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0') return 0;
    for (*profile = 0; *profile < (int)board->profile_count; ++*profile) {
        const char *name = board->profiles[*profile].name;
        if (strlen(name) == (size_t)(colon - text) && strncmp(name, text, strlen(name)) == 0) return 1;
    }
    return 0;
}

// The compute instance that takes all of a GPU instance.
static int fill(struct fg_gi *gi, const struct fg_profile *profile) {
    for (unsigned constant = 0; constant < FG_CI_7_SLICE_NVL; constant++) {
        struct fg_ci_profile ci;
        int slot;
        if (fg_ci_profile(profile, constant, &ci) && ci.full) return fg_ci_create(gi, profile, constant, -1, &slot);
    }
    return FG_NOT_SUPPORTED;
}

static int make(const struct options *o, struct fg_gpu *gpu) {
    struct fg_board board;
    int profile, slot;
    unsigned long start;
    fg_board_find(gpu->board, &board);
    if (!profile_named(&board, o->make, &profile, &start)) return fail("no profile of the board in %s (write PROFILE:START)", o->make);
    if (!(fg_read(&gpu->mig) & FG_MIG_CURRENT)) return fail("MIG mode of the GPU is off");
    if (fg_gi_create(gpu, &board, profile, (int)start, &slot) != FG_OK) return fail("there is no room for %s", o->make);
    return fill(&gpu->gis[slot], &board.profiles[profile]) == FG_OK ? 0 : fail("%s cannot have a compute instance", o->make);
}

static int destroy(const struct options *o, struct fg_db *db, int gpu) {
    struct options named = *o;
    unsigned gi, ci;
    named.instance = o->destroy;
    if (chosen_instance(&named, db, gpu, &gi, &ci) != 0) return 1;
    int slot = fg_gi_by_id(&db->state->gpus[gpu], gi);
    struct fg_gi *instance = &db->state->gpus[gpu].gis[slot];
    for (unsigned id = 0; id < FG_MAX_CIS; id++) {
        int at = fg_ci_by_id(instance, id);
        if (at >= 0 && fg_ci_destroy(db, (unsigned)gpu, slot, at) != FG_OK) return fail("%s is in use", o->destroy);
    }
    return fg_gi_destroy(db, (unsigned)gpu, slot) == FG_OK ? 0 : fail("%s is in use", o->destroy);
}

int command_mig(const struct options *o) {
    struct fg_db db;
    if (open_state(o, &db) != 0) return 1;
    fg_lock(&db);
    int failed = 1, gpu = chosen_gpu(o, &db);
    if (gpu >= 0 && o->destroy != NULL) failed = destroy(o, &db, gpu);
    else if (gpu >= 0 && o->make != NULL) failed = make(o, &db.state->gpus[gpu]);
    else if (gpu >= 0) fail("--make PROFILE:START or --destroy PROFILE:START is needed");
    fg_unlock(&db);
    fg_close(&db);
    return failed;
}

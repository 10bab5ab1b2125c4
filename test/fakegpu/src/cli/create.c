// SPDX-License-Identifier: Apache-2.0
// The commands that make a node: create, add, boards.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "state/proc.h"
#include "state/uuid.h"

#define DEFAULT_DRIVER "580.159.04"

// Fills in GPU `index` of a node; nothing of it counts before the count is raised.
static void place_gpu(struct fg_state *state, unsigned index, const struct fg_board *board, int mig) {
    struct fg_gpu *gpu = &state->gpus[index];
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->board, sizeof gpu->board, "%s", board->key);
    fg_uuid_format("GPU", state->seed, index, gpu->uuid);
    gpu->minor = index;
    gpu->bus = 4 + 3 * index;
    gpu->numa = index / 4 % 2; // four GPUs to a socket
    gpu->mig = mig ? FG_MIG_CURRENT | FG_MIG_PENDING : 0;
}

static int parse_gpus(const struct options *o, unsigned there, struct fg_board *board, int *mig) {
    if (o->board == NULL || o->gpus < 1) return fail("--board B and --gpus N are needed");
    if (!fg_board_find(o->board, board)) return fail("there is no board \"%s\"; see fakegpu boards", o->board);
    if (o->gpus + (long)there > FG_MAX_GPUS) return fail("a node has at most %d GPUs", FG_MAX_GPUS);
    *mig = o->mig != NULL && strcmp(o->mig, "on") == 0;
    if (o->mig != NULL && !*mig && strcmp(o->mig, "off") != 0) return fail("--mig is on or off, not \"%s\"", o->mig);
    return 0;
}

// The seed that was given, else the file's own path: made again, it is the same node.
static uint64_t seed_of(const struct options *o) {
    if (o->seed != NULL) return fg_hash_text(o->seed);
    char directory[4096], full[8192];
    if (o->state[0] == '/' || getcwd(directory, sizeof directory) == NULL) return fg_hash_text(o->state);
    snprintf(full, sizeof full, "%s/%s", directory, o->state);
    return fg_hash_text(full);
}

// Where the driver keeps memory limits, and of which cgroups.
static int place_limits(const struct options *o, struct fg_state *state) {
    const char *root = o->cgroups != NULL ? o->cgroups : "/sys/fs/cgroup";
    if (strlen(root) >= sizeof state->cgroup_root) return fail("--cgroups is longer than %zu characters", sizeof state->cgroup_root - 1);
    snprintf(state->cgroup_root, sizeof state->cgroup_root, "%s", root);
    int misc = o->limits != NULL && strcmp(o->limits, "misc") == 0;
    if (o->limits != NULL && !misc && strcmp(o->limits, "dmem") != 0) return fail("--limits is dmem or misc, not \"%s\"", o->limits);
    state->limits_backend = misc ? FG_LIMITS_MISC : FG_LIMITS_DMEM;
    state->dmem_anywhere = (uint32_t)o->anywhere;
    return 0;
}

int command_create(const struct options *o) {
    struct fg_board board;
    int mig;
    if (o->state == NULL) return fail("--state FILE is missing");
    if (parse_gpus(o, 0, &board, &mig) != 0) return 1;
    const char *driver = o->driver != NULL ? o->driver : DEFAULT_DRIVER;
    if (strlen(driver) >= sizeof((struct fg_state *)0)->driver || strchr(driver, '/') != NULL) {
        return fail("\"%s\" is no driver version", driver);
    }
    if (!o->force && access(o->state, F_OK) == 0) return fail("%s exists; --force makes it anew", o->state);

    struct fg_state *state = calloc(1, sizeof *state);
    if (state == NULL) return fail("out of memory");
    state->magic = FG_MAGIC;
    state->version = FG_VERSION;
    state->size = sizeof *state;
    state->seed = seed_of(o);
    state->home_pid_ns = fg_own_pid_ns();
    snprintf(state->driver, sizeof state->driver, "%s", driver);
    for (unsigned i = 0; i < (unsigned)o->gpus; i++) place_gpu(state, i, &board, mig);
    state->gpu_count = (uint32_t)o->gpus;
    if (place_limits(o, state) != 0) {
        free(state);
        return 1;
    }
    int err = fg_create(o->state, state);
    free(state);
    if (err != 0) return fail("cannot make %s: %s", o->state, strerror(-err));
    return o->root != NULL ? command_root(o) : 0;
}

int command_add(const struct options *o) {
    struct fg_db db;
    struct fg_board board;
    int mig;
    if (open_state(o, &db) != 0) return 1;
    fg_lock(&db);
    unsigned there = fg_read(&db.state->gpu_count);
    int failed = parse_gpus(o, there, &board, &mig);
    if (!failed) {
        for (unsigned i = 0; i < (unsigned)o->gpus; i++) place_gpu(db.state, there + i, &board, mig);
        fg_publish(&db.state->gpu_count, there + (uint32_t)o->gpus);
    }
    fg_unlock(&db);
    fg_close(&db);
    return failed;
}

int command_boards(const struct options *o) {
    (void)o;
    struct fg_board b;
    for (size_t i = 0; fg_board_at(i, &b); i++) {
        printf("%-16s %-46s %7d MiB, usable %7d, %zu profiles\n", b.key, b.product, b.total_mib,
               b.total_mib - b.reserved_mib, b.profile_count);
    }
    return 0;
}

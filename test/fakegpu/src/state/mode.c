// SPDX-License-Identifier: Apache-2.0
// MIG mode, GPU reset and reboot.
#include "mig.h"
#include "proc.h"

static int has_instances(const struct fg_gpu *gpu) {
    for (int i = 0; i < FG_MAX_GIS; i++) {
        if (fg_read(&gpu->gis[i].used)) return 1;
    }
    return 0;
}

static void drop_instances(struct fg_gpu *gpu) {
    for (int i = 0; i < FG_MAX_GIS; i++) fg_publish(&gpu->gis[i].used, 0);
}

static enum fg_arch arch_of(const struct fg_gpu *gpu) {
    struct fg_board board;
    return fg_board_find(gpu->board, &board) ? board.arch : FG_AMPERE;
}

int fg_mig_set_mode(struct fg_db *db, unsigned index, int on, int *activation) {
    struct fg_gpu *gpu = &db->state->gpus[index];
    uint32_t current = fg_read(&gpu->mig) & FG_MIG_CURRENT;
    *activation = FG_OK;
    if (arch_of(gpu) == FG_AMPERE) {
        fg_publish(&gpu->mig, current | (on ? FG_MIG_PENDING : 0));
        if ((current != 0) != (on != 0)) *activation = FG_RESET_REQUIRED;
        return FG_OK;
    }
    if ((current != 0) == (on != 0)) return FG_OK;
    if (has_instances(gpu) || fg_proc_any(db, index, FG_NO_INSTANCE, FG_NO_INSTANCE)) {
        *activation = FG_IN_USE;
        return FG_IN_USE;
    }
    fg_publish(&gpu->mig, on ? FG_MIG_CURRENT | FG_MIG_PENDING : 0);
    return FG_OK;
}

int fg_gpu_reset(struct fg_db *db, unsigned index) {
    struct fg_gpu *gpu = &db->state->gpus[index];
    if (fg_proc_any(db, index, FG_NO_INSTANCE, FG_NO_INSTANCE)) return FG_IN_USE;
    drop_instances(gpu);
    fg_publish(&gpu->mig, fg_read(&gpu->mig) & FG_MIG_PENDING ? FG_MIG_CURRENT | FG_MIG_PENDING : 0);
    fg_publish(&gpu->lost, 0);
    fg_publish(&gpu->recovery, 0);
    fg_publish(&gpu->uncorrected, 0);
    fg_publish(&gpu->signs, fg_read(&gpu->signs) & ~FG_SIGN_REMAP_PENDING);
    return FG_OK;
}

void fg_node_reboot(struct fg_db *db) {
    for (int i = 0; i < FG_MAX_OBJECTS; i++) fg_publish(&db->state->objects[i].used, 0);
    for (int i = 0; i < FG_MAX_PROCS; i++) fg_proc_free(db, i);
    for (unsigned i = 0; i < fg_read(&db->state->gpu_count); i++) {
        struct fg_gpu *gpu = &db->state->gpus[i];
        if (arch_of(gpu) != FG_AMPERE) fg_publish(&gpu->mig, 0);
        fg_gpu_reset(db, i);
    }
}

// SPDX-License-Identifier: Apache-2.0
// MIG geometry and life cycle of one GPU. The caller holds the lock.
#ifndef FAKEGPU_MIG_H
#define FAKEGPU_MIG_H

#include "state.h"

// NVML return codes that the rules below can give.
enum fg_result {
    FG_OK = 0,
    FG_INVALID_ARGUMENT = 2,
    FG_NOT_SUPPORTED = 3,
    FG_NOT_FOUND = 6,
    FG_RESET_REQUIRED = 16,
    FG_IN_USE = 19,
    FG_INSUFFICIENT_RESOURCES = 23,
};

// Compute-instance profiles: NVML_COMPUTE_INSTANCE_PROFILE_*.
enum { FG_CI_7_SLICE_NVL = 8, FG_CI_PROFILES = 9 };

struct fg_ci_profile {
    int constant; // also what the driver calls the profile id
    int slices;
    int count; // how many fit into an empty GPU instance
    int full;  // takes the whole GPU instance
};

// Whether a GPU instance of that profile offers the compute-instance profile.
int fg_ci_profile(const struct fg_profile *gi, unsigned constant, struct fg_ci_profile *out);
// The same by slice count for walking: the legal starts as a bit mask.
unsigned fg_ci_starts(const struct fg_profile *gi, const struct fg_ci_profile *ci);

// Whether an instance of the profile could start there now.
int fg_gi_fits(const struct fg_gpu *gpu, const struct fg_board *board, int profile, unsigned start);
// How many more instances of the profile fit now.
int fg_gi_capacity(const struct fg_gpu *gpu, const struct fg_board *board, int profile);
// start < 0 lets the driver choose, which it does from the top down.
int fg_gi_create(struct fg_gpu *gpu, const struct fg_board *board, int profile, int start, int *slot);
int fg_gi_destroy(struct fg_db *db, unsigned gpu, int slot);

int fg_ci_capacity(const struct fg_gi *gi, const struct fg_profile *profile, unsigned constant);
int fg_ci_create(struct fg_gi *gi, const struct fg_profile *profile, unsigned constant, int start, int *slot);
int fg_ci_destroy(struct fg_db *db, unsigned gpu, int gi_slot, int ci_slot);

// Slots, or -1.
int fg_gi_by_id(const struct fg_gpu *gpu, unsigned id);
int fg_ci_by_id(const struct fg_gi *gi, unsigned id);

// The index'th MIG device (a GPU instance with a compute instance) in the
// order of their ids; 0 when there are not that many.
int fg_mig_device_at(const struct fg_gpu *gpu, unsigned index, int *gi_slot, int *ci_slot);
int fg_mig_device_index(const struct fg_gpu *gpu, int gi_slot, int ci_slot);
// "MIG-..." of the instance; the buffer holds at least 48 bytes.
void fg_mig_uuid(const struct fg_gpu *gpu, unsigned gi_id, unsigned ci_id, char *uuid);

// Sets the mode as the architecture does: at once, or pending until a reset.
int fg_mig_set_mode(struct fg_db *db, unsigned gpu, int on, int *activation);
// A GPU reset: instances go, a pending mode becomes current.
int fg_gpu_reset(struct fg_db *db, unsigned gpu);
// A reboot of the node: as a reset, processes are gone, and Hopper and later forget the mode.
void fg_node_reboot(struct fg_db *db);

#endif

// SPDX-License-Identifier: Apache-2.0
// What every NVML entry point does first and last.
#ifndef FAKEGPU_NVML_CALL_H
#define FAKEGPU_NVML_CALL_H

#include "abi.h"
#include "nvml_calls.h"

#define NV_API __attribute__((visibility("default")))

struct fg_db;

// Counts the call and meets the faults set for it; the state is locked when the
// answer is NV_SUCCESS, and the caller ends with nv_leave. gpu < 0: no GPU is named.
nv_return nv_enter(enum nv_call call, int gpu, struct fg_db **db);
nv_return nv_leave(struct fg_db *db, nv_return result);
nv_return nv_not_supported(enum nv_call call);

// What a handle stands for. Slots are -1 where the kind has none.
enum nv_kind { NV_KIND_GPU = 1, NV_KIND_GI = 2, NV_KIND_CI = 3, NV_KIND_MIG = 4 };

struct nv_target {
    enum nv_kind kind;
    int gpu;
    int gi;
    int ci;
};

// Handles are numbers in a pointer's clothes: they name a slot and the generation
// of what lies in it, so one that outlives its instance is refused.
void *nv_handle(struct fg_db *db, struct nv_target target);
int nv_gpu_of(const void *handle); // -1: no handle of ours
// Enters with a device handle of a GPU or a MIG device.
nv_return nv_enter_device(enum nv_call call, nv_device device, struct fg_db **db, struct nv_target *target);
// The same, but only a whole GPU will do.
nv_return nv_enter_gpu(enum nv_call call, nv_device device, struct fg_db **db, struct nv_target *target);
nv_return nv_enter_gi(enum nv_call call, nv_gi gi, struct fg_db **db, struct nv_target *target);
nv_return nv_enter_ci(enum nv_call call, nv_ci ci, struct fg_db **db, struct nv_target *target);

// Copies text with its end into the caller's buffer.
nv_return nv_put_text(char *buffer, unsigned length, const char *text);

#endif

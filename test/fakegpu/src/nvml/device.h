// SPDX-License-Identifier: Apache-2.0
// What the entry points share about a device.
#ifndef FAKEGPU_NVML_DEVICE_H
#define FAKEGPU_NVML_DEVICE_H

#include <stddef.h>

#include "call.h"
#include "state/board.h"
#include "state/state.h"

struct fg_gpu *nv_gpu(struct fg_db *db, const struct nv_target *target);
struct fg_board nv_board(struct fg_db *db, const struct nv_target *target);
// "MIG 1g.10gb", or "MIG 1c.3g.40gb" for a part of a GPU instance.
void nv_ci_name(const struct fg_profile *profile, int slices, char *text, size_t size);
// Whether MIG mode is on.
int nv_mig_on(struct fg_db *db, const struct nv_target *target);

#endif

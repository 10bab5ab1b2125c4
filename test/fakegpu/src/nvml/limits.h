// SPDX-License-Identifier: Apache-2.0
#ifndef FAKEGPU_NVML_LIMITS_H
#define FAKEGPU_NVML_LIMITS_H

#include "call.h"

// Has memory show the limit of the caller's cgroup as the GPU's total, where that has one of its own. The state is locked
// before and after, and not meanwhile: the caller may have to wait for being told its cgroup.
void nv_show_limit(struct fg_db *db, const struct nv_target *target, nv_memory_v2 *memory);

#endif

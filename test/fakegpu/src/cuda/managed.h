// SPDX-License-Identifier: Apache-2.0
// Managed memory takes device memory when the device touches it, as far as there is room.
#ifndef FAKEGPU_CUDA_MANAGED_H
#define FAKEGPU_CUDA_MANAGED_H

#include "space.h"

// The device touches that much of the range. Nothing happens to other kinds.
void managed_touch(struct core *core, struct range *range, size_t size);

#endif

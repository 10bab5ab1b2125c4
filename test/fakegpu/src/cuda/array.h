// SPDX-License-Identifier: Apache-2.0
#ifndef FAKEGPU_CUDA_ARRAY_H
#define FAKEGPU_CUDA_ARRAY_H

#include "space.h"

// A mipmapped array whose memory has been charged, or is another's.
cu_result mipmap_make(struct core *core, int device, uint64_t charged, const cu_array3d_descriptor *descriptor,
                      unsigned levels, cu_mipmap *mipmap);

#endif

// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory; called with the library locked.
#ifndef FAKEGPU_CUDA_POOL_H
#define FAKEGPU_CUDA_POOL_H

#include "space.h"

// Frees an allocation of a pool outside of the order of streams.
void pool_free_now(struct core *core, struct allocation *allocation);
// Frees it when what is queued on the stream is done.
cu_result pool_free_on(struct core *core, cu_stream stream, struct allocation *allocation);

#endif

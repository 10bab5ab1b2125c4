// SPDX-License-Identifier: Apache-2.0
#ifndef FAKEGPU_CUDA_KERNEL_TIME_H
#define FAKEGPU_CUDA_KERNEL_TIME_H

#include "core.h"

// How long the kernel takes with these arguments, in ns.
uint64_t kernel_time(cu_function function, void **parameters, void **extra);
// Queues work on a stream and returns when it will be done; called with the library locked.
uint64_t kernel_queue(struct core *core, cu_context context, cu_stream stream, uint64_t ns);

#endif

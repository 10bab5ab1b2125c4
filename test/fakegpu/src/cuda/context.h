// SPDX-License-Identifier: Apache-2.0
// Making and ending contexts; called with the library locked.
#ifndef FAKEGPU_CUDA_CONTEXT_H
#define FAKEGPU_CUDA_CONTEXT_H

#include "core.h"

cu_result context_make(struct core *core, cu_device index, unsigned flags, cu_context *made);
void context_destroy(struct core *core, cu_context context);
// Makes it the calling thread's current one; 0 when the stack is full.
int context_push(cu_context context);

#endif

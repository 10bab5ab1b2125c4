// SPDX-License-Identifier: Apache-2.0
// Work on the GPU. A process's pieces of work on a device run in the order in which they were queued; a stream is known by the
// last of its own. All is called with the library locked.
#ifndef FAKEGPU_CUDA_WORK_H
#define FAKEGPU_CUDA_WORK_H

#include "core.h"
#include "state/engine.h"

// What a kernel does with these arguments.
struct fg_piece kernel_piece(cu_function function, void **parameters, void **extra);
// Queues a piece on a stream.
void work_queue(struct core *core, cu_stream stream, const struct fg_piece *piece);
// Leaves the library after work was queued; where the queue is full, not before a place in it is free.
void work_leave(struct core *core, cu_context context);
// Has the stream's further work wait for a piece of a device.
void work_after(struct core *core, cu_stream stream, int device, uint64_t piece);

#endif

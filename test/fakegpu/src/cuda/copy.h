// SPDX-License-Identifier: Apache-2.0
// What every copy does first and last.
#ifndef FAKEGPU_CUDA_COPY_H
#define FAKEGPU_CUDA_COPY_H

#include "space.h"
#include "work.h"

// A place in device or host memory, and how much behind it is real.
struct place {
    unsigned char *at;
    size_t real;
};

struct copy {
    struct core *core;
    cu_context context;
    cu_stream stream;
};

// Enters the library for a copy on a stream; one that a copy engine makes first waits for its turn there.
cu_result copy_begin(struct copy *copy, cu_stream stream, int by_engine);
// Finds a device place for `size` bytes and makes its kept part touchable.
cu_result copy_place(struct core *core, cu_pointer pointer, size_t size, struct place *place);
void copy_move(struct place to, struct place from, size_t size);
// Leaves it, after the GPU was given so many bytes to move or set, if all went well so far.
cu_result copy_end(struct copy *copy, cu_result result, size_t size);

#endif

// SPDX-License-Identifier: Apache-2.0
// Streams whose work is recorded into a graph instead of done; called with the library locked.
#ifndef FAKEGPU_CUDA_CAPTURE_H
#define FAKEGPU_CUDA_CAPTURE_H

#include "core.h"

struct cu_capture {
    struct cu_capture *next;
    cu_graph graph;
    cu_stream origin;
    int own_graph; // made for this capture
    int mode;
    const void *thread; // that began it
    int invalid;
    uint64_t id;
};

// For a call that is unsafe while something is captured: the error that it gives then, and the capture is invalid.
cu_result capture_forbids(struct core *core);
// The same for a call on the capturing stream itself.
cu_result capture_break(cu_stream stream);
cu_result capture_allocation(struct core *core, cu_stream stream, int device, size_t size, cu_pointer *pointer);
cu_result capture_free(struct core *core, cu_stream stream, cu_pointer pointer);
// Work of any kind; NULL for what takes no time.
cu_result capture_work(cu_stream stream, const struct fg_piece *piece);
// Work on the legacy stream would have to wait for what is captured: the capture is broken, and this is the error. In the same
// way it cannot be asked for.
cu_result capture_implicit(struct core *core, cu_stream stream);
// A stream is going, or its context.
void capture_forget(struct core *core, cu_stream stream);

#endif

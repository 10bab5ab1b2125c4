// SPDX-License-Identifier: Apache-2.0
//
// What the replacement of a function that occupies the GPU is made of.

#ifndef SLUICE_PACED_H
#define SLUICE_PACED_H

#include "pacer.h"

// Ends a replacement: `call` is paced as `work`, which is a function, a graph, or a class of copies.
#define PACED(work, on, own_stream, call)                                                                            \
    const struct process *paced_process = pacer_process();                                                           \
    if (__builtin_expect(paced_process == NULL, 1)) return call;                                                     \
    struct pacer_launch paced = {.key = (work), .handle = (on), .per_thread = (own_stream), .stream = pacer_stream(on, own_stream)}; \
    if (pacer_pass(paced_process, paced.key, paced.stream) || !pacer_before(&paced)) return call;                    \
    return pacer_after(&paced, call)

#endif // SLUICE_PACED_H

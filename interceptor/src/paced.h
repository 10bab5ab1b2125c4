// SPDX-License-Identifier: Apache-2.0
//
// What the replacement of a function that occupies the GPU is made of.

#ifndef SLUICE_PACED_H
#define SLUICE_PACED_H

#include "export.h"
#include "pacer.h"

// Ends a function: `call` is paced as `work`, which is a function, a graph, or a class of copies.
#define PACED_CALL(work, on, own_stream, call)                                              \
    struct pacer_launch paced = {.key = (work), .handle = (on), .per_thread = (own_stream), \
                                 .named = pacer_named(on, own_stream)};                     \
    if (!pacer_before(&paced)) return call;                                                 \
    return pacer_after(&paced, call)

// Defines the replacement of `symbol` as the function `name`. What `passes` is not paced. Where nothing is due, it goes on by a
// jump into the driver. It is three functions, so that neither where nothing is paced, nor on the fast path, anything has to
// be kept over a call.
#define PACED_AS(symbol, name, passes, work, on, own_stream, parameters, arguments)                         \
    static __attribute__((noinline)) cu_result slow_##symbol parameters {                                   \
        __typeof__(&name) real = (__typeof__(&name))real_needed(AT_##symbol);                               \
        if (real == NULL) return CU_SYMBOL_NOT_FOUND;                                                       \
        if (!process_is_paced() || (passes)) return real arguments;                                        \
        PACED_CALL(work, on, own_stream, real arguments);                                                   \
    }                                                                                                       \
    static __attribute__((noinline)) cu_result paced_##symbol parameters {                                  \
        __typeof__(&name) real = (__typeof__(&name))real_address(AT_##symbol);                              \
        if (real == NULL || (passes)) return slow_##symbol arguments;                                       \
        if (!pacer_pass(work, pacer_named(on, own_stream))) return slow_##symbol arguments;                 \
        return real arguments;                                                                              \
    }                                                                                                       \
    EXPORT cu_result name parameters {                                                                      \
        if (process_is_paced()) return paced_##symbol arguments;                                            \
        __typeof__(&name) real = (__typeof__(&name))real_address(AT_##symbol);                              \
        return real == NULL ? slow_##symbol arguments : real arguments;                                     \
    }

#define PACED_UNLESS(symbol, passes, work, on, own_stream, parameters, arguments) \
    PACED_AS(symbol, symbol, passes, work, on, own_stream, parameters, arguments)
#define PACED(symbol, work, on, own_stream, parameters, arguments) \
    PACED_AS(symbol, symbol, false, work, on, own_stream, parameters, arguments)

#endif // SLUICE_PACED_H

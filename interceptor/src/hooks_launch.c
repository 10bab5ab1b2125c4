// SPDX-License-Identifier: Apache-2.0
//
// Launches of kernels.

#include "paced.h"

#if defined(__x86_64__)
// What comes after six arguments lies on the stack, where the driver will find it. Taken as one structure, which the calling
// convention puts there in the same way, it is not moved about.
#define KERNEL(symbol, own_stream, ...)                                                                             \
    struct rest_##symbol {                                                                                          \
        uint64_t bz, shared;                                                                                        \
        cu_stream stream;                                                                                           \
        void **__VA_ARGS__;                                                                                         \
    };                                                                                                              \
    cu_result kernel_##symbol(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, struct rest_##symbol)  \
        __asm__(#symbol);                                                                                           \
    PACED_AS(symbol, kernel_##symbol, false, (uintptr_t)function, rest.stream, own_stream,                          \
             (cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,                \
              struct rest_##symbol rest),                                                                           \
             (function, gx, gy, gz, bx, by, rest))
KERNEL(cuLaunchKernel, false, parameters, **extra)
KERNEL(cuLaunchKernel_ptsz, true, parameters, **extra)
KERNEL(cuLaunchCooperativeKernel, false, parameters)
KERNEL(cuLaunchCooperativeKernel_ptsz, true, parameters)
#else
#define SIZES unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
PACED(cuLaunchKernel, (uintptr_t)function, stream, false,
      (cu_function function, SIZES, cu_stream stream, void **parameters, void **extra),
      (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
PACED(cuLaunchKernel_ptsz, (uintptr_t)function, stream, true,
      (cu_function function, SIZES, cu_stream stream, void **parameters, void **extra),
      (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
PACED(cuLaunchCooperativeKernel, (uintptr_t)function, stream, false,
      (cu_function function, SIZES, cu_stream stream, void **parameters),
      (function, gx, gy, gz, bx, by, bz, shared, stream, parameters))
PACED(cuLaunchCooperativeKernel_ptsz, (uintptr_t)function, stream, true,
      (cu_function function, SIZES, cu_stream stream, void **parameters),
      (function, gx, gy, gz, bx, by, bz, shared, stream, parameters))
#endif

PACED_UNLESS(cuLaunchKernelEx, how == NULL, (uintptr_t)function, how->stream, false,
             (const cu_launch_config *how, cu_function function, void **parameters, void **extra),
             (how, function, parameters, extra))
PACED_UNLESS(cuLaunchKernelEx_ptsz, how == NULL, (uintptr_t)function, how->stream, true,
             (const cu_launch_config *how, cu_function function, void **parameters, void **extra),
             (how, function, parameters, extra))
PACED(cuLaunch, (uintptr_t)function, NULL, false, (cu_function function), (function))
PACED(cuLaunchGrid, (uintptr_t)function, NULL, false, (cu_function function, int width, int height), (function, width, height))
PACED(cuLaunchGridAsync, (uintptr_t)function, stream, false,
      (cu_function function, int width, int height, cu_stream stream), (function, width, height, stream))

// Launches on several devices that wait for each other: each passes its own gate, one after another, then all go together.
EXPORT cu_result cuLaunchCooperativeKernelMultiDevice(cu_launch_params *launches, unsigned count, unsigned flags) {
    DRIVER(cuLaunchCooperativeKernelMultiDevice);
    struct pacer_launch paced[DEVICES];
    bool entered[DEVICES];
    if (!process_is_paced() || launches == NULL || count > DEVICES) return real(launches, count, flags);
    for (unsigned i = 0; i < count; i++) {
        paced[i] = (struct pacer_launch){.key = (uintptr_t)launches[i].function, .handle = launches[i].stream,
                                         .named = pacer_named(launches[i].stream, false)};
        entered[i] = pacer_before(&paced[i]);
    }
    cu_result result = real(launches, count, flags);
    for (unsigned i = 0; i < count; i++) {
        if (entered[i]) pacer_after(&paced[i], result);
    }
    return result;
}

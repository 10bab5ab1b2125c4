// SPDX-License-Identifier: Apache-2.0
//
// Launches of kernels. While the gate is open and no event is due, a launch goes on by a jump into the driver.

#include "export.h"
#include "paced.h"

#define DIMENSIONS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define SIZES gx, gy, gz, bx, by, bz, shared

EXPORT cu_result cuLaunchKernel(cu_function function, DIMENSIONS, cu_stream stream, void **parameters, void **extra) {
    DRIVER(cuLaunchKernel);
    PACED((uintptr_t)function, stream, false, real(function, SIZES, stream, parameters, extra));
}

EXPORT cu_result cuLaunchKernel_ptsz(cu_function function, DIMENSIONS, cu_stream stream, void **parameters, void **extra) {
    DRIVER(cuLaunchKernel_ptsz);
    PACED((uintptr_t)function, stream, true, real(function, SIZES, stream, parameters, extra));
}

EXPORT cu_result cuLaunchKernelEx(const cu_launch_config *how, cu_function function, void **parameters, void **extra) {
    DRIVER(cuLaunchKernelEx);
    if (how == NULL) return real(how, function, parameters, extra);
    PACED((uintptr_t)function, how->stream, false, real(how, function, parameters, extra));
}

EXPORT cu_result cuLaunchKernelEx_ptsz(const cu_launch_config *how, cu_function function, void **parameters, void **extra) {
    DRIVER(cuLaunchKernelEx_ptsz);
    if (how == NULL) return real(how, function, parameters, extra);
    PACED((uintptr_t)function, how->stream, true, real(how, function, parameters, extra));
}

EXPORT cu_result cuLaunchCooperativeKernel(cu_function function, DIMENSIONS, cu_stream stream, void **parameters) {
    DRIVER(cuLaunchCooperativeKernel);
    PACED((uintptr_t)function, stream, false, real(function, SIZES, stream, parameters));
}

EXPORT cu_result cuLaunchCooperativeKernel_ptsz(cu_function function, DIMENSIONS, cu_stream stream, void **parameters) {
    DRIVER(cuLaunchCooperativeKernel_ptsz);
    PACED((uintptr_t)function, stream, true, real(function, SIZES, stream, parameters));
}

// Launches on several devices that wait for each other: each passes its own gate, one after another, then all go together.
EXPORT cu_result cuLaunchCooperativeKernelMultiDevice(cu_launch_params *launches, unsigned count, unsigned flags) {
    DRIVER(cuLaunchCooperativeKernelMultiDevice);
    struct pacer_launch paced[DEVICES];
    bool entered[DEVICES];
    if (pacer_process() == NULL || launches == NULL || count > DEVICES) return real(launches, count, flags);
    for (unsigned i = 0; i < count; i++) {
        paced[i] = (struct pacer_launch){.key = (uintptr_t)launches[i].function, .handle = launches[i].stream,
                                         .stream = pacer_stream(launches[i].stream, false)};
        entered[i] = pacer_before(&paced[i]);
    }
    cu_result result = real(launches, count, flags);
    for (unsigned i = 0; i < count; i++) {
        if (entered[i]) pacer_after(&paced[i], result);
    }
    return result;
}

EXPORT cu_result cuLaunch(cu_function function) {
    DRIVER(cuLaunch);
    PACED((uintptr_t)function, NULL, false, real(function));
}

EXPORT cu_result cuLaunchGrid(cu_function function, int width, int height) {
    DRIVER(cuLaunchGrid);
    PACED((uintptr_t)function, NULL, false, real(function, width, height));
}

EXPORT cu_result cuLaunchGridAsync(cu_function function, int width, int height, cu_stream stream) {
    DRIVER(cuLaunchGridAsync);
    PACED((uintptr_t)function, stream, false, real(function, width, height, stream));
}

// SPDX-License-Identifier: Apache-2.0
// The kernels that this GPU knows.
#ifndef FAKEGPU_CUDA_MODULE_H
#define FAKEGPU_CUDA_MODULE_H

#include "core.h"

enum kernel {
    KERNEL_SPIN,  // fakegpu_spin(unsigned long long microseconds): keeps the GPU busy that long
    KERNEL_EMPTY, // fakegpu_empty(): takes no time
    // fakegpu_peer(unsigned long long id, unsigned long long parties, unsigned long long microseconds): keeps the GPU busy
    // until so many of that id run, of any process, and then that long
    KERNEL_PEER,
    KERNEL_ENDLESS, // fakegpu_endless(): keeps the GPU busy until its process is gone
    KERNELS,
};

struct cu_function_st {
    enum kernel kernel;
    cu_module module;
    int made; // handed out at least once
    // What the launches of CUDA's first versions take.
    unsigned block[3], argument_bytes;
    unsigned char arguments[64];
};

struct cu_module_st {
    struct cu_module_st *next;
    struct cu_function_st functions[KERNELS];
    uint64_t bytes; // of code
    int resident;   // its code is on the device
    cu_library library;
};

// The function's module is loaded in the context.
int module_owns(cu_context context, cu_function function);
// Brings the module's code to the device, as loading does, or with lazy loading the first launch.
cu_result module_resident(struct core *core, cu_context context, cu_function function);

#endif

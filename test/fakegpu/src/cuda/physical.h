// SPDX-License-Identifier: Apache-2.0
// Physical memory: it is held while a handle, a mapping or a binding refers to it.
#ifndef FAKEGPU_CUDA_PHYSICAL_H
#define FAKEGPU_CUDA_PHYSICAL_H

#include "space.h"

struct physical {
    struct physical *next;
    int device; // -1: host memory
    uint64_t size;
    int references; // handles, mappings and bindings together
    int handles;
    int object; // what other processes see of it, -1: nothing
    cu_physical_properties properties;
};

// Makes one of the process's own, charged; shared ones can be handed to other processes.
cu_result physical_make(struct core *core, const cu_physical_properties *properties, uint64_t size, int shared,
                        struct physical **made);
// Takes another process's (or, again, one's own).
cu_result physical_import(struct core *core, int object, struct physical **made);
// One that a handle refers to, or NULL.
struct physical *physical_find(cu_physical handle);
// Gives back a reference; with the last one it is gone.
void physical_put(struct core *core, struct physical *physical);

#endif

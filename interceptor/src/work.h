// SPDX-License-Identifier: Apache-2.0
//
// Keys of work that is no function: a class, and the size to a power of two. Below any address.

#ifndef SLUICE_WORK_H
#define SLUICE_WORK_H

#include <stdint.h>

enum work { COPY = 1, COPY_PEER, COPY_ARRAY, COPY_2D, COPY_3D, COPY_BATCH, SET, SET_2D };

#define WORK(class, size) ((uint64_t)(class) << 6 | (uint64_t)(63 - __builtin_clzll((unsigned long long)(size) | 1)))

#endif // SLUICE_WORK_H

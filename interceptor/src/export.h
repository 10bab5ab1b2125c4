// SPDX-License-Identifier: Apache-2.0
//
// What a replacement begins with.

#ifndef SLUICE_EXPORT_H
#define SLUICE_EXPORT_H

#include "real.h"

#define EXPORT __attribute__((visibility("default")))

// The driver's own function in a replacement. A linked program calls replacements without any look-up before.
#define NEEDED(symbol) ((__typeof__(&symbol))real_needed(AT_##symbol))

// Begins a replacement: `real` is the driver's function; where the driver has none, that is the answer.
#define DRIVER(symbol)                              \
    __typeof__(&symbol) real = NEEDED(symbol);      \
    if (real == NULL) return CU_SYMBOL_NOT_FOUND

#endif // SLUICE_EXPORT_H

// SPDX-License-Identifier: Apache-2.0
//
// Handing out replacements: by name to dlsym, by the driver's address to cuGetProcAddress.

#ifndef SLUICE_DISPATCH_H
#define SLUICE_DISPATCH_H

#include "real.h"

// How a name is answered: where to go on with which name, or the answer itself where `go` is NULL.
struct dlsym_answer {
    void *go;
    const void *value;
};

// Called by the entry of dlsym (dlsym_entry.c).
struct dlsym_answer sluice_dlsym_answer(void *handle, const char *name);

#endif // SLUICE_DISPATCH_H

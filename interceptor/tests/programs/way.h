// SPDX-License-Identifier: Apache-2.0
//
// One way to hold device memory. Each program defines `way`; way.c drives it: take pieces until one is refused, tell what is
// held, give all back through one of the legal calls, take again, and so through all of them.
#ifndef SLUICE_TESTS_WAY_H
#define SLUICE_TESTS_WAY_H

#include "driver.h"

enum { MOST_PIECES = 8192 };

struct way {
    size_t piece;            // bytes of one piece, as they are charged
    int most;                // pieces at most; 0: until refused
    result (*start)(void);   // once, with the context current; may be NULL
    result (*take)(int i);   // takes the piece of that number
    result (*give)(int i, int by); // gives it back by one of the calls
    result (*settle)(int by);      // after all were given back; may be NULL
    int calls;               // in how many ways it can be given back
};

extern const struct way way;

// Ends the program with a message when a call fails that must not.
void must(result got, const char *what);

#endif

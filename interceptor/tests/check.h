// SPDX-License-Identifier: Apache-2.0
//
// What a unit test is made of: CHECK says what did not hold and goes on; the program's status says whether all did.

#ifndef SLUICE_TESTS_CHECK_H
#define SLUICE_TESTS_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition, ...)                                           \
    do {                                                                \
        if (!(condition)) {                                             \
            failures++;                                                 \
            printf("FAIL  %s:%d: %s: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                        \
            printf("\n");                                               \
        }                                                               \
    } while (0)

static int finish(const char *name) {
    printf("%s  %s\n", failures == 0 ? "ok  " : "FAIL", name);
    return failures != 0;
}

#endif // SLUICE_TESTS_CHECK_H

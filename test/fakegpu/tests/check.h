// SPDX-License-Identifier: Apache-2.0
// The little that the tests need: a sentence for each case, and a count of failures.
#ifndef FAKEGPU_TESTS_CHECK_H
#define FAKEGPU_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

// Says whether what the sentence claims is so.
#define CHECK(sentence, condition)                                                         \
    do {                                                                                   \
        int holds = (condition) != 0;                                                      \
        printf("%s  %s\n", holds ? "ok  " : "FAIL", sentence);                             \
        if (!holds) printf("      %s:%d: %s\n", __FILE__, __LINE__, #condition);           \
        failures += !holds;                                                                \
    } while (0)

// The same for a return code, which is shown when it is another.
#define CHECK_CODE(sentence, want, call)                                                   \
    do {                                                                                   \
        int got = (int)(call);                                                             \
        printf("%s  %s\n", got == (want) ? "ok  " : "FAIL", sentence);                     \
        if (got != (want)) printf("      %s:%d: got %d, want %d\n", __FILE__, __LINE__, got, (int)(want)); \
        failures += got != (want);                                                         \
    } while (0)

// Runs the program that sets the state, which BUILD names the directory of.
static inline int fakegpu(const char *arguments) {
    char line[1024];
    snprintf(line, sizeof line, "%s/fakegpu %s", getenv("BUILD"), arguments);
    return system(line);
}

// A fresh state file for this test program; FAKEGPU_STATE names it.
static inline void fresh_node(const char *create_options) {
    char path[256], arguments[640];
    snprintf(path, sizeof path, "%s/test-%ld.state", getenv("BUILD"), (long)getpid());
    setenv("FAKEGPU_STATE", path, 1);
    snprintf(arguments, sizeof arguments, "create --force --state %s --seed test %s", path, create_options);
    if (fakegpu(arguments) != 0) {
        printf("FAIL  a node can be made\n");
        exit(1);
    }
}

static inline int finish(void) {
    unlink(getenv("FAKEGPU_STATE"));
    printf("%s\n", failures == 0 ? "all hold" : "SOME DO NOT HOLD");
    return failures != 0;
}

#endif

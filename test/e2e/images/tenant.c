// SPDX-License-Identifier: Apache-2.0
//
// A tenant's CUDA program. It takes memory of the first GPU, says in one line of JSON what came of it, and then holds what it
// has until it is told to end.
//   tenant [--chunk MIB] [--most CHUNKS] [--exit]
// Without --most it takes chunks until it is refused; with --exit it ends at once and holds nothing.
// The same source, linked with the fake driver's own objects and statically, is a program that no library can reach.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int result;
enum { SUCCESS = 0 };

extern result cuInit(unsigned flags);
extern result cuDevicePrimaryCtxRetain(void **context, int device);
extern result cuCtxSetCurrent(void *context);
extern result cuMemAlloc_v2(unsigned long long *at, size_t size);
extern result cuMemGetInfo_v2(size_t *free, size_t *total);

static void must(result got, const char *call) {
    if (got == SUCCESS) return;
    printf("{\"failed\":\"%s\",\"error\":%d}\n", call, got);
    exit(1);
}

static long number(const char *option, const char *text) {
    char *end = NULL;
    long value = text == NULL ? -1 : strtol(text, &end, 10);
    if (value >= 0 && end != text && *end == '\0') return value;
    fprintf(stderr, "%s wants a whole number\n", option);
    exit(2);
}

int main(int count, char **arguments) {
    long chunk = 64, most = -1;
    int leave = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--exit") == 0) {
            leave = 1;
        } else if (strcmp(arguments[i], "--chunk") == 0) {
            chunk = number("--chunk", arguments[++i]);
        } else if (strcmp(arguments[i], "--most") == 0) {
            most = number("--most", arguments[++i]);
        } else {
            fprintf(stderr, "do not know what to do with \"%s\"\n", arguments[i]);
            return 2;
        }
    }
    // Before there are other threads, which inherit it: the wait below is the only one who is told.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);

    void *context;
    must(cuInit(0), "cuInit");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    long taken = 0;
    result error = SUCCESS;
    for (unsigned long long at; taken != most && (error = cuMemAlloc_v2(&at, (size_t)chunk << 20)) == SUCCESS;) taken++;
    size_t free_bytes = 0, total = 0;
    must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
    printf("{\"pid\":%d,\"chunk\":%ld,\"chunks\":%ld,\"error\":%d,\"free\":%zu,\"total\":%zu}\n", getpid(), chunk, taken, error,
           free_bytes, total);
    fflush(stdout);
    int told;
    if (!leave) sigwait(&ends, &told);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// A tenant's CUDA program. It takes memory of the first GPU, says in one line of JSON what came of it, and then holds what it
// has until it is told to end. "at" is when it had the first chunk, in milliseconds of the wall clock; "context" is what a context
// is charged in the share that the program sees, 0 where it sees none.
//   tenant [--chunk MIB] [--most CHUNKS] [--exit]
// Without --most it takes chunks until it is refused; with --exit it ends at once and holds nothing.
// The same source, linked with the fake driver's own objects and statically, is a program that no library can reach.
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sluice_abi.h"

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

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec * 1000LL + at.tv_nsec / 1000000;
}

static unsigned long long charged(void) {
    unsigned long long context = 0;
    DIR *claims = opendir("/run/sluice");
    for (struct dirent *claim; claims != NULL && context == 0 && (claim = readdir(claims)) != NULL;) {
        char path[300];
        struct sluice_limits limits;
        snprintf(path, sizeof path, "/run/sluice/%s/0/limits", claim->d_name);
        FILE *page = fopen(path, "re");
        if (page == NULL) continue;
        if (fread(&limits, sizeof limits, 1, page) == 1) context = limits.context;
        fclose(page);
    }
    if (claims != NULL) closedir(claims);
    return context;
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
    long long first = 0;
    for (unsigned long long at; taken != most && (error = cuMemAlloc_v2(&at, (size_t)chunk << 20)) == SUCCESS;) {
        if (taken++ == 0) first = now();
    }
    size_t free_bytes = 0, total = 0;
    must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
    printf("{\"pid\":%d,\"chunk\":%ld,\"chunks\":%ld,\"error\":%d,\"free\":%zu,\"total\":%zu,\"at\":%lld,\"context\":%llu}\n", getpid(),
           chunk, taken, error, free_bytes, total, first, charged());
    fflush(stdout);
    int told;
    if (!leave) sigwait(&ends, &told);
    return 0;
}

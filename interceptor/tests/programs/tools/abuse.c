// SPDX-License-Identifier: Apache-2.0
//
// Programs that misuse the driver or their own process: abuse KIND. A context and 1 GiB are held before ("ready") and after
// ("after"), when everything else has to be given back.
//   frees     frees of what was freed, of foreign and of wrong pointers
//   sizes     sizes of zero, without an end, and such as look negative
//   nofile    no more than three descriptors from here on
//   closes    close_range of all but the driver's descriptor while another thread allocates
//   hidden    an empty directory over the ledger's, and no descriptor of the ledger left
//   forks     forks, each child at once killed, while another thread allocates
//   resets    the primary context is reset while another thread allocates in it
//   destroys  contexts destroyed while other threads allocate in them
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static handle primary;
static atomic_bool ended;
static atomic_int worst;

static void tell(const char *step, result error) {
    printf("{\"step\":\"%s\",\"error\":%d}\n", step, error);
    fflush(stdout);
    if (getchar() == EOF) exit(0);
}

static result frees(void) {
    pointer at, other;
    if (cu.cuMemAlloc(&at, 64 * MIB) != SUCCESS || cu.cuMemAlloc(&other, 64 * MIB) != SUCCESS) return 1;
    if (cu.cuMemFree(at + 4096) == SUCCESS || cu.cuMemFree((pointer)(uintptr_t)&at) == SUCCESS) return 2;
    if (cu.cuMemFree(at) != SUCCESS || cu.cuMemFree(at) == SUCCESS || cu.cuMemFreeAsync(at, NULL) == SUCCESS) return 3;
    if (cu.cuIpcCloseMemHandle(other) == SUCCESS || cu.cuMemFree(~(pointer)0) == SUCCESS) return 4;
    if (cu.cuMemRelease(other) == SUCCESS || cu.cuMemUnmap(other, 64 * MIB) == SUCCESS) return 5;
    return cu.cuMemFree(other);
}

static result sizes(void) {
    static const size_t wrong[] = {(size_t)-1, (size_t)-4096, (size_t)-(2 << 20), (size_t)1 << 63, (size_t)1 << 62,
                                   ((size_t)1 << 44) - 4096, (size_t)1 << 44, ((size_t)1 << 44) + 4096};
    const struct physical_properties plain = {.type = 1, .location = {.type = 1, .id = 0}};
    unsigned long long physical;
    pointer at;
    size_t pitch;
    handle array;
    if (cu.cuMemAlloc(&at, 0) == SUCCESS || cu.cuMemAllocPitch(&at, &pitch, 0, 7, 4) == SUCCESS) return 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct array3d cells = {.width = wrong[i], .height = wrong[i], .depth = 2, .format = 0x20, .channels = 4};
        if (cu.cuMemAlloc(&at, wrong[i]) == SUCCESS || cu.cuMemAllocManaged(&at, wrong[i], 1) == SUCCESS) return 2;
        if (cu.cuMemAllocPitch(&at, &pitch, wrong[i], 2, 4) == SUCCESS) return 3;
        if (cu.cuMemAllocPitch(&at, &pitch, 3, wrong[i], 4) == SUCCESS) return 4;
        if (cu.cuMemAllocAsync(&at, wrong[i], NULL) == SUCCESS) return 5;
        if (cu.cuMemCreate(&physical, wrong[i], &plain, 0) == SUCCESS) return 6;
        if (cu.cuArray3DCreate(&array, &cells) == SUCCESS) return 7;
    }
    return SUCCESS;
}

static result once(size_t size) {
    pointer at;
    result got = cu.cuMemAlloc(&at, size);
    return got == SUCCESS ? cu.cuMemFree(at) : got;
}

static result nofile(void) {
    const struct rlimit three = {.rlim_cur = 3, .rlim_max = 3};
    if (setrlimit(RLIMIT_NOFILE, &three) != 0) return 1;
    for (size_t size = MIB; size <= 4096 * MIB; size *= 4) {
        if (once(size) != SUCCESS) return 2;
    }
    return SUCCESS;
}

static bool is_drivers(int fd) {
    char link[64], path[512];
    const char *driver = getenv("FAKEGPU_STATE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = '\0';
    return driver != NULL && strcmp(path, driver) == 0;
}

static void close_all(void) {
    for (int fd = 3; fd < 1024; fd++) {
        if (!is_drivers(fd)) close(fd);
    }
}

static atomic_bool persistent;

static void *allocate(void *context) {
    result got = cu.cuCtxSetCurrent(context);
    for (size_t size = MIB; (got == SUCCESS || atomic_load(&persistent)) && !atomic_load(&ended);
         size = size > 2048 * MIB ? MIB : size * 3) {
        got = once(size);
    }
    if (got != SUCCESS) atomic_store(&worst, got);
    return NULL;
}

static result beside(void (*act)(void), int times) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate, primary) != 0) return 1;
    for (int i = 0; i < times; i++) act();
    atomic_store(&ended, true);
    pthread_join(thread, NULL);
    return atomic_load(&worst);
}

static void fork_once(void) {
    pid_t child = fork();
    if (child == 0) {
        pointer at;
        cu.cuMemAlloc(&at, MIB); // fails after a fork, and must not wait for a thread that is not here
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static result hidden(void) {
    bool drivers[1024];
    for (int fd = 3; fd < 1024; fd++) drivers[fd] = is_drivers(fd);
    if (once(2048 * MIB) != SUCCESS) return 1;
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 2;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) != 0) return 3;
    if (chdir("/dev") != 0) return 3;
    if (once(3072 * MIB) != SUCCESS) return 4; // the descriptor is still there
    for (int fd = 3; fd < 1024; fd++) {
        if (!drivers[fd]) close(fd);
    }
    return once(6144 * MIB) == SUCCESS ? 5 : SUCCESS; // and now nothing can tell what others have
}

static void reset_once(void) {
    handle again;
    cu.cuDevicePrimaryCtxReset(0);
    if (cu.cuDevicePrimaryCtxRetain(&again, 0) == SUCCESS) primary = again;
}

// What the reset took along is taken again.
static result resets(pointer *held) {
    atomic_store(&persistent, true);
    beside(reset_once, 200);
    if (cu.cuCtxSetCurrent(primary) != SUCCESS) return 1;
    return cu.cuMemAlloc(held, 1024 * MIB);
}

static void *destroy(void *unused) {
    (void)unused;
    for (int i = 0; i < 40; i++) {
        handle context;
        pthread_t thread;
        if (cu.cuCtxCreate(&context, 0, 0) != SUCCESS) return (void *)1;
        atomic_store(&ended, false);
        if (pthread_create(&thread, NULL, allocate, context) != 0) return (void *)2;
        for (int spin = 0; spin < i * 3; spin++) sched_yield();
        result got = cu.cuCtxDestroy(context);
        atomic_store(&ended, true);
        pthread_join(thread, NULL);
        if (got != SUCCESS) return (void *)3;
    }
    return NULL;
}

static result destroys(void) {
    result got = (result)(intptr_t)destroy(NULL);
    return got == SUCCESS ? cu.cuCtxSetCurrent(primary) : got;
}

int main(int count, char **arguments) {
    pointer held;
    const char *kind = count == 2 ? arguments[1] : "";
    driver_reach();
    if (cu.cuInit(0) != SUCCESS || cu.cuDevicePrimaryCtxRetain(&primary, 0) != SUCCESS) return 2;
    if (cu.cuCtxSetCurrent(primary) != SUCCESS || cu.cuMemAlloc(&held, 1024 * MIB) != SUCCESS) return 2;
    tell("ready", SUCCESS);
    result error = strcmp(kind, "frees") == 0    ? frees()
                   : strcmp(kind, "sizes") == 0    ? sizes()
                   : strcmp(kind, "nofile") == 0   ? nofile()
                   : strcmp(kind, "closes") == 0   ? beside(close_all, 100)
                   : strcmp(kind, "forks") == 0    ? beside(fork_once, 200)
                   : strcmp(kind, "hidden") == 0   ? hidden()
                   : strcmp(kind, "resets") == 0   ? resets(&held)
                   : strcmp(kind, "destroys") == 0 ? destroys()
                                                   : 99;
    tell("after", error);
    return cu.cuMemFree(held);
}

// SPDX-License-Identifier: Apache-2.0
//
// What becomes of memory and of its charge when processes multiply: family KIND. Each kind holds 1 GiB first, does what its
// name says, and tells at "ready" what the parent holds then. At "after" the parent still has to hold it, whatever its
// children did, except after exec, which drops all.
//   fork      children that end at once, and one that tries CUDA (which it cannot after a fork)
//   vfork     vfork and exec
//   clone     a raw clone of the process that ends at once
//   closes    every descriptor from 3 up but the driver's is closed, as daemons do
//   exec      this process becomes another one that holds nothing
//   thread    a thread without a context allocates where no context is needed
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static void tell(const char *step, result error) {
    printf("{\"step\":\"%s\",\"error\":%d}\n", step, error);
    fflush(stdout);
    if (getchar() == EOF) exit(0);
}

static result reap(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static result forks(void) {
    result worst = SUCCESS;
    for (int i = 0; i < 20 && worst == SUCCESS; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        worst = reap(child);
    }
    pid_t child = fork();
    if (child == 0) {
        pointer at;
        _exit(cu.cuInit(0) == SUCCESS && cu.cuMemAlloc(&at, MIB) == SUCCESS); // one of them has to fail
    }
    return worst == SUCCESS ? reap(child) : worst;
}

static result vforks(void) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    return reap(child);
}

static result clones(void) {
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) syscall(SYS_exit, 0);
    return reap(child);
}

// All but the driver's own, without which no process could go on.
static result closes(void) {
    const char *driver = getenv("FAKEGPU_STATE");
    for (int fd = 3; fd < 1024; fd++) {
        char link[64], path[512];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length < 0) continue;
        path[length] = '\0';
        if (driver == NULL || strcmp(path, driver) != 0) close(fd);
    }
    pointer at;
    result got = cu.cuMemAlloc(&at, 2048 * MIB);
    return got == SUCCESS ? cu.cuMemFree(at) : got;
}

static void *without_context(void *argument) {
    const struct physical_properties properties = {.type = 1, .location = {.type = 1, .id = 0}};
    unsigned long long physical;
    result got = cu.cuMemCreate(&physical, 1024 * MIB, &properties, 0);
    if (got == SUCCESS) got = cu.cuMemRelease(physical);
    *(result *)argument = got;
    return NULL;
}

static result threads(void) {
    pthread_t thread;
    result got = -1;
    if (pthread_create(&thread, NULL, without_context, &got) != 0) return -1;
    pthread_join(thread, NULL);
    return got;
}

static result becomes(void) {
    execl("/proc/self/exe", "family", "nothing", (char *)NULL);
    return -1;
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        result (*run)(void);
    } kinds[] = {{"fork", forks}, {"vfork", vforks}, {"clone", clones}, {"closes", closes}, {"exec", becomes}, {"thread", threads}};
    handle context;
    pointer at;
    if (count != 2) return 2;
    if (strcmp(arguments[1], "nothing") == 0) {
        tell("after", SUCCESS);
        return 0;
    }
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuMemAlloc(&at, 1024 * MIB);
    tell("ready", error);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(arguments[1], kinds[i].name) == 0) tell("after", kinds[i].run());
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// A program with privileges under the library: privileged DIR LIBRARY. As root, in a mount namespace of its own, a copy of this
// program is made setuid root, the library and the fake driver of DIR are named in /etc/ld.so.preload, and user 65534 starts
// the copy with an environment that asks for a limit. The copy prints the total that it is told, and whether it has privileges.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

static void must(int bad, const char *what) {
    if (!bad) return;
    fprintf(stderr, "privileged: %s: %s\n", what, strerror(errno));
    exit(4);
}

static void copy(const char *from, const char *to, mode_t mode) {
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    struct stat at;
    must(in < 0 || out < 0 || fstat(in, &at) != 0, from);
    must(sendfile(out, in, NULL, (size_t)at.st_size) != at.st_size || fchmod(out, mode) != 0, to);
    close(in);
    close(out);
}

static int tell(void) {
    handle context;
    size_t total = 0;
    pointer at;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuMemAlloc(&at, 64 * MIB);
    if (error == SUCCESS) error = cu.cuDeviceTotalMem(&total, 0);
    printf("{\"secure\":%d,\"uid\":%d,\"error\":%d,\"total\":%zu}\n", getauxval(AT_SECURE) != 0, (int)geteuid(), error, total);
    return 0;
}

int main(int count, char **arguments) {
    char driver[512], *copied[] = {(char[]){"/run/program"}, NULL};
    if (count == 1) return tell();
    if (count != 3) return 2;
    must(unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0, "unshare");
    must(mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0 || chmod("/run", 0755) != 0, "mounting /run");
    snprintf(driver, sizeof driver, "%s/libcuda.so.1", arguments[1]);
    copy(driver, "/run/libcuda.so.1", 0755);
    copy(arguments[2], "/run/libsluice.so", 0755);
    copy("/proc/self/exe", copied[0], 04755);
    must(mount("tmpfs", "/etc", "tmpfs", 0, NULL) != 0 || chmod("/etc", 0755) != 0, "mounting /etc");
    int fd = open("/etc/ld.so.preload", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(fd < 0 || dprintf(fd, "/run/libsluice.so /run/libcuda.so.1\n") < 0 || fchmod(fd, 0644) != 0, "/etc/ld.so.preload");
    close(fd);
    must(setgid(65534) != 0 || setuid(65534) != 0 || chdir("/") != 0, "setuid");
    execv(copied[0], copied);
    must(1, copied[0]);
}

// SPDX-License-Identifier: Apache-2.0
//
// Runs a program as a tenant's container sees things: tenant DIR HOW PROGRAM [ARGUMENTS]. In a mount namespace of its own (and
// where that needs it a user namespace) the library and the files of the share in DIR are bound to where the agent mounts
// them, and the program starts with the library. HOW is one letter for each part:
//   l  limits, read-only       w  limits, writable       c  limits, a copy on another file system
//   u  usage                   2  a second share of the same device, from limits2 and usage2
//   p  a PID namespace of its own, in which the program is process 1
//   1  a version of one character, 1 instead of 1.0
//   s  the program names the library in another spelling than the agent does
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int bad, const char *what) {
    if (!bad) return;
    fprintf(stderr, "tenant: %s: %s\n", what, strerror(errno));
    exit(4);
}

static void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd < 0 || write(fd, text, strlen(text)) < 0, path);
    close(fd);
}

static void leave_the_host(void) {
    char map[64];
    unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();
    if (unshare(CLONE_NEWNS) != 0) {
        must(unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0, "unshare");
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", uid);
        write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", gid);
        write_text("/proc/self/gid_map", map);
    }
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0, "making mounts private");
    must(mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0, "mounting /run");
}

static void bind(const char *from, const char *to, int writable) {
    int fd = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(fd < 0, to);
    close(fd);
    must(mount(from, to, NULL, MS_BIND, NULL) != 0, from);
    // In a user namespace the flags that the mount has already may not be dropped.
    must(!writable && mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) != 0 &&
             mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0, to);
}

static void copy(const char *from, const char *to) {
    char page[4096];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(in < 0 || out < 0 || read(in, page, sizeof page) < 0 || write(out, page, sizeof page) < 0, to);
    close(in);
    close(out);
    must(mount(to, to, NULL, MS_BIND, NULL) != 0 || mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0, to);
}

static void share(const char *dir, const char *suffix, const char *index, const char *how) {
    char from[512], to[128];
    snprintf(to, sizeof to, "/run/sluice/claim/%s", index);
    must(mkdir(to, 0755) != 0, to);
    snprintf(from, sizeof from, "%s/limits%s", dir, suffix);
    snprintf(to, sizeof to, "/run/sluice/claim/%s/limits", index);
    if (strchr(how, 'c') != NULL) copy(from, to);
    if (strpbrk(how, "lw") != NULL) bind(from, to, strchr(how, 'w') != NULL);
    snprintf(from, sizeof from, "%s/usage%s", dir, suffix);
    snprintf(to, sizeof to, "/run/sluice/claim/%s/usage", index);
    if (strchr(how, 'u') != NULL) bind(from, to, 1);
}

// Ends with the program, and takes it along.
static void become_first_process(void) {
    int status = 0;
    must(unshare(CLONE_NEWPID) != 0, "unshare");
    pid_t child = fork();
    must(child < 0, "fork");
    if (child == 0) {
        must(prctl(PR_SET_PDEATHSIG, SIGKILL) != 0, "prctl");
        return;
    }
    must(waitpid(child, &status, 0) != child, "waitpid");
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

int main(int count, char **arguments) {
    char from[512], dir[64], library[96];
    if (count < 4) return 2;
    snprintf(dir, sizeof dir, "/run/sluice/lib/%s", strchr(arguments[2], '1') != NULL ? "1" : "1.0");
    snprintf(library, sizeof library, "%s/libsluice.so", dir);
    leave_the_host();
    must(mkdir("/run/sluice", 0755) != 0 || mkdir("/run/sluice/lib", 0755) != 0 || mkdir(dir, 0755) != 0, "mkdir");
    must(mkdir("/run/sluice/claim", 0755) != 0, "mkdir");
    snprintf(from, sizeof from, "%s/libsluice.so", arguments[1]);
    bind(from, library, 0);
    share(arguments[1], "", "0", arguments[2]);
    if (strchr(arguments[2], '2') != NULL) share(arguments[1], "2", "1", arguments[2]);
    if (strchr(arguments[2], 'p') != NULL) become_first_process();
    snprintf(from, sizeof from, "%s%s", strchr(arguments[2], 's') != NULL ? "//run/./sluice/../.." : "", library);
    must(setenv("LD_PRELOAD", from, 1) != 0, "setenv");
    execv(arguments[3], &arguments[3]);
    must(1, arguments[3]);
}

// SPDX-License-Identifier: Apache-2.0
//
// A mount namespace of one's own, as a container has it, and in it binds of what the agent mounts.
#ifndef SLUICE_TESTS_MOUNTS_H
#define SLUICE_TESTS_MOUNTS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static inline void must(int bad, const char *what) {
    if (!bad) return;
    fprintf(stderr, "mounts: %s: %s\n", what, strerror(errno));
    exit(4);
}

static inline void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd < 0 || write(fd, text, strlen(text)) < 0, path);
    close(fd);
}

static inline void leave_the_host(void) {
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

static inline void bind(const char *from, const char *to, int writable) {
    int fd = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(fd < 0, to);
    close(fd);
    must(mount(from, to, NULL, MS_BIND, NULL) != 0, from);
    // In a user namespace the flags that the mount has already may not be dropped.
    must(!writable && mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) != 0 &&
             mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0, to);
}

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Ringing. The FIFO is opened once, on a high descriptor; a program may have closed it, and have another file there now.

#include "bell.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Descriptors below this are the program's.
#define HIGH_DESCRIPTOR 900

// The kernel's set of signals, which has one bit each.
#define SIGPIPE_BIT (1ull << (SIGPIPE - 1))
#define SET_BYTES 8

static bool open_bell(struct bell *bell, const char *directory) {
    char path[192];
    struct stat at;
    snprintf(path, sizeof path, "%s/bell", directory);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW), high;
    if (fd < 0) return false;
    high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (syscall(SYS_fstat, fd, &at) != 0 || !S_ISFIFO(at.st_mode)) {
        close(fd);
        return false;
    }
    *bell = (struct bell){.fd = fd, .device = at.st_dev, .inode = at.st_ino};
    return true;
}

static bool still_open(const struct bell *bell) {
    struct stat at;
    return bell->fd > 0 && syscall(SYS_fstat, bell->fd, &at) == 0 && at.st_dev == bell->device && at.st_ino == bell->inode;
}

// Writes with SIGPIPE blocked, and takes the one that it caused back: whose reader is gone must not kill the program.
static bool write_quietly(int fd) {
    uint64_t pipe_only = SIGPIPE_BIT, before = 0, pending = 0;
    struct timespec at_once = {0};
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &pipe_only, &before, SET_BYTES);
    syscall(SYS_rt_sigpending, &pending, SET_BYTES);
    bool gone = write(fd, "", 1) < 0 && errno == EPIPE;
    if (gone && !(pending & SIGPIPE_BIT)) syscall(SYS_rt_sigtimedwait, &pipe_only, NULL, &at_once, SET_BYTES);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SET_BYTES);
    return !gone;
}

void bell_ring(struct bell *bell, const char *directory) {
    int kept = errno;
    if (!still_open(bell)) bell->fd = 0;
    if (bell->fd > 0 || open_bell(bell, directory)) {
        if (!write_quietly(bell->fd)) {
            close(bell->fd);
            bell->fd = 0;
        }
    }
    errno = kept;
}

// SPDX-License-Identifier: Apache-2.0
//
// The ledger's byte-range locks. They are classic POSIX locks: they belong to the process, so a child of fork has none of
// them, they work across PID namespaces, and the kernel drops them at any death. Their trap is that closing any descriptor
// of the file drops them all; so the file is opened once, high up, and every slow path takes its life byte again. Since they
// outlast no process, they say who lives; the number of the PID namespace is only for showing.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ledger_lock.h"

// Descriptors below this are the program's.
#define HIGH_DESCRIPTOR 900

static int lock_byte(int fd, int command, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &lock);
    } while (result != 0 && errno == EINTR);
    return result;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

bool ledger_lock_growth(struct ledger *ledger) {
    if (lock_byte(ledger->fd, F_SETLK, F_WRLCK, SLUICE_USAGE_GROWTH_BYTE) == 0) return true;
    uint64_t began = now();
    while (lock_byte(ledger->fd, F_SETLKW, F_WRLCK, SLUICE_USAGE_GROWTH_BYTE) != 0) {
        if (errno != EDEADLK) return false;
        // The kernel sees a circle where threads of two programs wait for each other's locks on other files.
        struct timespec moment = {.tv_nsec = 1000000};
        nanosleep(&moment, NULL);
    }
    ledger->waited += now() - began;
    if (ledger->slot >= 0) __atomic_store_n(&ledger->page->slots[ledger->slot].lock_wait, ledger->waited, __ATOMIC_RELAXED);
    return true;
}

void ledger_unlock_growth(struct ledger *ledger) {
    lock_byte(ledger->fd, F_SETLK, F_UNLCK, SLUICE_USAGE_GROWTH_BYTE);
}

bool ledger_lock_life(struct ledger *ledger, unsigned slot) {
    return lock_byte(ledger->fd, F_SETLK, F_WRLCK, SLUICE_USAGE_LIFE_BYTE(slot)) == 0;
}

void ledger_unlock_life(struct ledger *ledger, unsigned slot) {
    lock_byte(ledger->fd, F_SETLK, F_UNLCK, SLUICE_USAGE_LIFE_BYTE(slot));
}

bool ledger_lives(struct ledger *ledger, unsigned slot) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLUICE_USAGE_LIFE_BYTE(slot), .l_len = 1};
    if ((int)slot == ledger->slot) return true;
    // A lock that cannot be asked for proves no death.
    return fcntl(ledger->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int ledger_open_file(const char *path) {
    int low = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    if (low < 0) return -1;
    int high = fcntl(low, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return low; // the program's own limit of descriptors is lower
    close(low);
    return high;
}

bool ledger_check_descriptor(struct ledger *ledger) {
    struct stat found;
    if (ledger->fd >= 0 && syscall(SYS_fstat, ledger->fd, &found) == 0 && found.st_dev == ledger->device &&
        found.st_ino == ledger->inode) {
        return true;
    }
    int fd = ledger_open_file(ledger->path);
    if (fd < 0) return false;
    if (syscall(SYS_fstat, fd, &found) != 0 || found.st_dev != ledger->device || found.st_ino != ledger->inode) {
        close(fd);
        return false;
    }
    ledger->fd = fd;
    return true;
}

uint32_t ledger_pid_namespace(void) {
    char link[64];
    unsigned inode = 0;
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    if (length > 0) {
        link[length] = '\0';
        if (sscanf(link, "pid:[%u]", &inode) != 1) inode = 0;
    }
    return inode;
}

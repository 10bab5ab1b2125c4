// SPDX-License-Identifier: Apache-2.0
//
// Finding shares and telling genuine ones from look-alikes.

#include "share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mode.h"
#include "own.h"
#include "quota.h"

// Who host root is inside a user namespace that does not map it.
#define UNMAPPED_UID 65534

// The device that this library's own pages come from. The mapping is asked, not the path: another file can be mounted there.
static bool own_device(const char *own_path, dev_t *device) {
    struct own_mapping mapping;
    if (own_mapping(&mapping)) {
        *device = mapping.device;
        return true;
    }
    int fd = open(own_path, O_PATH | O_CLOEXEC);
    struct stat at;
    bool found = fd >= 0 && syscall(SYS_fstat, fd, &at) == 0;
    if (found) *device = at.st_dev;
    if (fd >= 0) close(fd);
    return found;
}

// Maps a page that the agent made: root's, regular, on a read-only mount, on the device of the agent's library.
static const void *map_genuine(const char *path, dev_t device, size_t size) {
    struct stat at;
    struct statvfs mount;
    void *page = MAP_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return NULL;
    if (syscall(SYS_fstat, fd, &at) == 0 && S_ISREG(at.st_mode) && (at.st_uid == 0 || at.st_uid == UNMAPPED_UID) &&
        at.st_dev == device && at.st_size == (off_t)size && fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0) {
        page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static const struct sluice_limits *map_limits(const char *path, dev_t device) {
    const struct sluice_limits *limits = map_genuine(path, device, SLUICE_LIMITS_SIZE);
    if (limits != NULL && (__atomic_load_n(&limits->magic, __ATOMIC_ACQUIRE) != SLUICE_LIMITS_MAGIC ||
                           limits->min_reader > SLUICE_ABI_VERSION)) {
        munmap((void *)(uintptr_t)limits, SLUICE_LIMITS_SIZE);
        return NULL;
    }
    return limits;
}

const struct sluice_heartbeat *share_heartbeat(const char *own_path) {
    dev_t device;
    if (!own_device(own_path, &device)) return NULL;
    return map_genuine(MODE_SHARE_ROOT "/heartbeat", device, sizeof(struct sluice_heartbeat));
}

static int by_claim_and_index(const void *a, const void *b) {
    const char *left = ((const struct share *)a)->directory, *right = ((const struct share *)b)->directory;
    const char *left_index = strrchr(left, '/'), *right_index = strrchr(right, '/');
    size_t left_length = (size_t)(left_index - left), right_length = (size_t)(right_index - right);
    int claims = strncmp(left, right, left_length < right_length ? left_length : right_length);
    if (claims != 0) return claims;
    if (left_length != right_length) return left_length < right_length ? -1 : 1;
    return atoi(left_index + 1) - atoi(right_index + 1);
}

static int find_in_claim(struct share *shares, int count, const char *claim, dev_t device, unsigned *ignored) {
    char path[192];
    snprintf(path, sizeof path, MODE_SHARE_ROOT "/%.64s", claim);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && count < SHARES && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        struct share *share = &shares[count];
        snprintf(share->directory, sizeof share->directory, MODE_SHARE_ROOT "/%.64s/%.16s", claim, entry->d_name);
        snprintf(path, sizeof path, "%s/limits", share->directory);
        share->limits = map_limits(path, device);
        if (share->limits != NULL) count++;
        else (*ignored)++;
    }
    if (directory != NULL) closedir(directory);
    return count;
}

int share_find_all(struct share shares[SHARES], const char *own_path, unsigned *ignored) {
    dev_t device;
    int count = 0;
    *ignored = 0;
    if (!own_device(own_path, &device)) return 0;
    DIR *root = opendir(MODE_SHARE_ROOT);
    const struct dirent *entry;
    while (root != NULL && count < SHARES && (entry = readdir(root)) != NULL) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lib") == 0 || strcmp(entry->d_name, "heartbeat") == 0) continue;
        count = find_in_claim(shares, count, entry->d_name, device, ignored);
    }
    if (root != NULL) closedir(root);
    qsort(shares, (size_t)count, sizeof *shares, by_claim_and_index);
    return count;
}

static bool open_ledger(struct share *share, const char **reason) {
    char path[192];
    snprintf(path, sizeof path, "%s/usage", share->directory);
    return share->ledger.page != NULL || ledger_open(&share->ledger, path, reason);
}

bool share_look(struct share *share) {
    const char *reason;
    return open_ledger(share, &reason);
}

bool share_join(struct share *share, const char **reason) {
    if (share->joined) return true;
    if (!open_ledger(share, reason)) return false;
    share->joined = ledger_join(&share->ledger, 0, reason);
    if (!share->joined) ledger_close(&share->ledger);
    return share->joined;
}

// Opens a directory below /dev/shm that is this user's alone, made where it is missing.
static bool own_directory(const char *path, const char **reason) {
    struct stat at;
    *reason = "its directory in /dev/shm cannot be made";
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool good = syscall(SYS_fstat, fd, &at) == 0 && at.st_uid == geteuid() && (at.st_mode & 022) == 0;
    close(fd);
    *reason = "its directory in /dev/shm belongs to others";
    return good;
}

// Makes the file of a ledger at its full length. Two processes doing so at once make the same.
static bool make_file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return false;
    struct stat at;
    bool made = syscall(SYS_fstat, fd, &at) == 0 &&
                (at.st_size >= (off_t)SLUICE_USAGE_SIZE || posix_fallocate(fd, 0, SLUICE_USAGE_SIZE) == 0);
    close(fd);
    return made;
}

static bool is_plain(const char *group) {
    size_t length = strlen(group);
    return length > 0 && length <= 64 && group[0] != '.' &&
           strspn(group, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

static bool name_alone(struct share *share, const char *group, const unsigned char uuid[16], char path[192]) {
    char name[37];
    quota_print_uuid(uuid, name);
    snprintf(share->directory, sizeof share->directory, "/dev/shm/sluice-%u-%.64s", (unsigned)geteuid(), group);
    snprintf(path, 192, "%.120s/%s", share->directory, name);
    return is_plain(group);
}

bool share_look_alone(struct share *share, const char *group, const unsigned char uuid[16]) {
    char path[192];
    const char *reason;
    if (!name_alone(share, group, uuid, path) || !ledger_open(&share->ledger, path, &reason)) return false;
    share->fixed_limit = __atomic_load_n(&share->ledger.page->limit, __ATOMIC_ACQUIRE);
    return true;
}

bool share_join_alone(struct share *share, const char *group, const unsigned char uuid[16], uint64_t limit,
                      uint64_t context, const char **reason) {
    char path[192];
    *reason = "SLUICE_GROUP is not a plain name";
    if (!name_alone(share, group, uuid, path) || !own_directory(share->directory, reason)) return false;
    *reason = "its file in /dev/shm cannot be made";
    if (!make_file(path) || !ledger_open(&share->ledger, path, reason)) return false;
    share->fixed_limit = limit;
    share->fixed_context = context;
    share->joined = ledger_join(&share->ledger, limit, reason);
    if (!share->joined) ledger_close(&share->ledger);
    return share->joined;
}

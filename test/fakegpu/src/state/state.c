// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"

// Lock bytes lie beyond the data: one for the whole state, one for each process slot.
// They are open-file-description locks, because both libraries may live in one
// process: classic POSIX locks would neither keep the two apart nor survive the
// first close.
#define LOCK_STATE ((off_t)1 << 40)
#define LOCK_SLOTS (LOCK_STATE + 16)
#define LOCK_OBJECTS (LOCK_SLOTS + FG_MAX_PROCS)

static int lock_byte(int fd, int command, short type, off_t at) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int result;
    do {
        result = fcntl(fd, command, &range);
    } while (result < 0 && errno == EINTR);
    if (result < 0) return -errno;
    return command == F_OFD_GETLK ? range.l_type != F_UNLCK : 0;
}

// The engine lies behind the rest, on pages of its own; those that are not used take no room.
#define ENGINE_PLACE ((sizeof(struct fg_state) + 4095) & ~(size_t)4095)
#define FILE_SIZE (ENGINE_PLACE + sizeof(struct fg_engine))

static int check(int fd) {
    struct stat info;
    if (fstat(fd, &info) < 0) return -errno;
    if (!S_ISREG(info.st_mode) || info.st_size != (off_t)FILE_SIZE) return -EPROTO;
    return 0;
}

const char *fg_state_path(void) {
    const char *path = getenv("FAKEGPU_STATE");
    return path == NULL || *path == '\0' ? FG_STATE_PATH : path;
}

int fg_open(struct fg_db *db, const char *path) {
    int length = snprintf(db->path, sizeof db->path, "%s", path);
    if (length < 0 || (size_t)length >= sizeof db->path) return -ENAMETOOLONG;
    db->fd = open(path, O_RDWR | O_CLOEXEC);
    if (db->fd < 0) return -errno;
    int err = check(db->fd);
    if (err == 0) {
        db->state = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, db->fd, 0);
        if (db->state == MAP_FAILED) err = -errno;
    }
    if (err == 0 && (db->state->magic != FG_MAGIC || db->state->version != FG_VERSION)) {
        munmap(db->state, FILE_SIZE);
        err = -EPROTO;
    }
    if (err != 0) {
        close(db->fd);
        db->fd = -1;
        db->state = NULL;
        return err;
    }
    db->engine = (struct fg_engine *)((char *)db->state + ENGINE_PLACE);
    db->buried = 0;
    memset(db->owned, 0, sizeof db->owned);
    pthread_mutex_init(&db->mutex, NULL);
    return 0;
}

void fg_close(struct fg_db *db) {
    if (db->state == NULL) return;
    munmap(db->state, FILE_SIZE);
    close(db->fd);
    pthread_mutex_destroy(&db->mutex);
    db->state = NULL;
    db->fd = -1;
}

static int write_all(int fd, const void *data, size_t size) {
    const char *from = data;
    while (size > 0) {
        ssize_t written = write(fd, from, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        from += written;
        size -= (size_t)written;
    }
    return 0;
}

int fg_create(const char *path, const struct fg_state *initial) {
    char temporary[600];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.new", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) return -ENAMETOOLONG;
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -errno;
    // Tenants of any user map it, whatever the umask says.
    int err = fchmod(fd, 0666) < 0 ? -errno : write_all(fd, initial, sizeof *initial);
    uint64_t epoch = fg_now();
    if (err == 0 && (lseek(fd, (off_t)ENGINE_PLACE, SEEK_SET) < 0 || ftruncate(fd, (off_t)FILE_SIZE) < 0)) err = -errno;
    if (err == 0) err = write_all(fd, &epoch, sizeof epoch);
    if (close(fd) < 0 && err == 0) err = -errno;
    if (err == 0 && rename(temporary, path) < 0) err = -errno;
    if (err != 0) unlink(temporary);
    return err;
}

void fg_lock(struct fg_db *db) {
    pthread_mutex_lock(&db->mutex);
    // It can only fail for want of kernel memory; then threads are still kept apart.
    lock_byte(db->fd, F_OFD_SETLKW, F_WRLCK, LOCK_STATE);
}

void fg_unlock(struct fg_db *db) {
    lock_byte(db->fd, F_OFD_SETLK, F_UNLCK, LOCK_STATE);
    pthread_mutex_unlock(&db->mutex);
}

void fg_before_fork(struct fg_db *db) {
    if (db->state != NULL) pthread_mutex_lock(&db->mutex);
}

void fg_after_fork_parent(struct fg_db *db) {
    if (db->state != NULL) pthread_mutex_unlock(&db->mutex);
}

void fg_after_fork_child(struct fg_db *db) {
    if (db->state == NULL) return;
    close(db->fd);
    db->fd = open(db->path, O_RDWR | O_CLOEXEC);
    pthread_mutex_unlock(&db->mutex);
}

void fg_after_fork_abandon(struct fg_db *db) {
    close(db->fd);
    db->fd = -1;
    pthread_mutex_unlock(&db->mutex);
}

int fg_hold_slot(struct fg_db *db, int slot) {
    db->owned[slot / 64] |= 1ull << slot % 64;
    return lock_byte(db->fd, F_OFD_SETLK, F_WRLCK, LOCK_SLOTS + slot);
}

void fg_release_slot(struct fg_db *db, int slot) {
    db->owned[slot / 64] &= ~(1ull << slot % 64);
    lock_byte(db->fd, F_OFD_SETLK, F_UNLCK, LOCK_SLOTS + slot);
}

int fg_owned(const struct fg_db *db, uint32_t slot) { return (int)(db->owned[slot / 64] >> slot % 64 & 1); }

int fg_slot_held(struct fg_db *db, int slot) { return lock_byte(db->fd, F_OFD_GETLK, F_WRLCK, LOCK_SLOTS + slot) == 1; }

// The object's generation and number, as the place in the file to which a descriptor of it is set.
static off_t place_of(const struct fg_db *db, int object) {
    return ((off_t)db->state->objects[object].generation << 16) + object;
}

// Whoever has the description open, by whatever way it came to them, holds the lock.
int fg_object_descriptor(struct fg_db *db, int object) {
    int fd = open(db->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -errno;
    if (lock_byte(fd, F_OFD_SETLK, F_RDLCK, LOCK_OBJECTS + object) != 0 || lseek(fd, place_of(db, object), SEEK_SET) < 0) {
        close(fd);
        return -EIO;
    }
    return fd;
}

int fg_object_described(struct fg_db *db, int descriptor) {
    struct stat own, its;
    if (fstat(db->fd, &own) != 0 || fstat(descriptor, &its) != 0) return -1;
    if (own.st_dev != its.st_dev || own.st_ino != its.st_ino) return -1;
    off_t place = lseek(descriptor, 0, SEEK_CUR);
    int object = (int)(place & 0xffff);
    if (place <= 0 || object >= FG_MAX_OBJECTS) return -1;
    return fg_read(&db->state->objects[object].used) && place_of(db, object) == place ? object : -1;
}

int fg_object_open(struct fg_db *db, int object) {
    return lock_byte(db->fd, F_OFD_GETLK, F_WRLCK, LOCK_OBJECTS + object) == 1;
}

// SPDX-License-Identifier: Apache-2.0
//
// Sizes of code images.

#include "image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAT_MAGIC 0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1u // in a program: a pointer to the fat binary
#define LONGEST_TEXT (64u << 20)

struct fat {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size; // of all entries
};

struct fat_entry {
    uint16_t kind, version;
    uint32_t header;
    uint64_t size;
    uint32_t compressed, reserved0;
    uint16_t minor, major;
    uint32_t architecture, name, name_length;
    uint64_t flags, reserved1, uncompressed;
};

struct wrapper {
    uint32_t magic, version;
    const void *fat;
};

static uint64_t elf_bytes(const Elf64_Ehdr *elf) {
    uint64_t sections = elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize;
    uint64_t segments = elf->e_phoff + (uint64_t)elf->e_phnum * elf->e_phentsize;
    return sections > segments ? sections : segments;
}

static uint64_t fat_bytes(const struct fat *fat) {
    uint64_t largest = 0, at = 0;
    const char *entries = (const char *)fat + fat->header;
    while (at + sizeof(struct fat_entry) <= fat->size) {
        struct fat_entry entry;
        memcpy(&entry, entries + at, sizeof entry);
        if (entry.header < 16 || entry.size == 0) break;
        uint64_t bytes = entry.header >= sizeof entry && entry.uncompressed > entry.size ? entry.uncompressed : entry.size;
        if (bytes > largest) largest = bytes;
        if (entry.size > fat->size - at) break;
        at += entry.header + entry.size;
    }
    // An entry that is no such structure: all of it.
    return largest == 0 || largest > 64 * (fat->size + 1) ? fat->header + fat->size : largest;
}

uint64_t image_bytes(const void *image) {
    struct wrapper wrapper;
    uint32_t magic;
    if (image == NULL) return 0;
    if (memcmp(image, ELFMAG, SELFMAG) == 0) return elf_bytes(image);
    memcpy(&magic, image, sizeof magic);
    if (magic == FAT_MAGIC) return fat_bytes(image);
    if (magic != WRAPPER_MAGIC) return strnlen(image, LONGEST_TEXT);
    memcpy(&wrapper, image, sizeof wrapper);
    return wrapper.fat == NULL ? 0 : fat_bytes(wrapper.fat);
}

uint64_t image_file_bytes(const char *path) {
    int kept = errno;
    struct stat at;
    uint64_t bytes = 0;
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && syscall(SYS_fstat, fd, &at) == 0 && at.st_size > 0) bytes = (uint64_t)at.st_size;
    if (fd >= 0) close(fd);
    errno = kept;
    return bytes;
}

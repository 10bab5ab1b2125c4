// SPDX-License-Identifier: Apache-2.0
//
// Asks cuGetProcAddress for every name of the driver in every CUDA version with every flag, and prints each answer: error,
// status, and the symbol that has the address, as dlsym gives it in the same process. With and without the library the
// output has to be the same.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 4096, UNTOUCHED = 0x77 };

struct symbol {
    const char *name;
    void *address;
};

static struct symbol symbols[MOST];
static int symbol_count;
static char bases[MOST][96];
static int base_count;

// The names that the driver exports, from its file.
static void read_symbols(void *driver, const char *path) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) exit(3);
    const char *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED) exit(3);
    const Elf64_Ehdr *elf = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + elf->e_shoff);
    for (int i = 0; i < elf->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *table = (const void *)(file + sections[i].sh_offset);
        const char *text = file + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *table && symbol_count < MOST; s++) {
            const char *name = text + table[s].st_name;
            if (table[s].st_shndx == SHN_UNDEF || strncmp(name, "cu", 2) != 0) continue;
            symbols[symbol_count++] = (struct symbol){.name = name, .address = dlsym(driver, name)};
        }
    }
}

static const char *named(const void *address) {
    if (address == NULL) return "-";
    if (address == (const void *)UNTOUCHED) return "untouched";
    const char *found = "unknown";
    for (int i = 0; i < symbol_count; i++) {
        // The same address can have several names: the first in the alphabet stands for all.
        if (symbols[i].address != address) continue;
        if (strcmp(found, "unknown") == 0 || strcmp(symbols[i].name, found) < 0) found = symbols[i].name;
    }
    return found;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

static void add_base(const char *name) {
    char base[96];
    snprintf(base, sizeof base, "%s", name);
    for (int changed = 1; changed;) {
        size_t length = strlen(base);
        changed = 0;
        if (ends_with(base, "_ptsz") || ends_with(base, "_ptds")) {
            base[length - 5] = '\0';
            changed = 1;
        } else if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v' && base[length - 1] >= '0' && base[length - 1] <= '9') {
            base[length - 3] = '\0';
            changed = 1;
        }
    }
    for (int i = 0; i < base_count; i++) {
        if (strcmp(bases[i], base) == 0) return;
    }
    snprintf(bases[base_count++], sizeof bases[0], "%s", base);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

typedef int look_up_v1(const char *, void **, int, uint64_t);
typedef int look_up_v2(const char *, void **, int, uint64_t, int *);

static void ask(look_up_v1 *first, look_up_v2 *second, const char *name, int version, uint64_t flags) {
    void *with_status = (void *)UNTOUCHED, *without = (void *)UNTOUCHED, *old = (void *)UNTOUCHED;
    int status = -9;
    int result = second(name, &with_status, version, flags, &status);
    int plain = second(name, &without, version, flags, NULL);
    int v1 = first(name, &old, version, flags);
    printf("%s %d flags %llu: %d status %d %s | no status: %d %s | v1: %d %s\n", name, version, (unsigned long long)flags, result,
           status, named(with_status), plain, named(without), v1, named(old));
}

int main(void) {
    static const int versions[] = {-5,    0,     1000,  2000,  3020,  4000,  5000,  6000,  6050,  7000,  8000,  9000,  9020,
                                   10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11060, 11070, 11080, 12000, 12010,
                                   12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000, 13010, 13020, 14000};
    static const char *const odd[] = {"", "cuNonsense", "cuMemAlloc_v2", "cuLaunchKernel_ptsz", "cudaMalloc", "curl_easy_init", "dlsym"};
    struct link_map *map;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || dlinfo(driver, RTLD_DI_LINKMAP, &map) != 0) return 3;
    look_up_v1 *first = (look_up_v1 *)(uintptr_t)dlsym(driver, "cuGetProcAddress");
    look_up_v2 *second = (look_up_v2 *)(uintptr_t)dlsym(driver, "cuGetProcAddress_v2");
    if (first == NULL || second == NULL) return 3;
    read_symbols(driver, map->l_name);
    for (int i = 0; i < symbol_count; i++) add_base(symbols[i].name);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) snprintf(bases[base_count++], sizeof bases[0], "%s", odd[i]);
    qsort(bases, (size_t)base_count, sizeof bases[0], by_name);
    for (int b = 0; b < base_count; b++) {
        for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++) {
            for (uint64_t flags = 0; flags < 6; flags++) ask(first, second, bases[b], versions[v], flags);
        }
    }
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) printf("dlsym %s: %s\n", odd[i], dlsym(driver, odd[i]) == NULL ? "-" : "found");
    return 0;
}

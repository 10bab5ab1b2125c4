// SPDX-License-Identifier: Apache-2.0
//
// Finds the driver, the management library and the C library's dlsym among the loaded objects.

#include "real.h"

#include <string.h>
#include <sys/auxv.h>

#include "symbol_table.h"

void *sluice_real[FUNCTION_COUNT];

enum library { CUDA, NVML, LIBRARIES };

static const struct {
    const char *name;
    enum library library;
} functions[FUNCTION_COUNT] = {
#define CUDA_HOOK(symbol, base, version, stream) [AT_##symbol] = {#symbol, CUDA},
#define NVML_HOOK(symbol) [AT_##symbol] = {#symbol, NVML},
#define CUDA_CALL(symbol) [AT_##symbol] = {#symbol, CUDA},
#define NVML_CALL(symbol) [AT_##symbol] = {#symbol, NVML},
#include "hooks.def"
};

// How a library's file is called, and a function that only the genuine one has.
static const struct {
    const char *file, *proof;
} libraries[LIBRARIES] = {{"libcuda.so", "cuInit"}, {"libnvidia-ml.so", "nvmlInit_v2"}};

// Where each library was when its functions were taken; 0 while it is not loaded.
static uintptr_t loaded_at[LIBRARIES];

struct search {
    enum library library;
    bool found;
};

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    struct search *search = argument;
    struct elf_object object;
    (void)size;
    if (info->dlpi_name == NULL || !elf_called(info->dlpi_name, libraries[search->library].file)) return 0;
    if (!elf_read_info(&object, info) || elf_symbol(&object, libraries[search->library].proof) == NULL) return 0;
    search->found = true;
    if (__atomic_load_n(&loaded_at[search->library], __ATOMIC_ACQUIRE) == info->dlpi_addr) return 1;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        if (functions[i].library != search->library || functions[i].name == NULL) continue;
        __atomic_store_n(&sluice_real[i], elf_symbol(&object, functions[i].name), __ATOMIC_RELAXED);
    }
    __atomic_store_n(&loaded_at[search->library], (uintptr_t)info->dlpi_addr, __ATOMIC_RELEASE);
    return 1;
}

bool real_find(enum function at) {
    struct search search = {.library = functions[at].library};
    dl_iterate_phdr(look, &search);
    return search.found;
}

void *real_needed(enum function at) {
    if (__atomic_load_n(&loaded_at[functions[at].library], __ATOMIC_ACQUIRE) == 0) real_find(at);
    return real_address(at);
}

// dlsym lies in libc.so.6, until 2.33 in libdl.so.2.
EARLY static void *dlsym_of(const char *path, const struct elf_object *object) {
    if (path == NULL || !(elf_called(path, "libc.so.6") || elf_called(path, "libdl.so.2") || elf_called(path, "libc-2.") ||
                          elf_called(path, "libdl-2."))) {
        return NULL;
    }
    return elf_symbol(object, "dlsym");
}

// The loader's list of objects, which the program's own headers lead to. The sanitizers replace dl_iterate_phdr and ask for
// names before they have begun, and neither library of interest is ever unloaded.
EARLY static void *dlsym_in_list(void) {
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    unsigned long count = getauxval(AT_PHNUM);
    const ElfW(Dyn) *dynamic = NULL;
    ElfW(Addr) base = 0;
    for (unsigned long i = 0; part != NULL && i < count; i++) {
        if (part[i].p_type == PT_PHDR) base = (ElfW(Addr))part - part[i].p_vaddr;
    }
    for (unsigned long i = 0; part != NULL && i < count; i++) {
        if (part[i].p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(base + part[i].p_vaddr);
    }
    while (dynamic != NULL && dynamic->d_tag != DT_NULL && dynamic->d_tag != DT_DEBUG) dynamic++;
    if (dynamic == NULL || dynamic->d_tag != DT_DEBUG || dynamic->d_un.d_ptr == 0) return NULL;
    for (const struct link_map *map = ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map; map != NULL; map = map->l_next) {
        struct elf_object object;
        if (!elf_read(&object, map->l_addr, map->l_ld, 0)) continue;
        void *found = dlsym_of(map->l_name, &object);
        if (found != NULL) return found;
    }
    return NULL;
}

static int look_for_dlsym(struct dl_phdr_info *info, size_t size, void *argument) {
    struct elf_object object;
    (void)size;
    void *found = elf_read_info(&object, info) ? dlsym_of(info->dlpi_name, &object) : NULL;
    if (found != NULL) *(void **)argument = found;
    return found != NULL;
}

EARLY void *real_dlsym(void) {
    static void *known;
    void *found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = dlsym_in_list();
        if (found == NULL) dl_iterate_phdr(look_for_dlsym, &found);
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found;
}

// The first object that has it: a sanitizer in the program wants to know of every thread.
static int look_for_pthread_create(struct dl_phdr_info *info, size_t size, void *argument) {
    struct elf_object object;
    (void)size;
    void *found = elf_read_info(&object, info) ? elf_symbol(&object, "pthread_create") : NULL;
    if (found != NULL) *(void **)argument = found;
    return found != NULL;
}

void *real_pthread_create(void) {
    void *found = NULL;
    dl_iterate_phdr(look_for_pthread_create, &found);
    return found;
}

struct place {
    uintptr_t address;
    bool found;
    char *path;
    size_t size;
};

static int look_for_place(struct dl_phdr_info *info, size_t size, void *argument) {
    struct place *place = argument;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || place->address - start >= info->dlpi_phdr[i].p_memsz) continue;
        place->found = true;
        size_t length = info->dlpi_name == NULL ? 0 : strlen(info->dlpi_name);
        if (length < place->size) memcpy(place->path, info->dlpi_name, length + 1);
        return 1;
    }
    return 0;
}

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

bool real_is_own(const void *address) {
    return (uintptr_t)address - (uintptr_t)__ehdr_start < (uintptr_t)(_end - __ehdr_start);
}

void real_own_path(char *path, size_t size) {
    struct place place = {.address = (uintptr_t)&sluice_real, .path = path, .size = size};
    path[0] = '\0';
    dl_iterate_phdr(look_for_place, &place);
}

// SPDX-License-Identifier: Apache-2.0
//
// Symbol look-up in a loaded object, by its GNU hash table or its older one.

#include "symbol_table.h"

#define HIDDEN_VERSION 0x8000

EARLY static bool same(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

EARLY bool elf_called(const char *path, const char *file) {
    const char *name = path;
    for (; *path != '\0'; path++) {
        if (*path == '/') name = path + 1;
    }
    while (*file != '\0' && *file == *name) {
        file++;
        name++;
    }
    return *file == '\0';
}

EARLY bool elf_read(struct elf_object *object, ElfW(Addr) base, const ElfW(Dyn) *dynamic, ElfW(Addr) end) {
    *object = (struct elf_object){.base = base};
    for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) {
        ElfW(Addr) at = dynamic->d_un.d_ptr;
        // glibc has added the base to these already, except in what the kernel loaded.
        if (at < end) at += base;
        switch (dynamic->d_tag) {
        case DT_SYMTAB: object->symbols = (const ElfW(Sym) *)at; break;
        case DT_STRTAB: object->strings = (const char *)at; break;
        case DT_GNU_HASH: object->gnu_hash = (const uint32_t *)at; break;
        case DT_HASH: object->sysv_hash = (const uint32_t *)at; break;
        case DT_VERSYM: object->versions = (const ElfW(Half) *)at; break;
        default: break;
        }
    }
    return object->symbols != NULL && object->strings != NULL && (object->gnu_hash != NULL || object->sysv_hash != NULL);
}

EARLY bool elf_read_info(struct elf_object *object, const struct dl_phdr_info *info) {
    const ElfW(Dyn) *dynamic = NULL;
    ElfW(Addr) end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD && part->p_vaddr + part->p_memsz > end) end = part->p_vaddr + part->p_memsz;
    }
    return elf_read(object, info->dlpi_addr, dynamic, end);
}

// An indirect function is its resolver's answer.
EARLY static void *address_of(const struct elf_object *object, const ElfW(Sym) *symbol) {
    ElfW(Addr) at = object->base + symbol->st_value;
    if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) at = ((ElfW(Addr)(*)(void))at)();
    return (void *)at;
}

// 2 for the default version of a defined function of that name, 1 for an old version of it, 0 for anything else.
EARLY static int fits(const struct elf_object *object, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &object->symbols[index];
    int type = ELF64_ST_TYPE(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0) return 0;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return 0;
    if (!same(object->strings + symbol->st_name, name)) return 0;
    return object->versions != NULL && (object->versions[index] & HIDDEN_VERSION) ? 1 : 2;
}

EARLY static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

EARLY static const ElfW(Sym) *by_gnu_hash(const struct elf_object *object, const char *name) {
    const uint32_t *table = object->gnu_hash;
    uint32_t count = table[0], first = table[1], words = table[2], shift = table[3];
    const ElfW(Addr) *bloom = (const ElfW(Addr) *)(table + 4);
    const uint32_t *buckets = (const uint32_t *)(bloom + words), *chain = buckets + count;
    uint32_t hash = gnu_hash(name);
    const unsigned bits = 8 * sizeof *bloom;
    if (count == 0 || words == 0) return NULL;
    ElfW(Addr) word = bloom[hash / bits % words];
    if (!(word >> hash % bits & 1) || !(word >> (hash >> shift) % bits & 1)) return NULL;
    uint32_t index = buckets[hash % count];
    const ElfW(Sym) *found = NULL;
    if (index < first) return NULL;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1)) {
            int fit = fits(object, index, name);
            if (fit == 2) return &object->symbols[index];
            if (fit == 1) found = &object->symbols[index];
        }
        if (entry & 1) return found;
    }
}

EARLY static const ElfW(Sym) *by_sysv_hash(const struct elf_object *object, const char *name) {
    const uint32_t *table = object->sysv_hash;
    const ElfW(Sym) *found = NULL;
    for (uint32_t index = 1; index < table[1]; index++) {
        int fit = fits(object, index, name);
        if (fit == 2) return &object->symbols[index];
        if (fit == 1) found = &object->symbols[index];
    }
    return found;
}

EARLY void *elf_symbol(const struct elf_object *object, const char *name) {
    const ElfW(Sym) *found = object->gnu_hash != NULL ? by_gnu_hash(object, name) : by_sysv_hash(object, name);
    return found == NULL ? NULL : address_of(object, found);
}

// SPDX-License-Identifier: Apache-2.0
//
// Reading the symbol table of a loaded object.

#ifndef SLUICE_SYMBOL_TABLE_H
#define SLUICE_SYMBOL_TABLE_H

#include <elf.h>
#include <link.h>
#include <stddef.h>

struct elf_object {
    ElfW(Addr) base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const ElfW(Half) *versions; // one for each symbol, or NULL
};

// Reads where the tables of a loaded object are; 0 where it has none.
int elf_read(struct elf_object *object, const struct dl_phdr_info *info);

// The address of a function that the object defines, its default version first; NULL where it does not.
void *elf_symbol(const struct elf_object *object, const char *name);

#endif // SLUICE_SYMBOL_TABLE_H

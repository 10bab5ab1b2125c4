// SPDX-License-Identifier: Apache-2.0
//
// Reading the symbol table of a loaded object.

#ifndef SLUICE_SYMBOL_TABLE_H
#define SLUICE_SYMBOL_TABLE_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// For what may run before a sanitizer in the program has begun: it calls no function that a sanitizer replaces, and is not
// instrumented itself.
#define EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

struct elf_object {
    ElfW(Addr) base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const ElfW(Half) *versions; // one for each symbol, or NULL
};

// Reads where the tables of a loaded object are, from its dynamic section; false where it has none. Addresses in it below
// `end`, the object's size, have not been relocated.
EARLY bool elf_read(struct elf_object *object, ElfW(Addr) base, const ElfW(Dyn) *dynamic, ElfW(Addr) end);
// The same from what dl_iterate_phdr tells.
EARLY bool elf_read_info(struct elf_object *object, const struct dl_phdr_info *info);

// The address of a function that the object defines, its default version first; NULL where it does not.
EARLY void *elf_symbol(const struct elf_object *object, const char *name);

// Whether a path's last part begins with that.
EARLY bool elf_called(const char *path, const char *file);

#endif // SLUICE_SYMBOL_TABLE_H

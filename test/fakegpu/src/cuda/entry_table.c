// SPDX-License-Identifier: Apache-2.0
#include "entry_table.h"

#include <stddef.h>
#include <string.h>

// Only addresses are taken here, so the real parameters do not matter.
#define ENTRY(base, version, symbol, per_thread) \
    void symbol(void);                           \
    void per_thread(void);
#include "entry_points.def"
#undef ENTRY

struct entry {
    const char *base;
    int version;
    void (*symbol)(void);
    void (*per_thread)(void);
};

static const struct entry entries[] = {
#define ENTRY(base, version, symbol, per_thread) {#base, version, symbol, per_thread},
#include "entry_points.def"
#undef ENTRY
};

enum query entry_find(const char *name, int version, int per_thread, void **address) {
    enum query answer = QUERY_NOT_FOUND;
    *address = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].base, name) != 0) continue;
        if (entries[i].version > version) {
            if (answer == QUERY_NOT_FOUND) answer = QUERY_TOO_OLD;
            continue;
        }
        void (*found)(void) = per_thread ? entries[i].per_thread : entries[i].symbol;
        memcpy(address, &found, sizeof found);
        answer = QUERY_FOUND;
    }
    return answer;
}

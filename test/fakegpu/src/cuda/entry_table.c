// SPDX-License-Identifier: Apache-2.0
#include "entry_table.h"

#include <stddef.h>
#include <string.h>

// Only addresses are taken here, so the real parameters do not matter.
#define ENTRY(stream, base, version, symbol) void symbol(void);
#include "entry_points.def"
#undef ENTRY

enum stream { LEGACY = 1, PER_THREAD = 2, ANY = 3 };

struct entry {
    const char *base;
    int version;
    enum stream stream;
    void (*symbol)(void);
};

static const struct entry entries[] = {
#define ENTRY(stream, base, version, symbol) {#base, version, stream, symbol},
#include "entry_points.def"
#undef ENTRY
};

enum query entry_find(const char *name, int version, int per_thread, void **address) {
    enum stream wanted = per_thread ? PER_THREAD : LEGACY;
    enum query answer = QUERY_NOT_FOUND;
    *address = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].base, name) != 0) continue;
        if (entries[i].version > version || !(entries[i].stream & wanted)) {
            if (answer == QUERY_NOT_FOUND) answer = QUERY_TOO_OLD;
            continue;
        }
        memcpy(address, &entries[i].symbol, sizeof entries[i].symbol);
        answer = QUERY_FOUND;
    }
    return answer;
}

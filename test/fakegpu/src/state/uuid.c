// SPDX-License-Identifier: Apache-2.0
#include "uuid.h"

#include <stdio.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t fg_hash_text(const char *text) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
    return mix(hash);
}

void fg_uuid_format(const char *kind, uint64_t seed, uint64_t number, char *uuid) {
    uint64_t high = mix(seed + 0x9e3779b97f4a7c15ull * (2 * number + 1));
    uint64_t low = mix(high ^ (seed + 0x9e3779b97f4a7c15ull * (2 * number + 2)));
    snprintf(uuid, 48, "%s-%08x-%04x-%04x-%04x-%012llx", kind, (unsigned)(high >> 32), (unsigned)(high >> 16 & 0xffff),
             (unsigned)(high & 0x0fff) | 0x5000u, (unsigned)(low >> 48 & 0x3fff) | 0x8000u,
             (unsigned long long)(low & 0xffffffffffffull));
}

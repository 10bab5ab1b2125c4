// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of limits: pure functions, no state, nothing that can fail half-way. All of it saturates.

#ifndef SLUICE_QUOTA_H
#define SLUICE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUOTA_PAGE (2ull << 20)  // what the driver takes from the device at a time
#define QUOTA_SMALL (1ull << 20) // allocations up to this share such pages
#define QUOTA_CHUNK (32ull << 20) // by which pools and the memory of graphs grow

// Rounds up to a multiple of a unit; UINT64_MAX where that does not exist.
uint64_t quota_round(uint64_t bytes, uint64_t unit);

// The product; UINT64_MAX where it does not fit.
uint64_t quota_product(uint64_t a, uint64_t b);

// Ledger units for some bytes, rounded up, or rounded down for a limit; UINT32_MAX where they do not fit.
uint32_t quota_units(uint64_t bytes);
uint32_t quota_limit_units(uint64_t bytes);

// A slot's word.
static inline uint64_t quota_word(uint32_t credit, uint32_t held) { return (uint64_t)credit << 32 | held; }
static inline uint32_t quota_credit(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t quota_held(uint64_t word) { return (uint32_t)word; }
static inline uint32_t quota_unused(uint64_t word) {
    return quota_credit(word) > quota_held(word) ? quota_credit(word) - quota_held(word) : 0;
}

// What may still be given out of a limit of which some is given.
uint32_t quota_left(uint32_t limit, uint64_t given);

// Bytes to tell a process as free: never more than the limit leaves or than the device has.
uint64_t quota_free(uint64_t limit, uint64_t used, uint64_t really_free);

// Bytes of an array: all its rows, layers and levels as the device lays them out.
struct quota_array {
    uint64_t width, height, depth;
    unsigned format, channels, levels;
    bool layers; // depth counts layers, which all levels have alike
};
uint64_t quota_array_bytes(const struct quota_array *array);

// Reads an amount such as 2Gi, 512M or 1048576.
bool quota_parse_amount(const char *text, size_t length, uint64_t *bytes);

// Reads the limit of one device out of SLUICE_MEMORY_LIMIT: amounts separated by commas, each for all devices ("2Gi"), for an
// ordinal ("1=2Gi") or for a UUID ("GPU-...=2Gi", "MIG-...=2Gi"). The narrowest wins. NULL gives none. False where the
// text is malformed.
struct quota_limit {
    bool given;
    uint64_t bytes;
};
bool quota_parse_limits(const char *text, int ordinal, const unsigned char uuid[16], struct quota_limit *limit);

// Reads and writes the 36 hexadecimal characters of a UUID, dashes included.
bool quota_parse_uuid(const char *text, size_t length, unsigned char uuid[16]);
void quota_print_uuid(const unsigned char uuid[16], char text[37]);

#endif // SLUICE_QUOTA_H

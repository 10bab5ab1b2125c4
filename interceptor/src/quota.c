// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of limits.

#include "quota.h"

#include <string.h>

#include "../include/sluice_abi.h"

uint64_t quota_round(uint64_t bytes, uint64_t unit) {
    uint64_t over = bytes % unit;
    if (over == 0) return bytes;
    return bytes > UINT64_MAX - (unit - over) ? UINT64_MAX : bytes + (unit - over);
}

uint64_t quota_product(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint32_t quota_units(uint64_t bytes) {
    uint64_t units = bytes / SLUICE_USAGE_UNIT + (bytes % SLUICE_USAGE_UNIT != 0);
    return units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

uint32_t quota_limit_units(uint64_t bytes) {
    uint64_t units = bytes / SLUICE_USAGE_UNIT;
    return units > UINT32_MAX - 1 ? UINT32_MAX - 1 : (uint32_t)units;
}

uint32_t quota_left(uint32_t limit, uint64_t given) { return given >= limit ? 0 : (uint32_t)(limit - given); }

uint64_t quota_free(uint64_t limit, uint64_t used, uint64_t really_free) {
    uint64_t left = used >= limit ? 0 : limit - used;
    return left < really_free ? left : really_free;
}

// Bytes of one channel, by the driver's array formats. Formats that pack or compress are met by their largest element.
static uint64_t channel_bytes(unsigned format) {
    switch (format) {
    case 0x01: // unsigned and signed 8 bit
    case 0x08: return 1;
    case 0x02: // unsigned and signed 16 bit, half
    case 0x09:
    case 0x10: return 2;
    case 0x03: // unsigned and signed 32 bit, float
    case 0x0a:
    case 0x20: return 4;
    default: return 4;
    }
}

uint64_t quota_array_bytes(const struct quota_array *array) {
    uint64_t element = quota_product(channel_bytes(array->format), array->channels == 0 ? 1 : array->channels);
    uint64_t width = array->width, height = array->height, depth = array->depth, sum = 0;
    for (unsigned level = 0; level == 0 || level < array->levels; level++) {
        uint64_t rows = height == 0 ? 1 : height, slices = depth == 0 ? 1 : depth;
        uint64_t bytes = quota_product(quota_product(quota_product(width == 0 ? 1 : width, element), rows), slices);
        if (__builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : height;
        if (!array->layers) depth = depth > 1 ? depth / 2 : depth;
    }
    return sum;
}

bool quota_parse_amount(const char *text, size_t length, uint64_t *bytes) {
    static const struct {
        const char *suffix;
        uint64_t factor;
    } suffixes[] = {
        {"", 1},           {"k", 1000},       {"M", 1000000},     {"G", 1000000000}, {"T", 1000000000000},
        {"Ki", 1ull << 10}, {"Mi", 1ull << 20}, {"Gi", 1ull << 30}, {"Ti", 1ull << 40},
    };
    uint64_t number = 0;
    size_t digits = 0;
    for (; digits < length && text[digits] >= '0' && text[digits] <= '9'; digits++) {
        if (__builtin_mul_overflow(number, 10, &number)) return false;
        if (__builtin_add_overflow(number, (uint64_t)(text[digits] - '0'), &number)) return false;
    }
    if (digits == 0) return false;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t suffix = strlen(suffixes[i].suffix);
        if (suffix != length - digits || memcmp(text + digits, suffixes[i].suffix, suffix) != 0) continue;
        return !__builtin_mul_overflow(number, suffixes[i].factor, bytes);
    }
    return false;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool quota_parse_uuid(const char *text, size_t length, unsigned char uuid[16]) {
    if (length != 36) return false;
    int nibbles = 0;
    for (size_t i = 0; i < length; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i] != '-') return false;
            continue;
        }
        int digit = hex_digit(text[i]);
        if (digit < 0) return false;
        uuid[nibbles / 2] = (unsigned char)(nibbles % 2 == 0 ? digit << 4 : uuid[nibbles / 2] | digit);
        nibbles++;
    }
    return true;
}

void quota_print_uuid(const unsigned char uuid[16], char text[37]) {
    static const char digits[] = "0123456789abcdef";
    char *at = text;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 15];
    }
    *at = '\0';
}

// How closely a key names the device: 0 not at all, -1 malformed.
static int key_fits(const char *key, size_t length, int ordinal, const unsigned char uuid[16]) {
    unsigned char named[16];
    if (length > 4 && (memcmp(key, "GPU-", 4) == 0 || memcmp(key, "MIG-", 4) == 0)) {
        if (!quota_parse_uuid(key + 4, length - 4, named)) return -1;
        return memcmp(named, uuid, sizeof named) == 0 ? 3 : 0;
    }
    uint64_t number;
    if (length > 4 || !quota_parse_amount(key, length, &number)) return -1;
    return (uint64_t)ordinal == number ? 2 : 0;
}

bool quota_parse_limits(const char *text, int ordinal, const unsigned char uuid[16], struct quota_limit *limit) {
    int best = 0;
    *limit = (struct quota_limit){0};
    if (text == NULL) return true;
    while (true) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length), *amount = equals == NULL ? text : equals + 1;
        int fit = equals == NULL ? 1 : key_fits(text, (size_t)(equals - text), ordinal, uuid);
        uint64_t bytes;
        if (fit < 0 || !quota_parse_amount(amount, length - (size_t)(amount - text), &bytes)) return false;
        if (fit > best) {
            best = fit;
            *limit = (struct quota_limit){.given = true, .bytes = bytes};
        }
        if (text[length] == '\0') return true;
        text += length + 1;
    }
}

// SPDX-License-Identifier: Apache-2.0

#include "../src/quota.h"

#include <string.h>

#include "check.h"

static void test_amounts(void) {
    static const struct {
        const char *name, *text;
        bool want;
        uint64_t bytes;
    } cases[] = {
        {"a plain number is bytes", "1048576", true, 1048576},
        {"binary suffixes are powers of 1024", "2Gi", true, 2ull << 30},
        {"decimal suffixes are powers of 1000", "5M", true, 5000000},
        {"nothing is no amount", "", false, 0},
        {"a suffix needs a number", "Gi", false, 0},
        {"an unknown suffix is refused", "2GiB", false, 0},
        {"a sign is refused", "-1", false, 0},
        {"what does not fit is refused", "99999999999999999999", false, 0},
        {"what does not fit with its suffix is refused", "99999999Ti", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0;
        bool got = quota_parse_amount(cases[i].text, strlen(cases[i].text), &bytes);
        CHECK(got == cases[i].want && (!got || bytes == cases[i].bytes), "%s: got %d, %llu", cases[i].name, got,
              (unsigned long long)bytes);
    }
}

static void test_limits(void) {
    static const unsigned char uuid[16] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01};
    static const struct {
        const char *name, *text;
        int ordinal;
        bool want, given;
        uint64_t bytes;
    } cases[] = {
        {"one amount holds for every device", "2Gi", 3, true, true, 2ull << 30},
        {"an ordinal holds for its device", "1=3Gi", 1, true, true, 3ull << 30},
        {"an ordinal says nothing of another device", "1=3Gi", 0, true, false, 0},
        {"an ordinal wins over the amount for all", "1=3Gi,2Gi", 1, true, true, 3ull << 30},
        {"a UUID wins over an ordinal", "0=1Gi,GPU-11223344-5566-7788-99aa-bbccddeeff01=4Gi", 0, true, true, 4ull << 30},
        {"a UUID may be that of a MIG device", "MIG-11223344-5566-7788-99AA-BBCCDDEEFF01=4Gi", 0, true, true, 4ull << 30},
        {"another UUID says nothing", "GPU-00000000-5566-7788-99aa-bbccddeeff01=4Gi", 0, true, false, 0},
        {"a malformed UUID is refused", "GPU-1=4Gi", 0, false, false, 0},
        {"an empty part is refused", "2Gi,", 0, false, false, 0},
        {"nothing is refused", "", 0, false, false, 0},
        {"a malformed amount is refused even for another device", "1=x,2Gi", 0, false, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quota_limit limit;
        bool got = quota_parse_limits(cases[i].text, cases[i].ordinal, uuid, &limit);
        bool right = got == cases[i].want && (!got || (limit.given == cases[i].given && limit.bytes == cases[i].bytes));
        CHECK(right, "%s: got %d, %d, %llu", cases[i].name, got, limit.given, (unsigned long long)limit.bytes);
    }
}

static void test_arithmetic(void) {
    CHECK(quota_round(1, QUOTA_PAGE) == QUOTA_PAGE, "one byte is a page");
    CHECK(quota_round(QUOTA_PAGE, QUOTA_PAGE) == QUOTA_PAGE, "a page is a page");
    CHECK(quota_round(UINT64_MAX - 1, QUOTA_PAGE) == UINT64_MAX, "rounding saturates");
    CHECK(quota_product(1ull << 40, 1ull << 40) == UINT64_MAX, "products saturate");
    CHECK(quota_units(1) == 1 && quota_units(4096) == 1 && quota_units(4097) == 2, "charges round up");
    CHECK(quota_units(UINT64_MAX) == UINT32_MAX, "units saturate");
    CHECK(quota_limit_units(8191) == 1, "limits round down");
    CHECK(quota_limit_units(UINT64_MAX) < quota_units(UINT64_MAX), "no limit lets the largest charge pass");
    CHECK(quota_left(10, 11) == 0 && quota_left(10, 4) == 6, "what is left is never negative");
    CHECK(quota_free(100, 120, 50) == 0, "free is never negative");
    CHECK(quota_free(100, 20, 50) == 50, "free is never more than the device has");
    CHECK(quota_unused(quota_word(5, 7)) == 0, "a slot above its credit has none unused");
}

static void test_arrays(void) {
    struct quota_array flat = {.width = 1024, .height = 1024, .format = 0x20, .channels = 4};
    struct quota_array cube = {.width = 64, .height = 64, .depth = 64, .format = 0x01, .channels = 1};
    struct quota_array levels = {.width = 8, .height = 8, .format = 0x01, .channels = 1, .levels = 4};
    struct quota_array layers = {.width = 8, .height = 8, .depth = 3, .format = 0x01, .channels = 1, .levels = 2, .layers = true};
    struct quota_array huge = {.width = UINT64_MAX, .height = 2, .format = 0x20, .channels = 4};
    CHECK(quota_array_bytes(&flat) == 16ull << 20, "two dimensions");
    CHECK(quota_array_bytes(&cube) == 64 * 64 * 64, "three dimensions");
    CHECK(quota_array_bytes(&levels) == 64 + 16 + 4 + 1, "levels add up");
    CHECK(quota_array_bytes(&layers) == 3 * 64 + 3 * 16, "layers stay on all levels");
    CHECK(quota_array_bytes(&huge) == UINT64_MAX, "arrays saturate");
}

int main(void) {
    test_amounts();
    test_limits();
    test_arithmetic();
    test_arrays();
    return finish("quota");
}

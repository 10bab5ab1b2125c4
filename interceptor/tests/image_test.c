// SPDX-License-Identifier: Apache-2.0

#include "../src/image.h"

#include <stdint.h>
#include <string.h>

#include "check.h"

int main(void) {
    _Alignas(8) unsigned char image[512] = {0};
    CHECK(image_bytes(".version 8.0") == 12, "a text has its length");
    CHECK(image_bytes(NULL) == 0, "nothing has none");
    const struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t size;
    } fat = {0xba55ed50u, 1, 16, 64 + 100 + 64 + 40};
    const struct {
        uint16_t kind, version;
        uint32_t header;
        uint64_t size;
    } first = {2, 0x101, 64, 100}, second = {2, 0x101, 64, 40};
    memcpy(image, &fat, sizeof fat);
    memcpy(image + 16, &first, sizeof first);
    memcpy(image + 16 + 164, &second, sizeof second);
    CHECK(image_bytes(image) == 100, "a fat binary costs its largest entry, got %llu", (unsigned long long)image_bytes(image));
    CHECK(image_file_bytes("/nonexistent") == 0, "a missing file has none");
    return finish("image");
}

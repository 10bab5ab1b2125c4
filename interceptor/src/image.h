// SPDX-License-Identifier: Apache-2.0
//
// How much device memory code can take: an upper bound from its image.

#ifndef SLUICE_IMAGE_H
#define SLUICE_IMAGE_H

#include <stdint.h>

// Bytes of an image in memory: an ELF file, a fat binary (of which one entry is loaded, so the largest counts), or a text.
uint64_t image_bytes(const void *image);
// Bytes of an image in a file; 0 where it cannot be read.
uint64_t image_file_bytes(const char *path);

#endif // SLUICE_IMAGE_H

// SPDX-License-Identifier: Apache-2.0
// Identities that follow from a seed, so that a node looks the same each time it is made.
#ifndef FAKEGPU_UUID_H
#define FAKEGPU_UUID_H

#include <stdint.h>

uint64_t fg_hash_text(const char *text);
// "<kind>-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; the buffer holds at least 48 bytes.
void fg_uuid_format(const char *kind, uint64_t seed, uint64_t number, char *uuid);

#endif

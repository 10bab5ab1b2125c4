// SPDX-License-Identifier: Apache-2.0
//
// The mode, and the only reading of the environment. secure_getenv: programs with privileges load the library too.

#include "mode.h"

#include <stdlib.h>
#include <string.h>

#include "quota.h"

static bool is_agents(const char *path) {
    static const char prefix[] = MODE_SHARE_ROOT "/lib/", name[] = "/libsluice.so";
    size_t length = strlen(path), shortest = sizeof prefix - 1 + 1 + sizeof name - 1; // a version of one character
    if (strncmp(path, prefix, sizeof prefix - 1) != 0 || length < shortest) return false;
    return strcmp(path + length - (sizeof name - 1), name) == 0;
}

enum mode mode_find(const char *path) {
    if (is_agents(path)) return MODE_AGENT;
    return secure_getenv("SLUICE_MEMORY_LIMIT") == NULL && secure_getenv("SLUICE_COMPUTE_LIMIT") == NULL ? MODE_INERT : MODE_ALONE;
}

static const char *variable(const char *name, const char *otherwise) {
    const char *value = secure_getenv(name);
    return value == NULL ? otherwise : value;
}

const char *mode_compute(void) { return variable("SLUICE_COMPUTE_LIMIT", NULL); }

const char *mode_limits(void) { return variable("SLUICE_MEMORY_LIMIT", NULL); }

const char *mode_group(void) { return variable("SLUICE_GROUP", "default"); }

uint64_t mode_context(void) {
    uint64_t bytes;
    const char *asked = variable("SLUICE_CONTEXT_MEMORY", "");
    return quota_parse_amount(asked, strlen(asked), &bytes) ? bytes : MODE_CONTEXT_DEFAULT;
}

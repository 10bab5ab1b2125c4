// SPDX-License-Identifier: Apache-2.0
//
// Runs a program as the container of a claim on a node: claim SHARES UID PROGRAM [ARGUMENTS]. SHARES is the agent's share
// directory, with the library in lib/1.0/libsluice.so. All results of the claim, the library and the heartbeat are bound to
// where the agent mounts them, and the program starts with the library.
#include <dirent.h>
#include <sys/stat.h>

#include "mounts.h"

#define INSIDE "/run/sluice"
#define LIBRARY INSIDE "/lib/1.0/libsluice.so"

static void make_directory(const char *path) { must(mkdir(path, 0755) != 0 && errno != EEXIST, path); }

// Binds a file that the node may not have.
static void bind_if_there(const char *from, const char *to, int writable) {
    if (access(from, F_OK) == 0) bind(from, to, writable);
}

static char *joined(const char *shares, const char *uid, const char *index, const char *name) {
    char *path;
    must(asprintf(&path, "%s/%s/%s/%s", shares, uid, index, name) < 0, "asprintf");
    return path;
}

static void bind_result(const char *shares, const char *uid, const char *index) {
    static const struct {
        const char *name;
        int writable;
    } files[] = {{"limits", 0}, {"usage", 1}, {"bell", 1}};
    make_directory(joined(INSIDE, uid, index, ""));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        bind_if_there(joined(shares, uid, index, files[i].name), joined(INSIDE, uid, index, files[i].name), files[i].writable);
    }
}

static void bind_claim(const char *shares, const char *uid) {
    const char *claim = joined(shares, uid, "", "");
    make_directory(joined(INSIDE, uid, "", ""));
    DIR *results = opendir(claim);
    must(results == NULL, claim);
    for (struct dirent *entry; (entry = readdir(results)) != NULL;) {
        if (entry->d_name[0] != '.') bind_result(shares, uid, entry->d_name);
    }
    closedir(results);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    leave_the_host();
    make_directory(INSIDE);
    make_directory(INSIDE "/lib");
    make_directory(INSIDE "/lib/1.0");
    bind(joined(arguments[1], "lib", "1.0", "libsluice.so"), LIBRARY, 0);
    bind_if_there(joined(arguments[1], "", "", "heartbeat"), INSIDE "/heartbeat", 0);
    bind_claim(arguments[1], arguments[2]);
    must(setenv("LD_PRELOAD", LIBRARY, 1) != 0, "setenv");
    execv(arguments[3], &arguments[3]);
    must(1, arguments[3]);
}

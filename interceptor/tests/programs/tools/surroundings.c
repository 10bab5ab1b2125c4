// SPDX-License-Identifier: Apache-2.0
//
// Prints what a library may change in a process that does not use it: umask, signals, environment, descriptors, mapped files
// and privileges. Lines that name the preloaded library are left out.
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static int ours(const char *text) { return strstr(text, "libsluice") != NULL || strncmp(text, "SLUICE_", 7) == 0; }

static void signals(void) {
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 1; i < NSIG; i++) {
        struct sigaction set;
        if (sigaction(i, NULL, &set) != 0) continue;
        printf("signal %d: %s%s\n", i, set.sa_handler == SIG_DFL ? "default" : set.sa_handler == SIG_IGN ? "ignored" : "handled",
               sigismember(&blocked, i) ? ", blocked" : "");
    }
}

static void descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;
    int count = 0;
    while (directory != NULL && (entry = readdir(directory)) != NULL) count += entry->d_name[0] != '.';
    if (directory != NULL) closedir(directory);
    printf("%d descriptors\n", count);
}

static void mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096], before[4096] = "";
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        const char *path = strchr(line, '/');
        if (path != NULL && strcmp(path, before) != 0 && !ours(path)) printf("mapped: %s", path);
        snprintf(before, sizeof before, "%s", path == NULL ? "" : path);
    }
    if (maps != NULL) fclose(maps);
}

int main(void) {
    mode_t mask = umask(0);
    umask(mask);
    printf("umask %o\n", (unsigned)mask);
    signals();
    for (char **variable = environ; *variable != NULL; variable++) {
        if (!ours(*variable)) printf("%s\n", *variable);
    }
    descriptors();
    mappings();
    printf("dumpable %d, no new privileges %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    return 0;
}

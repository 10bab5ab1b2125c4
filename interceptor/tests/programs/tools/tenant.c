// SPDX-License-Identifier: Apache-2.0
//
// Runs a program as a tenant's container sees things: tenant DIR HOW PROGRAM [ARGUMENTS]. In a mount namespace of its own (and
// where that needs it a user namespace) the library and the files of the share in DIR are bound to where the agent mounts
// them, and the program starts with the library. HOW is one letter for each part:
//   l  limits, read-only       w  limits, writable       c  limits, a copy on another file system
//   u  usage                   2  a second share of the same device, from limits2 and usage2
//   p  a PID namespace of its own, in which the program is process 1
//   1  a version of one character, 1 instead of 1.0
//   s  the program names the library in another spelling than the agent does
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "mounts.h"

static void copy(const char *from, const char *to) {
    char page[4096];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    must(in < 0 || out < 0 || read(in, page, sizeof page) < 0 || write(out, page, sizeof page) < 0, to);
    close(in);
    close(out);
    must(mount(to, to, NULL, MS_BIND, NULL) != 0 || mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0, to);
}

static void share(const char *dir, const char *suffix, const char *index, const char *how) {
    char from[512], to[128];
    snprintf(to, sizeof to, "/run/sluice/claim/%s", index);
    must(mkdir(to, 0755) != 0, to);
    snprintf(from, sizeof from, "%s/limits%s", dir, suffix);
    snprintf(to, sizeof to, "/run/sluice/claim/%s/limits", index);
    if (strchr(how, 'c') != NULL) copy(from, to);
    if (strpbrk(how, "lw") != NULL) bind(from, to, strchr(how, 'w') != NULL);
    snprintf(from, sizeof from, "%s/usage%s", dir, suffix);
    snprintf(to, sizeof to, "/run/sluice/claim/%s/usage", index);
    if (strchr(how, 'u') != NULL) bind(from, to, 1);
}

// Ends with the program, and takes it along.
static void become_first_process(void) {
    int status = 0;
    must(unshare(CLONE_NEWPID) != 0, "unshare");
    pid_t child = fork();
    must(child < 0, "fork");
    if (child == 0) {
        must(prctl(PR_SET_PDEATHSIG, SIGKILL) != 0, "prctl");
        return;
    }
    must(waitpid(child, &status, 0) != child, "waitpid");
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128);
}

int main(int count, char **arguments) {
    char from[512], dir[64], library[96];
    if (count < 4) return 2;
    snprintf(dir, sizeof dir, "/run/sluice/lib/%s", strchr(arguments[2], '1') != NULL ? "1" : "1.0");
    snprintf(library, sizeof library, "%s/libsluice.so", dir);
    leave_the_host();
    must(mkdir("/run/sluice", 0755) != 0 || mkdir("/run/sluice/lib", 0755) != 0 || mkdir(dir, 0755) != 0, "mkdir");
    must(mkdir("/run/sluice/claim", 0755) != 0, "mkdir");
    snprintf(from, sizeof from, "%s/libsluice.so", arguments[1]);
    bind(from, library, 0);
    share(arguments[1], "", "0", arguments[2]);
    if (strchr(arguments[2], '2') != NULL) share(arguments[1], "2", "1", arguments[2]);
    if (strchr(arguments[2], 'p') != NULL) become_first_process();
    snprintf(from, sizeof from, "%s%s", strchr(arguments[2], 's') != NULL ? "//run/./sluice/../.." : "", library);
    must(setenv("LD_PRELOAD", from, 1) != 0, "setenv");
    execv(arguments[3], &arguments[3]);
    must(1, arguments[3]);
}

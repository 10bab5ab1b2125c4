// SPDX-License-Identifier: Apache-2.0
// The command that tells CUDA programs their cgroups. A program in a container cannot know its own as the node does; it
// holds a lock in the state file, and the kernel tells whoever asks on the node the PID of its holder.
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "state/limit.h"
#include "state/proc.h"

#define MOST_ANCESTORS 32

// Reads the cgroup v2 path of a process; 0 where the file has none.
static int read_cgroup(const char *proc, unsigned pid, char cgroup[FG_CGROUP]) {
    char path[512], line[FG_CGROUP + 3];
    int found = 0;
    snprintf(path, sizeof path, "%s/%u/cgroup", proc, pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::/", 4) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(cgroup, FG_CGROUP, "%s", line[4] == '\0' ? "" : line + 3);
        found = 1;
    }
    fclose(file);
    return found;
}

static unsigned parent_of(unsigned pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')'); // the name may hold anything
    return at == NULL || strlen(at) < 5 ? 0 : (unsigned)strtoul(at + 4, NULL, 10);
}

// The cgroup of a process. Where files stand in for the kernel's, a process is where its parent is, as it would be.
static int cgroup_of(const char *proc, unsigned pid, char cgroup[FG_CGROUP]) {
    for (int i = 0; pid > 0 && i < MOST_ANCESTORS; i++, pid = parent_of(pid)) {
        if (read_cgroup(proc, pid, cgroup)) return 1;
    }
    return 0;
}

static void tell_all(struct fg_db *db, const char *proc) {
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &db->state->procs[i];
        uint32_t kind = fg_read(&p->kind);
        if ((kind != FG_PROC_CUDA && kind != FG_PROC_ASKING) || fg_read(&p->located) != FG_UNLOCATED) continue;
        unsigned pid = fg_shown_pid(db, i);
        if (pid == 0) continue; // it does not ask
        char cgroup[FG_CGROUP];
        int found = cgroup_of(proc, pid, cgroup);
        fg_lock(db);
        // The slot may be another process's by now: that one shows itself anew.
        if (fg_shown_pid(db, i) == pid) fg_tell_cgroup(db, i, found ? cgroup : NULL);
        fg_unlock(db);
    }
}

// Whether the name still leads to the file that is open.
static int is_current(const struct fg_db *db) {
    struct stat open_file, named;
    return fstat(db->fd, &open_file) == 0 && stat(db->path, &named) == 0 && open_file.st_ino == named.st_ino &&
           open_file.st_dev == named.st_dev;
}

int command_locate(const struct options *o) {
    struct fg_db db;
    const char *proc = o->proc != NULL ? o->proc : "/proc";
    if (open_state(o, &db) != 0) return 1;
    do {
        uint32_t wanted = fg_read(&db.state->wanted);
        tell_all(&db, proc);
        if (o->once) break;
        struct timespec longest = {.tv_sec = 1};
        syscall(SYS_futex, &db.state->wanted, FUTEX_WAIT, wanted, &longest, NULL, 0);
    } while (is_current(&db));
    fg_close(&db);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A driver root, as a container toolkit expects to find the driver on a node.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cli.h"

#define MAJOR_NVIDIA 195
#define MAJOR_UVM 510
#define MAJOR_CAPS 508
#define MIG_GIS 15
#define MIG_CIS 8
#define MINORS_OF_A_GPU (MIG_GIS * (1 + MIG_CIS))
#define FIRST_MIG_MINOR 3 // 1 and 2 are config and monitor

struct root {
    const char *directory;
    int plain_files; // stand-ins for device nodes that could not be made
    int failed;
};

static void complain(struct root *root, const char *what, const char *path) {
    if (!root->failed) fail("cannot make %s %s: %s", what, path, strerror(errno));
    root->failed = 1;
}

static void path_of(const struct root *root, char *path, size_t size, const char *format, va_list arguments) {
    int length = snprintf(path, size, "%s/", root->directory);
    if (length > 0 && (size_t)length < size) vsnprintf(path + length, size - (size_t)length, format, arguments);
}

// Makes the directory and those above it.
__attribute__((format(printf, 2, 3))) static void make_directory(struct root *root, const char *format, ...) {
    char path[4096];
    va_list arguments;
    va_start(arguments, format);
    path_of(root, path, sizeof path, format, arguments);
    va_end(arguments);
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        char kept = *at;
        *at = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST) complain(root, "directory", path);
        *at = kept;
        if (kept == '\0') return;
    }
}

__attribute__((format(printf, 4, 5))) static void make_node(struct root *root, unsigned major, unsigned minor,
                                                            const char *format, ...) {
    char path[4096];
    va_list arguments;
    va_start(arguments, format);
    path_of(root, path, sizeof path, format, arguments);
    va_end(arguments);
    unlink(path);
    if (mknod(path, S_IFCHR | 0666, makedev(major, minor)) == 0) {
        chmod(path, 0666);
        return;
    }
    // Without the right to make devices, or on a file system without them.
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        complain(root, "device", path);
        return;
    }
    close(fd);
    root->plain_files++;
}

static int copy(int from, int to) {
    char buffer[1 << 16];
    for (ssize_t got; (got = read(from, buffer, sizeof buffer)) != 0;) {
        if (got < 0 || write(to, buffer, (size_t)got) != got) return -1;
    }
    return 0;
}

// <root>/usr/lib64/<name>.<version> and its links <name>.1 and <name>.
static void install_library(struct root *root, const char *libs, const char *name, const char *version) {
    char from[4096], to[4096], link[4200], target[256];
    snprintf(from, sizeof from, "%s/%s.1", libs, name);
    snprintf(to, sizeof to, "%s/usr/lib64/%s.%s", root->directory, name, version);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    unlink(to); // a library that is in use is replaced, not written over
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (in < 0 || out < 0 || copy(in, out) < 0) complain(root, "library", in < 0 ? from : to);
    if (in >= 0) close(in);
    if (out >= 0) close(out);

    snprintf(target, sizeof target, "%s.%s", name, version);
    snprintf(link, sizeof link, "%s/usr/lib64/%s.1", root->directory, name);
    unlink(link);
    if (symlink(target, link) < 0) complain(root, "link", link);
    snprintf(target, sizeof target, "%s.1", name);
    snprintf(link, sizeof link, "%s/usr/lib64/%s", root->directory, name);
    unlink(link);
    if (symlink(target, link) < 0) complain(root, "link", link);
}

static void make_devices(struct root *root, const struct fg_state *state) {
    make_directory(root, "dev/nvidia-caps");
    make_node(root, MAJOR_NVIDIA, 255, "dev/nvidiactl");
    make_node(root, MAJOR_UVM, 0, "dev/nvidia-uvm");
    make_node(root, MAJOR_UVM, 1, "dev/nvidia-uvm-tools");
    unsigned highest = 0;
    for (unsigned i = 0; i < state->gpu_count; i++) {
        unsigned minor = state->gpus[i].minor;
        make_node(root, MAJOR_NVIDIA, minor, "dev/nvidia%u", minor);
        if (minor + 1 > highest) highest = minor + 1;
    }
    for (unsigned m = 1; m < FIRST_MIG_MINOR + highest * MINORS_OF_A_GPU; m++) {
        make_node(root, MAJOR_CAPS, m, "dev/nvidia-caps/nvidia-cap%u", m);
    }
}

// The static table of the real driver: every instance that could ever be, for as many GPUs as a node can have.
static void write_mig_minors(struct root *root) {
    enum { GPUS_OF_TABLE = FG_MAX_GPUS };
    char path[4096];
    make_directory(root, "proc/driver/nvidia-caps");
    snprintf(path, sizeof path, "%s/proc/driver/nvidia-caps/mig-minors", root->directory);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        complain(root, "file", path);
        return;
    }
    fprintf(file, "config 1\nmonitor 2\n");
    unsigned minor = FIRST_MIG_MINOR;
    for (int gpu = 0; gpu < GPUS_OF_TABLE; gpu++) {
        for (int gi = 0; gi < MIG_GIS; gi++) {
            fprintf(file, "gpu%d/gi%d/access %u\n", gpu, gi, minor++);
            for (int ci = 0; ci < MIG_CIS; ci++) fprintf(file, "gpu%d/gi%d/ci%d/access %u\n", gpu, gi, ci, minor++);
        }
    }
    if (fclose(file) != 0) complain(root, "file", path);
}

// What the driver tells about itself in proc: its version, and one directory for each GPU.
static void write_proc(struct root *root, const struct fg_state *state) {
    char path[4096];
    make_directory(root, "proc/driver/nvidia/capabilities/mig");
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/version", root->directory);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        complain(root, "file", path);
        return;
    }
    fprintf(file, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s\n", state->driver);
    if (fclose(file) != 0) complain(root, "file", path);
    for (unsigned i = 0; i < state->gpu_count; i++) {
        const struct fg_gpu *gpu = &state->gpus[i];
        struct fg_board board;
        if (!fg_board_find(gpu->board, &board)) continue;
        make_directory(root, "proc/driver/nvidia/gpus/0000:%02x:00.0", gpu->bus);
        snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/0000:%02x:00.0/information", root->directory, gpu->bus);
        file = fopen(path, "we");
        if (file == NULL) {
            complain(root, "file", path);
            return;
        }
        fprintf(file, "Model: \t\t %s\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t 0000:%02x:00.0\nDevice Minor: \t %u\n",
                board.product, gpu->uuid, gpu->bus, gpu->minor);
        if (fclose(file) != 0) complain(root, "file", path);
    }
}

// The directory of this program, where the libraries are built too.
static void own_directory(char *path, size_t size) {
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length < 0 ? 0 : length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
}

int command_root(const struct options *o) {
    struct fg_db db;
    char libs[3072];
    if (o->root == NULL) return fail("--root DIR is missing");
    if (open_state(o, &db) != 0) return 1;
    own_directory(libs, sizeof libs);
    struct root root = {.directory = o->root};
    mode_t old = umask(022);
    make_directory(&root, "usr/lib64");
    install_library(&root, o->libs != NULL ? o->libs : libs, "libnvidia-ml.so", db.state->driver);
    install_library(&root, o->libs != NULL ? o->libs : libs, "libcuda.so", db.state->driver);
    make_devices(&root, db.state);
    write_mig_minors(&root);
    write_proc(&root, db.state);
    umask(old);
    fg_close(&db);
    if (root.plain_files > 0) {
        fprintf(stderr,
                "fakegpu: %d device files under %s/dev are plain files, since this user cannot make devices: "
                "bind-mount /dev/null over them\n",
                root.plain_files, o->root);
    }
    return root.failed;
}

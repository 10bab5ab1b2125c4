// SPDX-License-Identifier: Apache-2.0
//
// Memory that outlives who made it: chain vmm|ipc MIB MOST. Children make memory, hand it over and end; this process keeps it.
// Prints a step when it was refused, waits for a line, gives all back, prints again, and waits.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

enum { MOST = 1024 };

static result begin(void) {
    handle context;
    driver_reach();
    result got = cu.cuInit(0);
    if (got == SUCCESS) got = cu.cuDevicePrimaryCtxRetain(&context, 0);
    return got == SUCCESS ? cu.cuCtxSetCurrent(context) : got;
}

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

static int send_fd(int to, int fd, result error) {
    union control control = {0};
    struct iovec data = {.iov_base = &error, .iov_len = sizeof error};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    }
    return sendmsg(to, &message, 0) < 0;
}

static int receive_fd(int from, result *error) {
    union control control = {0};
    struct iovec data = {.iov_base = error, .iov_len = sizeof *error};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != sizeof *error) return -1;
    if (CMSG_FIRSTHDR(&message) != NULL) memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

// The child: makes, hands over, waits until it was taken, ends.
static int make(const char *kind, size_t size, int to) {
    result error = begin();
    char taken;
    if (strcmp(kind, "vmm") == 0) {
        const struct physical_properties properties = {.type = 1, .handle_types = 1, .location = {.type = 1, .id = 0}};
        unsigned long long physical;
        int fd = -1;
        if (error == SUCCESS) error = cu.cuMemCreate(&physical, size, &properties, 0);
        if (error == SUCCESS) error = cu.cuMemExportToShareableHandle(&fd, physical, 1, 0);
        if (send_fd(to, fd, error)) return 1;
    } else {
        struct {
            result error;
            struct ipc ipc;
        } out = {0};
        pointer at;
        if (error == SUCCESS) error = cu.cuMemAlloc(&at, size);
        if (error == SUCCESS) error = cu.cuIpcGetMemHandle(&out.ipc, at);
        out.error = error;
        if (write(to, &out, sizeof out) != sizeof out) return 1;
    }
    return read(to, &taken, 1) < 0;
}

struct piece {
    pointer at;
    unsigned long long physical;
};

static result keep_vmm(int from, size_t size, struct piece *piece) {
    result error = OUT_OF_MEMORY;
    int fd = receive_fd(from, &error);
    if (fd < 0) return error;
    error = cu.cuMemImportFromShareableHandle(&piece->physical, (void *)(intptr_t)fd, 1);
    close(fd);
    if (error == SUCCESS) error = cu.cuMemAddressReserve(&piece->at, size, 0, 0, 0);
    return error == SUCCESS ? cu.cuMemMap(piece->at, size, 0, piece->physical, 0) : error;
}

static result keep_ipc(int from, struct piece *piece) {
    struct {
        result error;
        struct ipc ipc;
    } in;
    if (read(from, &in, sizeof in) != sizeof in) return OUT_OF_MEMORY;
    return in.error == SUCCESS ? cu.cuIpcOpenMemHandle(&piece->at, in.ipc, 1) : in.error;
}

static result link_of_chain(const char *kind, const char *size, struct piece *piece) {
    int ends[2];
    char end[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return OUT_OF_MEMORY;
    snprintf(end, sizeof end, "%d", ends[1]);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        execl("/proc/self/exe", "chain", kind, size, "child", end, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t bytes = (size_t)atoi(size) * MIB;
    result error = strcmp(kind, "vmm") == 0 ? keep_vmm(ends[0], bytes, piece) : keep_ipc(ends[0], piece);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return error;
}

static void tell(const char *step, int pieces, size_t bytes, result error) {
    printf("{\"step\":\"%s\",\"pieces\":%d,\"bytes\":%zu,\"error\":%d}\n", step, pieces, bytes, error);
    fflush(stdout);
    if (getchar() == EOF) exit(0);
}

int main(int count, char **arguments) {
    static struct piece pieces[MOST];
    if (count == 5) return make(arguments[1], (size_t)atoi(arguments[2]) * MIB, atoi(arguments[4]));
    if (count != 4) return 2;
    size_t size = (size_t)atoi(arguments[2]) * MIB;
    int most = atoi(arguments[3]) < MOST ? atoi(arguments[3]) : MOST, kept = 0;
    result error = begin();
    tell("ready", 0, 0, error);
    while (kept < most && (error = link_of_chain(arguments[1], arguments[2], &pieces[kept])) == SUCCESS) kept++;
    tell("full", kept, (size_t)kept * size, error);
    for (int i = 0; i < kept; i++) {
        if (strcmp(arguments[1], "vmm") == 0) {
            error = cu.cuMemUnmap(pieces[i].at, size);
            if (error == SUCCESS) error = cu.cuMemRelease(pieces[i].physical);
        } else {
            error = cu.cuIpcCloseMemHandle(pieces[i].at);
        }
        if (error != SUCCESS) break;
    }
    tell("empty", 0, 0, error);
    return 0;
}

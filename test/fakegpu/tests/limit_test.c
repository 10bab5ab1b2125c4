// SPDX-License-Identifier: Apache-2.0
// Memory limits of cgroups, in directories that stand in for a cgroup file system.
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "check.h"
#include "cuda_api.h"
#include "hold_api.h"
#include "nvml_api.h"
#include "state/state.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static char root[128], pod[144], leaf[160], other[160];

static void make_directory(const char *path, int dmem) {
    char file[400];
    if (mkdir(path, 0755) != 0) perror(path);
    if (!dmem) return;
    snprintf(file, sizeof file, "%s/cgroup.subtree_control", path);
    int fd = open(file, O_WRONLY | O_CREAT, 0644);
    if (fd < 0 || write(fd, "cpu dmem\n", 9) != 9) perror(file);
    if (fd >= 0) close(fd);
}

static void node(const char *driver, const char *backend) {
    char options[256], line[600];
    snprintf(root, sizeof root, "%s/cgroups-%ld", getenv("BUILD"), (long)getpid());
    snprintf(pod, sizeof pod, "%s/pod", root);
    snprintf(leaf, sizeof leaf, "%s/leaf", pod);
    snprintf(other, sizeof other, "%s/other", pod);
    snprintf(line, sizeof line, "rm -rf %s", root);
    if (system(line) != 0) exit(1);
    int dmem = strcmp(backend, "dmem") == 0;
    make_directory(root, dmem);
    make_directory(pod, dmem);
    make_directory(leaf, dmem);
    make_directory(other, dmem);
    snprintf(options, sizeof options, "--board h200-141gb --gpus 1 --driver %s --cgroups %s --limits %s", driver, root, backend);
    fresh_node(options);
}

static void remove_node(void) {
    char line[400];
    snprintf(line, sizeof line, "rm -rf %s", root);
    if (system(line) != 0) perror(line);
}

static nv_device device(void) {
    nv_device d;
    if (nvmlInit_v2() != NV_SUCCESS || nvmlDeviceGetHandleByIndex_v2(0, &d) != NV_SUCCESS) exit(1);
    return d;
}

static nv_return set(nv_device d, const char *cgroup, uint64_t soft, uint64_t hard) {
    nv_set_limits limits = {.cgroup = cgroup, .soft = soft, .hard = hard};
    return nvmlDeviceSetMemoryLimits_v1(d, &limits);
}

static nv_get_limits got;

static nv_return get(nv_device d, const char *cgroup) {
    got = (nv_get_limits){.cgroup = cgroup};
    return nvmlDeviceGetMemoryLimits_v1(d, &got);
}

static void answers(void) {
    node("580.159.04", "dmem");
    nv_device d = device();
    CHECK_CODE("driver 580 has no limits to set", NV_NOT_SUPPORTED, set(d, leaf, 0, GIB));
    CHECK_CODE("and none to tell", NV_NOT_SUPPORTED, get(d, leaf));
    nvmlShutdown();

    node("615.71.09", "dmem");
    d = device();
    CHECK("where nothing was set there is no limit", get(d, leaf) == NV_SUCCESS && got.soft == 0 && got.hard == FG_NO_LIMIT);
    CHECK_CODE("limits are set", NV_SUCCESS, set(d, leaf, GIB, 2 * GIB));
    CHECK("and told", get(d, leaf) == NV_SUCCESS && got.soft == GIB && got.hard == 2 * GIB && got.used == 0);
    CHECK_CODE("soft above hard is refused", NV_INVALID_ARGUMENT, set(d, leaf, 3 * GIB, 2 * GIB));
    CHECK_CODE("more than the device has is refused", NV_INVALID_ARGUMENT, set(d, leaf, 0, 200 * GIB));
    CHECK_CODE("a soft limit alone is refused", NV_INVALID_ARGUMENT, set(d, leaf, GIB, FG_NO_LIMIT));
    CHECK_CODE("a path that is not there is the system's error", NV_OPERATING_SYSTEM, set(d, "/nowhere", 0, GIB));
    CHECK_CODE("a cgroup without the controller's files is not found", NV_NOT_FOUND, get(d, root));
    CHECK_CODE("no limits are refused", NV_INVALID_ARGUMENT, nvmlDeviceSetMemoryLimits_v1(d, NULL));
    CHECK_CODE("limits are cleared", NV_SUCCESS, set(d, leaf, 0, FG_NO_LIMIT));
    CHECK("and gone", get(d, leaf) == NV_SUCCESS && got.hard == FG_NO_LIMIT);
    nvmlShutdown();

    node("615.71.09", "misc");
    d = device();
    CHECK_CODE("the driver's own map knows nothing of a cgroup without limits", NV_NOT_SUPPORTED, get(d, leaf));
    CHECK_CODE("it takes limits", NV_SUCCESS, set(d, leaf, 0, GIB));
    CHECK("and tells them", get(d, leaf) == NV_SUCCESS && got.hard == GIB);
    if (geteuid() == 0 && fork() == 0) {
        if (setuid(65534) != 0) _exit(2);
        _exit(set(d, leaf, 0, GIB) != NV_NO_PERMISSION || get(d, leaf) != NV_SUCCESS);
    }
    int status = 0;
    while (wait(&status) < 0 && geteuid() == 0) continue;
    CHECK("only root sets them, anybody reads them", status == 0);
    nvmlShutdown();
}

static void mig(void) {
    node("615.71.09", "misc");
    nv_device d = device(), instance;
    nv_return activation;
    nv_gi gi;
    nv_ci ci;
    if (nvmlDeviceSetMigMode(d, 1, &activation) != NV_SUCCESS || nvmlDeviceCreateGpuInstance(d, ID_1G, &gi) != NV_SUCCESS ||
        nvmlGpuInstanceCreateComputeInstance(gi, 0, &ci) != NV_SUCCESS ||
        nvmlDeviceGetMigDeviceHandleByIndex(d, 0, &instance) != NV_SUCCESS) {
        CHECK("an instance can be made", 0);
        return;
    }
    CHECK_CODE("the handle of a MIG device is refused", NV_NOT_SUPPORTED, set(instance, leaf, 0, GIB));
    nvmlShutdown();
}

// What a program in a cgroup comes by: pieces of 256 MiB until it is refused, and the total that it is told.
struct tenant {
    int pid, go;
    int pieces;
    size_t total;
    unsigned long long nvml_total;
};

static void be_tenant(int in, int out, int most) {
    struct tenant t = {0};
    cu_device d;
    cu_context c;
    cu_pointer p;
    size_t room;
    char go;
    if (read(in, &go, 1) != 1) _exit(1);
    if (cuInit(0) == CU_SUCCESS && cuDeviceGet(&d, 0) == CU_SUCCESS && cuCtxCreate_v2(&c, 0, d) == CU_SUCCESS) {
        nv_memory_v2 memory = {.version = NV_STRUCT_VERSION(nv_memory_v2, 2)};
        cuMemGetInfo_v2(&room, &t.total);
        if (nvmlDeviceGetMemoryInfo_v2(device(), &memory) == NV_SUCCESS) t.nvml_total = memory.total;
        if (most > 1) cuMemAllocManaged(&p, 64 * GIB, 1);
        if (most > 1) cuMemPrefetchAsync(p, 8 * GIB, 0, NULL);
        while (t.pieces < most && cuMemAlloc_v2(&p, 256 * MIB) == CU_SUCCESS) t.pieces++;
    }
    if (write(out, &t, sizeof t) != sizeof t) _exit(1);
    pause();
    _exit(0);
}

static void write_cgroup(const char *proc, int pid, const char *cgroup) {
    char line[600];
    snprintf(line, sizeof line, "mkdir -p %s/%d && echo 0::%s > %s/%d/cgroup", proc, pid, cgroup, proc, pid);
    if (system(line) != 0) exit(1);
}

// Starts a tenant in a cgroup and waits for what it says.
static struct tenant run_tenant(const char *proc, const char *cgroup, int most) {
    struct tenant t = {.pieces = -1};
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) exit(1);
    int pid = fork();
    if (pid == 0) {
        close(in[1]);
        be_tenant(in[0], out[1], most);
    }
    if (cgroup != NULL) write_cgroup(proc, pid, cgroup);
    close(in[0]);
    close(out[1]);
    if (write(in[1], "g", 1) != 1 || read(out[0], &t, sizeof t) != sizeof t) printf("      the tenant says nothing\n");
    close(in[1]);
    close(out[0]);
    t.pid = pid;
    return t;
}

static void end(const struct tenant *t) {
    kill(t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
}

// Pieces that fit beside one context.
static int fits(uint64_t limit) { return (int)((limit - 518 * MIB) / (256 * MIB)); }

static void held(const char *backend) {
    char proc[300], program[400];
    int nested = strcmp(backend, "dmem") == 0;
    node("615.71.09", backend);
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(program, sizeof program, "%s/fakegpu", getenv("BUILD"));
    make_directory(proc, 0);
    nv_device d = device();
    set(d, leaf, 0, 4 * GIB);
    set(d, pod, 0, 6 * GIB);
    int helper = fork();
    if (helper == 0) {
        execl(program, program, "locate", "--proc", proc, "--state", getenv("FAKEGPU_STATE"), (char *)NULL);
        _exit(127);
    }
    printf("== %s\n", backend);
    struct tenant first = run_tenant(proc, "/pod/leaf", 1000);
    CHECK("a tenant has its limit, its context counted and managed memory not", first.pieces == fits(4 * GIB));
    CHECK("which CUDA tells it as the total", first.total == 4 * GIB);
    CHECK("and NVML", first.nvml_total == 4 * GIB);
    CHECK("what it holds is told", get(d, leaf) == NV_SUCCESS && got.used == (518 + 256 * (uint64_t)first.pieces) * MIB);
    struct tenant second = run_tenant(proc, "/pod/other", 40);
    CHECK("a cgroup without a limit of its own shows the whole GPU", second.total > 100 * GIB && second.nvml_total > 100 * GIB);
    if (nested) {
        uint64_t room = 6 * GIB - (518 + 256 * (uint64_t)first.pieces) * MIB;
        CHECK("and is held by its parent's", second.pieces == fits(room));
    } else {
        CHECK("and is held by nobody", second.pieces == 40);
    }
    struct tenant third = run_tenant(proc, "/elsewhere", 40);
    CHECK("who is in none of them is not held", third.pieces == 40);
    end(&first);
    struct tenant again = run_tenant(proc, "/pod/leaf", 1);
    CHECK("what a killed tenant held is free again", again.pieces == 1);
    set(d, leaf, 0, 512 * MIB);
    struct tenant none = run_tenant(proc, "/pod/leaf", 1);
    CHECK("a limit below a context leaves no context", none.pieces == 0 && none.total == 0);
    end(&second);
    end(&third);
    end(&again);
    end(&none);
    kill(helper, SIGKILL);
    waitpid(helper, NULL, 0);
    nvmlShutdown();
}

static void reservations(void) {
    char line[600];
    node("615.71.09", "dmem");
    nv_device d = device();
    set(d, leaf, GIB, 2 * GIB);
    set(d, other, GIB, 2 * GIB);
    set(d, other, 0, 2 * GIB);
    snprintf(line, sizeof line, "rm -r %s %s", leaf, other);
    if (system(line) != 0) exit(1);
    snprintf(line, sizeof line, "%s/fakegpu show --state %s > %s/shown", getenv("BUILD"), getenv("FAKEGPU_STATE"), root);
    if (system(line) != 0) exit(1);
    snprintf(line, sizeof line, "grep -q '/pod/leaf  gone, and still has 1024 MiB reserved' %s/shown", root);
    CHECK("what a removed cgroup had reserved stays reserved", system(line) == 0);
    snprintf(line, sizeof line, "! grep -q /pod/other %s/shown", root);
    CHECK("unless it was set to 0 before", system(line) == 0);
    make_directory(leaf, 1);
    CHECK("a new cgroup of that name has no limit", get(d, leaf) == NV_SUCCESS && got.hard == FG_NO_LIMIT);
    nvmlShutdown();
}

int main(void) {
    answers();
    mig();
    held("dmem");
    held("misc");
    reservations();
    remove_node();
    return finish();
}

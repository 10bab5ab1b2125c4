// SPDX-License-Identifier: Apache-2.0
// A process can be killed between any two instructions. This walks a process
// through its calls one instruction at a time and looks at the state after each:
// what is to be seen there is what a kill at that point would leave.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "check.h"
#include "cuda_api.h"
#include "nvml_api.h"
#include "state/state.h"

#define MIB (1ull << 20)

static const struct fg_state *state;

static void map_state(void) {
    int fd = open(getenv("FAKEGPU_STATE"), O_RDONLY);
    state = mmap(NULL, sizeof *state, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (state == MAP_FAILED) exit(1);
}

// Steps a child through the calls; how often `good` did not hold, or -1.
static long walk(void (*calls)(void), int (*good)(void), long *steps) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        calls();
        _exit(0);
    }
    waitpid(child, &status, 0); // stopped where the calls begin
    long bad = 0;
    for (*steps = 0; WIFSTOPPED(status); (*steps)++) {
        bad += !good();
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0) return -1;
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? bad : -1;
}

static nv_device gpu(void) {
    nv_device device = NULL;
    nvmlDeviceGetHandleByIndex_v2(0, &device);
    return device;
}

static nv_return create_at(unsigned id, unsigned start, unsigned size, nv_gi *gi) {
    nv_placement at = {.start = start, .size = size};
    return nvmlDeviceCreateGpuInstanceWithPlacement(gpu(), id, &at, gi);
}

static void live_and_die(void) {
    nv_gi gi;
    nv_ci ci;
    if (nvmlInit_v2() != NV_SUCCESS) _exit(1);
    raise(SIGTRAP);
    if (create_at(ID_1G, 3, 1, &gi) != NV_SUCCESS) _exit(1);
    if (nvmlGpuInstanceCreateComputeInstance(gi, GI_1, &ci) != NV_SUCCESS) _exit(1);
    if (nvmlComputeInstanceDestroy(ci) != NV_SUCCESS || nvmlGpuInstanceDestroy(gi) != NV_SUCCESS) _exit(1);
}

// Nothing, or the one instance whole, with nothing or its one compute instance in it.
static int nothing_or_whole(void) {
    for (int g = 0; g < FG_MAX_GIS; g++) {
        const struct fg_gi *gi = &state->gpus[0].gis[g];
        if (!fg_read(&gi->used)) continue;
        if (g != 0 || gi->profile != 0 || gi->start != 3 || gi->id != 10) return 0;
        for (int c = 0; c < FG_MAX_CIS; c++) {
            const struct fg_ci *ci = &gi->cis[c];
            if (!fg_read(&ci->used)) continue;
            if (c != 0 || ci->profile != GI_1 || ci->start != 0 || ci->size != 1 || ci->id != 0) return 0;
        }
    }
    return 1;
}

static void allocate(void) {
    cu_context context;
    cu_pointer pointer;
    if (cuInit(0) != CU_SUCCESS) _exit(1);
    raise(SIGTRAP);
    if (cuCtxCreate_v2(&context, 0, 0) != CU_SUCCESS || cuMemAlloc_v2(&pointer, 8 * MIB) != CU_SUCCESS) _exit(1);
    if (cuMemFree_v2(pointer) != CU_SUCCESS || cuCtxDestroy_v2(context) != CU_SUCCESS) _exit(1);
}

// No process, or one that has nothing yet or no longer, or a context, with or without its allocation.
static int none_or_exact(void) {
    for (int i = 0; i < FG_MAX_PROCS; i++) {
        const struct fg_proc *p = &state->procs[i];
        if (fg_read(&p->kind) == FG_PROC_FREE) continue;
        if (i != 0 || p->gpu != 1 || p->gi != FG_NO_INSTANCE || (p->bytes != 0 && p->bytes != 518 * MIB && p->bytes != 526 * MIB)) return 0;
    }
    return 1;
}

int main(void) {
    nv_gi gi;
    nv_ci ci;
    long steps;
    fresh_node("--board h100-80gb --gpus 1 --mig on");
    fakegpu("add --board h100-80gb --gpus 1");
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    map_state();
    // Something else was there before, so that what is shown too early is wrong.
    nvmlInit_v2();
    create_at(ID_3G, 4, 4, &gi);
    nvmlGpuInstanceCreateComputeInstance(gi, GI_2, &ci);
    nvmlComputeInstanceDestroy(ci);
    nvmlGpuInstanceDestroy(gi);
    nvmlShutdown();

    CHECK("an instance is there whole or not at all, after every instruction", walk(live_and_die, nothing_or_whole, &steps) == 0);
    CHECK("and every instruction was looked at", steps > 1000);
    CHECK("memory is charged exactly or not at all, after every instruction", walk(allocate, none_or_exact, &steps) == 0);
    CHECK("and every instruction was looked at", steps > 1000);
    return finish();
}

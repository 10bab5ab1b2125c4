// SPDX-License-Identifier: Apache-2.0
// Many processes and threads at once, and processes killed in the middle of calls.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "cuda_api.h"
#include "nvml_api.h"
#include "state/state.h"

#define PROCESSES 8
#define RACES 20
#define KILLS 200

static nv_device gpu_at(unsigned index) {
    nv_device gpu = NULL;
    nvmlDeviceGetHandleByIndex_v2(index, &gpu);
    return gpu;
}

static nv_return create_at(nv_device gpu, unsigned start, nv_gi *gi) {
    nv_placement at = {.start = start, .size = 1};
    return nvmlDeviceCreateGpuInstanceWithPlacement(gpu, ID_1G, &at, gi);
}

// Tries every place; tells how many it got.
static int grab(void) {
    nv_gi gi;
    int got = 0;
    if (nvmlInit_v2() != NV_SUCCESS) return 99;
    for (unsigned start = 0; start < 7; start++) {
        nv_return result = create_at(gpu_at(0), start, &gi);
        if (result != NV_SUCCESS && result != INSUFFICIENT_RESOURCES) return 99;
        got += result == NV_SUCCESS;
    }
    nvmlShutdown();
    return got;
}

static void destroy_all(void) {
    nv_gi list[8];
    nv_ci ci;
    unsigned count = 0;
    nvmlDeviceGetGpuInstances(gpu_at(0), ID_1G, list, &count);
    for (unsigned i = 0; i < count; i++) {
        if (nvmlGpuInstanceGetComputeInstanceById(list[i], 0, &ci) == NV_SUCCESS) nvmlComputeInstanceDestroy(ci);
        nvmlGpuInstanceDestroy(list[i]);
    }
}

static void racing_processes(void) {
    int right = 0;
    fflush(stdout);
    for (int race = 0; race < RACES; race++) {
        int sum = 0, status, start[2];
        char none;
        if (pipe(start) != 0) exit(1);
        for (int i = 0; i < PROCESSES; i++) {
            if (fork() != 0) continue;
            close(start[1]);
            if (read(start[0], &none, 1) != 0) _exit(99); // until all have been started
            _exit(grab());
        }
        close(start[0]);
        close(start[1]);
        while (wait(&status) > 0) sum += WEXITSTATUS(status);
        right += sum == 7;
        nvmlInit_v2();
        destroy_all();
        nvmlShutdown();
    }
    CHECK("processes that race for seven places get seven", right == RACES);
}

static void waiting_for_the_lock(void) {
    struct fg_db db;
    struct timespec moment = {.tv_nsec = 100000000};
    int status = 0;
    fg_open(&db, getenv("FAKEGPU_STATE"));
    fg_lock(&db);
    pid_t child = fork();
    if (child == 0) _exit(grab());
    nanosleep(&moment, NULL);
    CHECK("while one process holds the lock another waits", waitpid(child, &status, WNOHANG) == 0);
    fg_unlock(&db);
    fg_close(&db);
    CHECK("and then goes on", waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    nvmlInit_v2();
    destroy_all();
    nvmlShutdown();
}

static void *create_and_destroy(void *argument) {
    nv_gi gi;
    nv_ci ci;
    long *made = argument;
    for (int i = 0; i < 200; i++) {
        if (create_at(gpu_at(0), (unsigned)i % 7, &gi) != NV_SUCCESS) continue;
        if (nvmlGpuInstanceCreateComputeInstance(gi, GI_1, &ci) == NV_SUCCESS) nvmlComputeInstanceDestroy(ci);
        *made += nvmlGpuInstanceDestroy(gi) == NV_SUCCESS;
    }
    return NULL;
}

static void racing_threads(void) {
    pthread_t threads[4];
    long made[4] = {0};
    unsigned left = 0;
    nvmlInit_v2();
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, create_and_destroy, &made[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    nvmlDeviceGetGpuInstanceRemainingCapacity(gpu_at(0), ID_1G, &left);
    CHECK("threads that create and destroy leave nothing", left == 7 && made[0] + made[1] + made[2] + made[3] > 0);
    nvmlShutdown();
}

static void churn(void) {
    nv_gi gi;
    nv_ci ci;
    nvmlInit_v2();
    for (unsigned i = 0;; i++) {
        if (create_at(gpu_at(0), i % 7, &gi) != NV_SUCCESS) {
            destroy_all();
            continue;
        }
        if (nvmlGpuInstanceCreateComputeInstance(gi, GI_1, &ci) == NV_SUCCESS && i % 2) nvmlComputeInstanceDestroy(ci);
        if (i % 3) nvmlGpuInstanceDestroy(gi);
    }
}

// Every instance that is left can be looked at and removed, and then all places are free.
static int usable(void) {
    nv_gi list[8];
    nv_gi_info info;
    unsigned count = 0, left = 0;
    if (nvmlDeviceGetGpuInstances(gpu_at(0), ID_1G, list, &count) != NV_SUCCESS || count > 7) return 0;
    for (unsigned i = 0; i < count; i++) {
        if (nvmlGpuInstanceGetInfo(list[i], &info) != NV_SUCCESS) return 0;
        if (info.placement.start > 6 || info.placement.size != 1 || info.profile_id != ID_1G) return 0;
        for (unsigned j = 0; j < i; j++) {
            nv_gi_info other;
            nvmlGpuInstanceGetInfo(list[j], &other);
            if (other.placement.start == info.placement.start || other.id == info.id) return 0;
        }
    }
    destroy_all();
    return nvmlDeviceGetGpuInstanceRemainingCapacity(gpu_at(0), ID_1G, &left) == NV_SUCCESS && left == 7;
}

static void killed_in_calls(void) {
    int good = 0;
    fflush(stdout);
    for (int i = 0; i < KILLS; i++) {
        pid_t child = fork();
        if (child == 0) churn();
        struct timespec moment = {.tv_nsec = 1000000 + i * 9973 % 2000000};
        nanosleep(&moment, NULL); // a different point each time
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        nvmlInit_v2();
        good += usable();
        nvmlShutdown();
    }
    CHECK("a process killed in a call leaves a usable state", good == KILLS);
}

static void allocate_and_free(void) {
    cu_context context;
    cu_pointer pointer[4];
    cuInit(0);
    for (;;) {
        if (cuCtxCreate_v2(&context, 0, 0) != CU_SUCCESS) _exit(1);
        for (int i = 0; i < 4; i++) cuMemAlloc_v2(&pointer[i], (size_t)(i + 1) << 20);
        cuMemFree_v2(pointer[1]);
        cuCtxDestroy_v2(context);
    }
}

static void killed_with_memory(void) {
    int good = 0;
    fakegpu("add --board h100-80gb --gpus 1");
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    fflush(stdout);
    for (int i = 0; i < KILLS; i++) {
        pid_t child = fork();
        if (child == 0) allocate_and_free();
        struct timespec moment = {.tv_nsec = 1000000 + i * 9973 % 2000000};
        nanosleep(&moment, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        nv_memory_v2 memory = {.version = NV_STRUCT_VERSION(nv_memory_v2, 2)};
        nvmlInit_v2();
        good += nvmlDeviceGetMemoryInfo_v2(gpu_at(1), &memory) == NV_SUCCESS && memory.used == 0;
        nvmlShutdown();
    }
    CHECK("a process killed while it allocates holds nothing afterwards", good == KILLS);
}

int main(void) {
    fresh_node("--board a100-80gb --gpus 1 --mig on");
    racing_processes();
    waiting_for_the_lock();
    racing_threads();
    killed_in_calls();
    killed_with_memory();
    return finish();
}

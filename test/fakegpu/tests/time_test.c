// SPDX-License-Identifier: Apache-2.0
// The GPU's time: who has had how much of it, and when work is done.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"
#include "cuda_api.h"
#include "hold_api.h"
#include "state/engine.h"

#define MS 1000000ull

static struct fg_db db;

// What a test program has of CUDA.
struct user {
    cu_context context;
    cu_module module;
    cu_function spin, peer, endless;
    cu_stream stream;
};

static int open_user(struct user *u, int device) {
    return cuInit(0) == CU_SUCCESS && cuCtxCreate_v2(&u->context, 0, device) == CU_SUCCESS &&
           cuModuleLoadData(&u->module, "image") == CU_SUCCESS &&
           cuModuleGetFunction(&u->spin, u->module, "fakegpu_spin") == CU_SUCCESS &&
           cuModuleGetFunction(&u->peer, u->module, "fakegpu_peer") == CU_SUCCESS &&
           cuModuleGetFunction(&u->endless, u->module, "fakegpu_endless") == CU_SUCCESS &&
           cuStreamCreate(&u->stream, 1) == CU_SUCCESS;
}

static int launch(cu_function function, cu_stream stream, uint64_t a, uint64_t b, uint64_t c) {
    void *parameters[] = {&a, &b, &c};
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

static int spin(const struct user *u, uint64_t us) { return launch(u->spin, u->stream, us, 0, 0); }

// What the processes on the GPU have had of it, in the order of their lanes, and the GPU altogether.
static size_t busy(unsigned gpu, uint64_t *of, size_t room, uint64_t *all) {
    struct fg_moment moment;
    size_t count = 0;
    fg_look(&db, &moment);
    for (uint32_t lane = 0; lane < moment.lanes; lane++) {
        const struct fg_lane *l = &db.engine->lane[lane];
        if (l->gpu == gpu && l->gone != l->life && count < room) of[count++] = moment.runs[lane].busy;
    }
    *all = moment.busy[gpu];
    return count;
}

// A process of its own that says when it is ready, goes on when it is told, and stays until it is killed.
struct child {
    pid_t pid;
    int in, out;
};

static struct child begin(void (*does)(int in, int out)) {
    int to[2], from[2];
    struct child c = {0};
    if (pipe(to) != 0 || pipe(from) != 0) exit(1);
    fflush(stdout);
    c.pid = fork();
    if (c.pid == 0) {
        does(to[0], from[1]);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    c.in = to[1];
    c.out = from[0];
    return c;
}

static void say(int out) {
    if (write(out, "x", 1) != 1) _exit(1);
}
static void hear(int in) {
    char none;
    if (read(in, &none, 1) != 1) _exit(1);
}

static void end(struct child c) {
    kill(c.pid, SIGKILL);
    waitpid(c.pid, NULL, 0);
    close(c.in);
    close(c.out);
}

// 40 ms of work, said when it is queued; then whether it was done is said.
static void forty(int in, int out) {
    struct user u;
    if (!open_user(&u, 0)) _exit(1);
    say(out);
    hear(in);
    for (int i = 0; i < 4; i++) spin(&u, 10000);
    say(out);
    cuCtxSynchronize();
    say(out);
    hear(in);
}

static void endless(int in, int out) {
    struct user u;
    if (!open_user(&u, 0)) _exit(1);
    launch(u.endless, u.stream, 0, 0, 0);
    say(out);
    hear(in);
}

static void sharing(void) {
    struct child a = begin(forty), b = begin(forty);
    uint64_t of[2], all, before;
    hear(a.out);
    hear(b.out);
    busy(0, of, 2, &before);
    say(a.in);
    hear(a.out);
    usleep(15000); // what is queued already is shared with those that come
    say(b.in);
    hear(b.out);
    hear(a.out);
    hear(b.out);
    CHECK("two processes are on the GPU", busy(0, of, 2, &all) == 2);
    CHECK("each has had what it queued, exactly", of[0] >= 40 * MS - 100 && of[0] <= 40 * MS && of[1] >= 40 * MS - 100 && of[1] <= 40 * MS);
    CHECK("the GPU was busy as long as both together", all - before >= 80 * MS && all - before < 80 * MS + 1000);
    end(a);
    end(b);
}

static void killed(void) {
    struct child a = begin(endless);
    uint64_t of[2], all;
    struct timespec began, ended;
    struct user u;
    hear(a.out);
    CHECK("a program starts beside an endless kernel", open_user(&u, 0));
    clock_gettime(CLOCK_MONOTONIC, &began);
    spin(&u, 20000);
    CHECK_CODE("its own kernel ends", CU_SUCCESS, cuStreamSynchronize(u.stream));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    long took = (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000;
    CHECK("after twice its time", took >= 40 - 1);
    kill(a.pid, SIGSTOP);
    spin(&u, 1000);
    CHECK_CODE("nobody waits for a process that is stopped", CU_SUCCESS, cuStreamSynchronize(u.stream));
    end(a);
    usleep(20000);
    spin(&u, 100);
    cuStreamSynchronize(u.stream);
    busy(0, of, 2, &all);
    spin(&u, 20000);
    cuStreamSynchronize(u.stream);
    uint64_t later;
    CHECK("when it is killed its kernel is gone", busy(0, of, 2, &later) == 1 && later - all >= 20 * MS && later - all < 20 * MS + 1000);
    cuCtxDestroy_v2(u.context);
}

static void events(void) {
    struct user u;
    cu_event first, last, waited;
    float ms = 0;
    open_user(&u, 0);
    cuEventCreate(&first, 0);
    cuEventCreate(&last, 0);
    cuEventCreate(&waited, 3);
    spin(&u, 100000);
    cuEventRecord(first, u.stream);
    for (int i = 0; i < 10; i++) spin(&u, 500);
    cuEventRecord(last, u.stream);
    cuEventRecord(waited, u.stream);
    CHECK_CODE("an event is not over before its work", CU_NOT_READY, cuEventQuery(last));
    CHECK_CODE("one can sleep until it is", CU_SUCCESS, cuEventSynchronize(waited));
    CHECK("between two events lies what was done, exactly", cuEventElapsedTime(&ms, first, last) == CU_SUCCESS && ms > 4.9999f && ms < 5.0001f);
    cuEventRecord(first, u.stream);
    for (int i = 0; i < 5000; i++) spin(&u, 10);
    cuEventRecord(last, u.stream);
    cuEventSynchronize(last);
    CHECK("more launches than the queue holds wait for room, and none is lost",
          cuEventElapsedTime(&ms, first, last) == CU_SUCCESS && ms >= 50.0f && ms < 80.0f);
    cuCtxDestroy_v2(u.context);
}

static void meet_in_one_process(void) {
    struct user u[2];
    uint64_t of[2], all[2], before[2];
    open_user(&u[0], 0);
    open_user(&u[1], 1);
    for (unsigned i = 0; i < 2; i++) busy(i, of, 2, &before[i]);
    cuCtxSetCurrent(u[0].context);
    launch(u[0].peer, u[0].stream, 7, 2, 1000);
    usleep(10000);
    CHECK_CODE("a kernel that has no peer spins", CU_NOT_READY, cuStreamQuery(u[0].stream));
    cuCtxSetCurrent(u[1].context);
    launch(u[1].peer, u[1].stream, 7, 2, 1000);
    CHECK_CODE("with its peer it goes on", CU_SUCCESS, cuStreamSynchronize(u[1].stream));
    cuCtxSetCurrent(u[0].context);
    CHECK_CODE("both do", CU_SUCCESS, cuStreamSynchronize(u[0].stream));
    for (unsigned i = 0; i < 2; i++) busy(i, of, 2, &all[i]);
    CHECK("spinning took the GPU's time", all[0] - before[0] >= 11 * MS && all[1] - before[1] == MS);

    cu_event made;
    cuEventCreate(&made, 2);
    spin(&u[0], 200000);
    cuEventRecord(made, u[0].stream);
    cuCtxSetCurrent(u[1].context);
    CHECK_CODE("a stream waits for another GPU's event", CU_SUCCESS, cuStreamWaitEvent(u[1].stream, made, 0));
    spin(&u[1], 1000);
    CHECK_CODE("what comes after it waits", CU_NOT_READY, cuStreamQuery(u[1].stream));
    cuStreamSynchronize(u[1].stream);
    CHECK_CODE("until that is over", CU_SUCCESS, cuEventQuery(made));
    busy(1, of, 2, &before[1]);
    CHECK("waiting takes no time of the GPU", before[1] - all[1] == MS);
    cuCtxDestroy_v2(u[0].context);
    cuCtxDestroy_v2(u[1].context);
}

static void peer(int in, int out) {
    struct user u;
    if (!open_user(&u, 1)) _exit(1);
    say(out);
    hear(in);
    launch(u.peer, u.stream, 9, 2, 1000);
    cuStreamSynchronize(u.stream);
    say(out);
    hear(in);
}

static void meet_across_processes(struct child other) {
    struct user u;
    hear(other.out);
    open_user(&u, 0);
    launch(u.peer, u.stream, 9, 2, 1000);
    say(other.in);
    hear(other.out);
    CHECK_CODE("peers of two processes meet", CU_SUCCESS, cuStreamSynchronize(u.stream));
    end(other);
    cuCtxDestroy_v2(u.context);
}

static void *ask_own_stream(void *context) {
    cuCtxSetCurrent(context);
    return (void *)(intptr_t)cuStreamQuery(CU_STREAM_PER_THREAD);
}

static void *ask_event(void *event) { return (void *)(intptr_t)cuEventQuery(event); }

static void *ask_event_relaxed(void *event) {
    int relaxed = 2;
    cuThreadExchangeStreamCaptureMode(&relaxed);
    return ask_event(event);
}

static int in_thread(void *(*does)(void *), void *argument) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, does, argument);
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

// Begins a capture, does something, and tells what the capture ends in.
static int captured(struct user *u, int mode, void *(*does)(void *), void *argument, int *answer) {
    cu_graph graph;
    cuStreamBeginCapture_v2(u->stream, mode);
    spin(u, 100);
    *answer = in_thread(does, argument);
    int result = cuStreamEndCapture(u->stream, &graph);
    if (result == CU_SUCCESS) cuGraphDestroy(graph);
    return result;
}

static void *ask_stream(void *argument) {
    const struct user *u = argument;
    cuCtxSetCurrent(u->context);
    return (void *)(intptr_t)cuStreamQuery(u->stream);
}

static void *ask_legacy(void *argument) {
    const struct user *u = argument;
    cuCtxSetCurrent(u->context);
    return (void *)(intptr_t)cuStreamQuery(NULL);
}

static void capturing(void) {
    struct user u;
    cu_event event;
    int answer;
    open_user(&u, 0);
    cuEventCreate(&event, 2);
    cuLaunchKernel_ptsz(u.endless, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    CHECK_CODE("a thread's default stream is busy", CU_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    CHECK_CODE("another thread's is another", CU_SUCCESS, in_thread(ask_own_stream, u.context));
    CHECK("while nothing is captured an event can be asked", in_thread(ask_event, event) == CU_SUCCESS);
    CHECK("in global mode no other thread may ask an event", captured(&u, 0, ask_event, event, &answer) == CU_CAPTURE_INVALIDATED && answer == CU_CAPTURE_UNSUPPORTED);
    CHECK("unless it is relaxed", captured(&u, 0, ask_event_relaxed, event, &answer) == CU_SUCCESS && answer == CU_SUCCESS);
    CHECK("or the capture is the thread's own", captured(&u, 1, ask_event, event, &answer) == CU_SUCCESS && answer == CU_SUCCESS);
    CHECK("asking the stream itself breaks any capture", captured(&u, 2, ask_stream, &u, &answer) == CU_CAPTURE_INVALIDATED && answer == CU_CAPTURE_UNSUPPORTED);
    CHECK("the legacy stream does not wait for this one", captured(&u, 0, ask_legacy, &u, &answer) == CU_SUCCESS && answer == CU_NOT_READY);
    cuStreamDestroy_v2(u.stream);
    cuStreamCreate(&u.stream, 0);
    CHECK("but for one that blocks, and cannot be asked", captured(&u, 0, ask_legacy, &u, &answer) == CU_CAPTURE_INVALIDATED && answer == CU_CAPTURE_IMPLICIT);
    cuCtxDestroy_v2(u.context);
}

// How long the GPU was busy with what the calls gave it.
#define BUSY_WITH(calls)                        \
    ({                                          \
        uint64_t from, to, none[4];             \
        busy(0, none, 4, &from);                \
        calls;                                  \
        cuCtxSynchronize();                     \
        busy(0, none, 4, &to);                  \
        to - from;                              \
    })

static void copies(void) {
    struct user u;
    cu_pointer one, other;
    unsigned char row[64] = {1, 2, 3};
    const size_t size = 200 << 20;
    open_user(&u, 0);
    cuMemAlloc_v2(&one, size);
    cuMemAlloc_v2(&other, size);
    CHECK("a copy within the GPU takes its time", BUSY_WITH(cuMemcpyDtoDAsync_v2(one, other, size, u.stream)) / 1000 == 105);
    CHECK("so does setting", BUSY_WITH(cuMemsetD8Async(one, 7, size, u.stream)) / 1000 == 105);
    CHECK("one to the host does not", BUSY_WITH(cuMemcpyHtoDAsync_v2(one, row, sizeof row, u.stream)) == 0);
    CHECK("one of rows does", BUSY_WITH(cuMemsetD2D32_v2(other, 4096, 9, 4, 3)) > 0);
    cu_copy_2d rows = {.from = {.memory = 2, .device = other, .pitch = 4096}, .to = {.memory = 1, .host = row, .pitch = 16}, .width = 16, .height = 3};
    CHECK("rows are copied", cuMemcpy2D_v2(&rows) == CU_SUCCESS && row[0] == 9 && row[44] == 9 && row[45] == 0 && row[48] == 0);
    CHECK("addresses tell what a copy is between", cuMemcpy((cu_pointer)(uintptr_t)row, one, 3) == CU_SUCCESS && row[0] == 1 && row[2] == 3);
    cu_launch_parameters list = {u.spin, 1, 1, 1, 1, 1, 1, 0, u.stream, (void *[]){&(uint64_t){100}}};
    CHECK("kernels are launched on many devices", BUSY_WITH(cuLaunchCooperativeKernelMultiDevice(&list, 1, 0)) == MS / 10);
    uint64_t us = 100;
    cuFuncSetBlockShape(u.spin, 1, 1, 1);
    cuParamSetSize(u.spin, 8);
    cuParamSetv(u.spin, 0, &us, 8);
    CHECK("and in the way of the first programs", BUSY_WITH(cuLaunchGrid(u.spin, 1, 1)) == MS / 10);
    cuCtxDestroy_v2(u.context);
}

int main(void) {
    fresh_node("--board h100-80gb --gpus 2");
    if (fg_open(&db, getenv("FAKEGPU_STATE")) != 0) return 1;
    // Before this process uses CUDA itself: a child may not go on with it.
    sharing();
    struct child other = begin(peer);
    killed();
    events();
    meet_in_one_process();
    meet_across_processes(other);
    capturing();
    copies();
    fg_close(&db);
    return finish();
}

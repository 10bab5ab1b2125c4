// SPDX-License-Identifier: Apache-2.0
// The ways to hold device memory beyond the plain one: how much each takes, for how long, and who is seen to hold it. The
// figures are those that an H200 showed.
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "hold_api.h"
#include "nvml_api.h"

#define MIB (1ull << 20)
#define CONTEXT (518 * MIB)

static unsigned long long held(void) {
    nv_device gpu;
    nv_memory_v2 memory = {.version = NV_STRUCT_VERSION(nv_memory_v2, 2)};
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    return nvmlDeviceGetMemoryInfo_v2(gpu, &memory) == NV_SUCCESS ? memory.used : ~0ull;
}

// Beyond the context.
static unsigned long long more(void) { return held() - CONTEXT; }

// What NVML tells for this process; -1 when it is not in the list.
static long long own(void) {
    nv_device gpu;
    nv_process list[64];
    unsigned count = 64;
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    if (nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, list) != NV_SUCCESS) return -2;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)getpid()) return (long long)list[i].used;
    }
    return -1;
}

static const cu_physical_properties on_device = {.type = 1, .location = {1, 0}};
static const cu_physical_properties exportable = {.type = 1, .handle_types = 1, .location = {1, 0}};
static const cu_physical_properties on_host = {.type = 1, .location = {2, 0}};

static void physical(void) {
    cu_physical first, second, host;
    cu_pointer at;
    CHECK_CODE("physical memory needs no context", CU_SUCCESS, cuMemCreate(&first, 64 * MIB, &on_device, 0));
    CHECK("the GPU shows it, but no process is listed", held() == 64 * MIB && own() == -1);
    cuMemRelease(first);
    CHECK("released it is gone", held() == 0);
    cuMemCreate(&first, 4 * MIB, &on_device, 0);
    cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0);
    CHECK_CODE("it is mapped", CU_SUCCESS, cuMemMap(at, 4 * MIB, 0, first, 0));
    CHECK_CODE("not twice at one place", CU_INVALID_VALUE, cuMemMap(at, 4 * MIB, 0, first, 0));
    CHECK_CODE("nor outside of what was reserved", CU_INVALID_VALUE, cuMemMap(at + 6 * MIB, 4 * MIB, 0, first, 0));
    cuMemRelease(first);
    CHECK("a mapping holds what its handle no longer does", held() == 4 * MIB);
    CHECK_CODE("a handle is had back from the mapping", CU_SUCCESS, cuMemRetainAllocationHandle(&second, (void *)(uintptr_t)at));
    CHECK_CODE("a mapping is not taken away in part", CU_INVALID_VALUE, cuMemUnmap(at, 2 * MIB));
    CHECK_CODE("nor can mapped addresses be given back", CU_INVALID_VALUE, cuMemAddressFree(at, 8 * MIB));
    CHECK_CODE("it is unmapped", CU_SUCCESS, cuMemUnmap(at, 4 * MIB));
    CHECK("the retained handle holds it still", held() == 4 * MIB);
    cuMemRelease(second);
    CHECK("and then nothing does", held() == 0);
    CHECK_CODE("a handle is released once", CU_INVALID_VALUE, cuMemRelease(second));
    CHECK_CODE("the addresses are given back", CU_SUCCESS, cuMemAddressFree(at, 8 * MIB));
    CHECK_CODE("memory of the host is created too", CU_SUCCESS, cuMemCreate(&host, 64 * MIB, &on_host, 0));
    CHECK("and costs the GPU nothing", held() == 0);
    cuMemRelease(host);
    CHECK_CODE("sizes are whole pages", CU_INVALID_VALUE, cuMemCreate(&host, MIB, &on_device, 0));
}

static void exported(void) {
    cu_physical first, second;
    int fd = -1;
    cuMemCreate(&first, 64 * MIB, &exportable, 0);
    CHECK_CODE("it is exported", CU_SUCCESS, cuMemExportToShareableHandle(&fd, first, 1, 0));
    CHECK("the exporter is seen to hold it", own() == (long long)(CONTEXT + 64 * MIB));
    cuMemRelease(first);
    CHECK("with the descriptor alone the GPU shows it, and no process", more() == 64 * MIB && own() == (long long)CONTEXT);
    CHECK_CODE("it is imported", CU_SUCCESS, cuMemImportFromShareableHandle(&second, (void *)(intptr_t)fd, 1));
    close(fd);
    CHECK("the importer is seen to hold it", more() == 64 * MIB && own() == (long long)(CONTEXT + 64 * MIB));
    cuMemRelease(second);
    CHECK("until it releases it", more() == 0);
    CHECK_CODE("another file is no such descriptor", CU_INVALID_VALUE, cuMemImportFromShareableHandle(&second, (void *)(intptr_t)0, 1));
    cuMemCreate(&first, 2 * MIB, &on_device, 0);
    CHECK_CODE("what was not made for it is not exported", CU_INVALID_VALUE, cuMemExportToShareableHandle(&fd, first, 1, 0));
    cuMemRelease(first);
}

static uint64_t told(cu_pool pool, int attribute) {
    uint64_t value = 0;
    cuMemPoolGetAttribute(pool, attribute, &value);
    return value;
}

enum { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED };

static void pools(void) {
    cu_pool pool;
    cu_pointer a, b;
    uint64_t all = UINT64_MAX;
    cu_pool_properties properties = {.type = 1, .location = {1, 0}};
    cuDeviceGetDefaultMemPool(&pool, 0);
    cuMemAllocAsync(&a, 1, NULL);
    CHECK("a byte of a pool takes a chunk", more() == 32 * MIB && told(pool, RESERVED) == 32 * MIB && told(pool, USED) == 512);
    cuMemAllocAsync(&b, 40 * MIB, NULL);
    CHECK("it grows by chunks", told(pool, RESERVED) == 64 * MIB);
    cuMemFreeAsync(b, NULL);
    CHECK("what is freed stays with the pool", told(pool, RESERVED) == 64 * MIB && more() == 64 * MIB);
    cuMemAllocAsync(&b, 33 * MIB, NULL);
    CHECK("and is used again", told(pool, RESERVED) == 64 * MIB);
    cuMemFreeAsync(b, NULL);
    cuStreamSynchronize(NULL);
    CHECK("a synchronisation gives it back", told(pool, RESERVED) == 32 * MIB && more() == 32 * MIB);
    cuMemAllocAsync(&b, 100 * MIB + 1, NULL);
    uint64_t used = told(pool, USED);
    cuMemFree_v2(b);
    CHECK("cuMemFree gives back at once, but it is called used still", told(pool, RESERVED) == 32 * MIB && told(pool, USED) == used);
    cuMemFree_v2(a);
    CHECK("and the last byte leaves nothing", more() == 0);
    CHECK_CODE("a pool is made", CU_SUCCESS, cuMemPoolCreate(&pool, &properties));
    cuMemPoolSetAttribute(pool, THRESHOLD, &all);
    cuMemAllocFromPoolAsync(&a, 3 * MIB, pool, NULL);
    cuMemAllocFromPoolAsync(&b, 30 * MIB, pool, NULL);
    cuMemFreeAsync(b, NULL);
    cuCtxSynchronize();
    CHECK("below its threshold a pool keeps what it has", told(pool, RESERVED) == 64 * MIB);
    cuMemPoolTrimTo(pool, 0);
    CHECK("until it is trimmed", told(pool, RESERVED) == 32 * MIB && told(pool, RESERVED_HIGH) == 64 * MIB);
    cuMemPoolDestroy(pool);
    CHECK("destroyed, it lasts as long as what was had of it", more() == 32 * MIB);
    cuMemFreeAsync(a, NULL);
    cuCtxSynchronize();
    CHECK("and no longer", more() == 0);
    properties.max_size = 100 * MIB;
    cuMemPoolCreate(&pool, &properties);
    int got = 0;
    cu_pointer pieces[5];
    while (got < 5 && cuMemAllocFromPoolAsync(&pieces[got], 30 * MIB, pool, NULL) == CU_SUCCESS) got++;
    CHECK("its greatest size is rounded to chunks", got == 4);
    while (got-- > 0) cuMemFreeAsync(pieces[got], NULL);
    cuMemPoolDestroy(pool);
    cuCtxSynchronize();
    CHECK("and nothing is left", more() == 0);
}

static void graphs(void) {
    cu_graph graph;
    cu_exec exec;
    cu_node node;
    cu_alloc_node five = {.properties = {.type = 1, .location = {1, 0}}, .size = 5 * MIB};
    cuGraphCreate(&graph, 0);
    CHECK_CODE("a graph allocates", CU_SUCCESS, cuGraphAddMemAllocNode(&node, graph, NULL, 0, &five));
    cuGraphInstantiateWithFlags(&exec, graph, 0);
    CHECK("but not before it runs", more() == 0);
    cuGraphUpload(exec, NULL);
    CHECK("or is uploaded, in chunks", more() == 32 * MIB);
    CHECK_CODE("it runs", CU_SUCCESS, cuGraphLaunch(exec, NULL));
    CHECK_CODE("and not again, while what it allocated lives", CU_INVALID_VALUE, cuGraphLaunch(exec, NULL));
    cuDeviceGraphMemTrim(0);
    CHECK("which no trim takes away", more() == 32 * MIB);
    CHECK_CODE("it is freed", CU_SUCCESS, cuMemFree_v2(five.pointer));
    CHECK("and kept", more() == 32 * MIB);
    cuDeviceGraphMemTrim(0);
    CHECK("until a trim", more() == 0);
    cuGraphLaunch(exec, NULL);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    CHECK("it outlives its graph", more() == 32 * MIB);
    cuMemFreeAsync(five.pointer, NULL);
    cuDeviceGraphMemTrim(0);
    CHECK("and goes when it is freed", more() == 0);
}

static void captures(void) {
    cu_stream stream;
    cu_graph graph;
    cu_exec exec;
    cu_pointer at, plain;
    int status = -1;
    cuStreamCreate(&stream, 1);
    CHECK_CODE("the legacy stream is not captured", CU_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, 0));
    CHECK_CODE("another is", CU_SUCCESS, cuStreamBeginCapture_v2(stream, 0));
    CHECK("and says so", cuStreamIsCapturing(stream, &status) == CU_SUCCESS && status == 1);
    CHECK_CODE("an allocation becomes a node", CU_SUCCESS, cuMemAllocAsync(&at, 4 * MIB, stream));
    cuMemFreeAsync(at, stream);
    CHECK("and takes nothing", more() == 0);
    CHECK_CODE("the capture ends in a graph", CU_SUCCESS, cuStreamEndCapture(stream, &graph));
    cuGraphInstantiateWithFlags(&exec, graph, 0);
    CHECK("which runs as often as one likes, since it frees what it takes",
          cuGraphLaunch(exec, stream) == CU_SUCCESS && cuGraphLaunch(exec, stream) == CU_SUCCESS && more() == 32 * MIB);
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
    cuDeviceGraphMemTrim(0);
    cuStreamBeginCapture_v2(stream, 0);
    CHECK_CODE("cuMemAlloc is forbidden meanwhile", CU_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&plain, MIB));
    CHECK_CODE("and breaks the capture", CU_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    cuStreamBeginCapture_v2(stream, 2);
    CHECK_CODE("in relaxed mode it is allowed", CU_SUCCESS, cuMemAlloc_v2(&plain, MIB));
    CHECK_CODE("and the capture goes on", CU_SUCCESS, cuStreamEndCapture(stream, &graph));
    cuGraphDestroy(graph);
    cuMemFree_v2(plain);
    cuStreamBeginCapture_v2(stream, 0);
    CHECK_CODE("waiting for a captured stream breaks it too", CU_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    CHECK_CODE("so that it ends without a graph", CU_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    cuStreamDestroy_v2(stream);
    CHECK("nothing is left", more() == 0);
}

static void others(void) {
    cu_array array;
    cu_mipmap mipmap;
    cu_pointer managed, blocks[64], one;
    cu_context second;
    const cu_array3d_descriptor flat = {.width = 1000, .height = 1000, .format = 0x20, .channels = 1};
    const cu_array3d_descriptor deep = {.width = 8192, .height = 8192, .format = 0x20, .channels = 1};
    cuArray3DCreate_v2(&array, &flat);
    CHECK("an array takes its elements", more() == 4 * MIB);
    cuArrayDestroy(array);
    cuMipmappedArrayCreate(&mipmap, &deep, 5);
    CHECK("a mipmapped one those of all levels", more() == 342 * MIB);
    cuMipmappedArrayDestroy(mipmap);
    cuMemAllocManaged(&managed, 512 * MIB, 1);
    CHECK("managed memory takes nothing", more() == 0);
    cuMemPrefetchAsync(managed, 512 * MIB, 0, NULL);
    CHECK("until it is there, and then it is no process's", more() == 512 * MIB && own() == (long long)CONTEXT);
    cuMemFree_v2(managed);
    for (int i = 0; i < 64; i++) cuMemAlloc_v2(&blocks[i], MIB / 2 + 1);
    CHECK("three blocks of half a MiB and a byte share a page", more() == 44 * MIB);
    cuMemFree_v2(blocks[1]);
    cuMemAlloc_v2(&one, MIB / 2);
    CHECK("a gap is filled", one == blocks[1] && more() == 44 * MIB);
    cuMemFree_v2(one);
    for (int i = 0; i < 64; i++) {
        if (i != 1) cuMemFree_v2(blocks[i]);
    }
    cuMemAlloc_v2(&one, MIB + 1);
    CHECK("more than a MiB has pages of its own", more() == 2 * MIB && one % (2 * MIB) == 0);
    cuMemFree_v2(one);
    cuCtxSetLimit(0, 2048);
    CHECK("a larger stack is there for every thread", more() == 1024ull * 132 * 2048);
    cuCtxSetLimit(0, 1024);
    cuCtxCreate_v2(&second, 0, 0);
    CHECK("a second context costs what the first did", more() == CONTEXT);
    cuCtxDestroy_v2(second);
    CHECK("nothing is left", more() == 0);
}

static char *text_of(size_t size) {
    char *text = malloc(size + 1);
    memset(text, '/', size);
    text[size] = '\0';
    return text;
}

static void modules(void) {
    cu_module module;
    cu_function empty;
    char *image = text_of(10 * MIB);
    cuModuleLoadData(&module, image);
    CHECK("a module that is loaded lazily takes nothing", more() == 0);
    cuModuleGetFunction(&empty, module, "fakegpu_empty");
    cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    CHECK("until it runs, beyond what the context has room for", more() == 8 * MIB);
    cuModuleUnload(module);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    cuModuleLoadData(&module, image);
    CHECK("loaded eagerly it takes it at once", more() == 8 * MIB);
    cuModuleUnload(module);
    unsetenv("CUDA_MODULE_LOADING");
    CHECK("nothing is left", more() == 0);
    free(image);
}

// A process of its own that makes memory, hands it over, and ends when it is told to.
static int export_to(int in, int out) {
    cu_context context;
    cu_pointer at;
    cu_ipc_handle handle;
    char end;
    if (cuInit(0) != CU_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CU_SUCCESS) return 1;
    cuCtxSetCurrent(context);
    if (cuMemAlloc_v2(&at, 100 * MIB) != CU_SUCCESS || cuIpcGetMemHandle(&handle, at) != CU_SUCCESS) return 1;
    if (write(out, &handle, sizeof handle) != sizeof handle) return 1;
    return read(in, &end, 1) < 0;
}

static void between_processes(int in, int out, pid_t child) {
    cu_ipc_handle handle;
    cu_pointer at;
    CHECK("another process hands its memory over", read(in, &handle, sizeof handle) == sizeof handle);
    unsigned long long both = held();
    CHECK_CODE("it is opened", CU_SUCCESS, cuIpcOpenMemHandle_v2(&at, handle, 1));
    CHECK("the exporter is still seen to hold it", held() == both && own() == (long long)CONTEXT);
    CHECK("the exporter ends", write(out, "x", 1) == 1 && waitpid(child, NULL, 0) == child);
    CHECK("then the importer is", more() == 100 * MIB && own() == (long long)(CONTEXT + 100 * MIB));
    CHECK_CODE("it is closed", CU_SUCCESS, cuIpcCloseMemHandle(at));
    CHECK("and gone", more() == 0);
}

static void behaviour(void) {
    // Long enough for a busy machine to look before it is over.
    fakegpu("behave --linger-ms 1500");
    fflush(stdout);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    pid_t child = fork();
    if (child == 0) {
        cu_physical physical;
        _exit(cuInit(0) != CU_SUCCESS || cuMemCreate(&physical, 64 * MIB, &on_device, 0) != CU_SUCCESS);
    }
    waitpid(child, NULL, 0);
    CHECK("a dead process's memory lingers where that is asked for", held() == 64 * MIB);
    for (int i = 0; held() != 0 && i < 1000; i++) usleep(10000);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double took = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    CHECK("and then goes", held() == 0 && took >= 1.5);
    fakegpu("behave --linger-ms 0");
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void timing(void) {
    enum { PAIRS = 100 };
    cu_pointer at;
    fakegpu("behave --timing on");
    double start = milliseconds();
    for (int i = 0; i < PAIRS; i++) {
        cuMemAlloc_v2(&at, 4 * MIB);
        cuMemFree_v2(at);
    }
    double each = (milliseconds() - start) / PAIRS;
    fakegpu("behave --timing off");
    CHECK("an allocation and its free take their real time where that is asked for", each >= 0.065);
}

// In a PID namespace of its own; 2 where none can be made.
static int sees_blindly(void) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 2;
    pid_t child = fork();
    if (child == 0) {
        nv_device gpu;
        nv_process list[64];
        unsigned count = 64;
        nvmlInit_v2();
        nvmlDeviceGetHandleByIndex_v2(0, &gpu);
        int seen = nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, list) == NV_SUCCESS && count == 1;
        _exit(!(seen && list[0].used == 0));
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void blindness(void) {
    int status = 1;
    fakegpu("behave --blind on");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(sees_blindly());
    waitpid(child, &status, 0);
    fakegpu("behave --blind off");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        printf("skip  no PID namespace can be made here\n");
    } else {
        CHECK("in another PID namespace NVML tells 0 where that is asked for", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

int main(void) {
    int to[2], from[2];
    fresh_node("--board h200-141gb --gpus 1");
    nvmlInit_v2();
    behaviour();
    if (pipe(to) != 0 || pipe(from) != 0) return 1;
    fflush(stdout);
    pid_t child = fork(); // before CUDA is used here
    if (child == 0) {
        char go;
        _exit(read(to[0], &go, 1) < 0 || export_to(to[0], from[1]));
    }
    cu_context context;
    cuInit(0);
    physical();
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    exported();
    pools();
    graphs();
    captures();
    others();
    modules();
    timing();
    blindness();
    CHECK("the exporter begins", write(to[1], "x", 1) == 1);
    between_processes(from[0], to[1], child);
    cuDevicePrimaryCtxRelease_v2(0);
    CHECK("without its context the process is not seen", held() == 0 && own() == -1);
    nvmlShutdown();
    return finish();
}

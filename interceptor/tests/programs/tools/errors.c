// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls, one line each with the error that it gave and whether the output was left alone. With and without the library
// the lines have to be the same.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "driver.h"

enum { UNTOUCHED = 0x5a5a };

#define LARGE (20480 * MIB)

static pointer out;
static handle out_handle;
static unsigned long long out_physical;

static void reset(void) {
    out = UNTOUCHED;
    out_handle = (handle)UNTOUCHED;
    out_physical = UNTOUCHED;
}

static void tell(const char *what, result got) {
    int same = out == UNTOUCHED && out_handle == (handle)UNTOUCHED && out_physical == UNTOUCHED;
    printf("%s: %d%s\n", what, got, got == SUCCESS || same ? "" : ", output changed");
    reset();
}

#define TELL(call) tell(#call, call)

static const struct physical_properties plain = {.type = 1, .location = {.type = 1, .id = 0}};
static const struct physical_properties nowhere = {.type = 1, .location = {.type = 1, .id = 77}};
static const struct physical_properties untyped = {.type = 0, .location = {.type = 1, .id = 0}};
static const struct pool_properties pool_nowhere = {.type = 1, .location = {.type = 1, .id = 77}};

static void without_context(void) {
    size_t free_bytes, total;
    TELL(cu.cuMemAlloc(&out, MIB));
    TELL(cu.cuMemAlloc(&out, LARGE));
    TELL(cu.cuMemAllocAsync(&out, LARGE, NULL));
    TELL(cu.cuMemAllocManaged(&out, MIB, 1));
    TELL(cu.cuMemAllocAsync(&out, MIB, NULL));
    TELL(cu.cuMemGetInfo(&free_bytes, &total));
    TELL(cu.cuMemFree(UNTOUCHED));
    TELL(cu.cuDevicePrimaryCtxRetain(&out_handle, 77));
    TELL(cu.cuCtxCreate(&out_handle, 0, 77));
    TELL(cu.cuCtxDestroy(NULL));
    TELL(cu.cuDevicePrimaryCtxRelease(0));
    TELL(cu.cuDeviceTotalMem(&total, 77));
}

static void linear(void) {
    pointer at = 0;
    size_t pitch;
    TELL(cu.cuMemAlloc(NULL, MIB));
    TELL(cu.cuMemAlloc(&out, 0));
    TELL(cu.cuMemAlloc(&out, (size_t)-1));
    TELL(cu.cuMemAlloc(&out, (size_t)1 << 50));
    TELL(cu.cuMemAllocPitch(&out, &pitch, 100, 100, 3));
    TELL(cu.cuMemAllocPitch(&out, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
    TELL(cu.cuMemAllocManaged(&out, MIB, 9));
    TELL(cu.cuMemFree(0));
    TELL(cu.cuMemFree(12345));
    TELL(cu.cuMemAlloc(&at, 4 * MIB));
    TELL(cu.cuMemFree(at + 512));
    TELL(cu.cuMemFreeAsync(at, (handle)UNTOUCHED));
    TELL(cu.cuMemFree(at));
    TELL(cu.cuMemFree(at));
    TELL(cu.cuMemAllocAsync(&out, MIB, (handle)UNTOUCHED));
    TELL(cu.cuMemAllocAsync(&out, 0, NULL));
    TELL(cu.cuMemAllocAsync(&at, MIB, NULL));
    TELL(cu.cuMemFreeAsync(at, NULL));
    TELL(cu.cuMemFreeAsync(at, NULL));
}

static void arrays_and_pools(void) {
    const struct array2d bad = {.width = 0, .height = 1, .format = 0x20, .channels = 1};
    const struct array3d odd = {.width = 10, .height = 10, .format = 0x77, .channels = 1};
    handle pool = NULL;
    TELL(cu.cuArrayCreate(&out_handle, &bad));
    TELL(cu.cuArrayCreate(&out_handle, NULL));
    TELL(cu.cuArray3DCreate(&out_handle, &odd));
    TELL(cu.cuMipmappedArrayCreate(&out_handle, &odd, 3));
    TELL(cu.cuArrayDestroy(NULL));
    TELL(cu.cuMemPoolCreate(&out_handle, &pool_nowhere));
    TELL(cu.cuMemPoolCreate(&out_handle, NULL));
    TELL(cu.cuMemPoolDestroy((handle)UNTOUCHED));
    TELL(cu.cuMemPoolTrimTo((handle)UNTOUCHED, 0));
    TELL(cu.cuMemAllocFromPoolAsync(&out, MIB, (handle)UNTOUCHED, NULL));
    TELL(cu.cuDeviceGetDefaultMemPool(&pool, 77));
    TELL(cu.cuDeviceGetDefaultMemPool(&pool, 0));
    TELL(cu.cuMemPoolDestroy(pool));
}

static void virtual(void) {
    unsigned long long physical = 0;
    pointer at = 0;
    int fd = -1;
    TELL(cu.cuMemCreate(&out_physical, 2 * MIB, &nowhere, 0));
    TELL(cu.cuMemCreate(&out_physical, 2 * MIB, &untyped, 0));
    TELL(cu.cuMemCreate(&out_physical, MIB, &plain, 0));
    TELL(cu.cuMemCreate(&out_physical, 0, &plain, 0));
    TELL(cu.cuMemCreate(&out_physical, 2 * MIB, &plain, 5));
    TELL(cu.cuMemRelease(UNTOUCHED));
    TELL(cu.cuMemCreate(&physical, 2 * MIB, &plain, 0));
    TELL(cu.cuMemMap(UNTOUCHED * 2 * MIB, 2 * MIB, 0, physical, 0));
    TELL(cu.cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    TELL(cu.cuMemMap(at, 2 * MIB, 0, UNTOUCHED, 0));
    TELL(cu.cuMemMap(at, 4 * MIB, 0, physical, 0));
    TELL(cu.cuMemMap(at, 2 * MIB, 0, physical, 0));
    TELL(cu.cuMemMap(at, 2 * MIB, 0, physical, 0));
    TELL(cu.cuMemUnmap(at, 4 * MIB));
    TELL(cu.cuMemUnmap(at + 2 * MIB, 2 * MIB));
    TELL(cu.cuMemExportToShareableHandle(&fd, physical, 1, 0));
    TELL(cu.cuMemRelease(physical));
    TELL(cu.cuMemRelease(physical));
    TELL(cu.cuMemRetainAllocationHandle(&out_physical, (void *)UNTOUCHED));
    TELL(cu.cuMemUnmap(at, 2 * MIB));
    TELL(cu.cuMemUnmap(at, 2 * MIB));
    TELL(cu.cuMemAddressFree(at, 2 * MIB));
    TELL(cu.cuMemAddressFree(at, 4 * MIB));
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    TELL(cu.cuMemImportFromShareableHandle(&out_physical, (void *)(intptr_t)fd, 1));
    close(fd);
    TELL(cu.cuMemImportFromShareableHandle(&out_physical, (void *)-1, 1));
}

static void graphs_and_captures(void) {
    struct alloc_node untyped_node = {.size = MIB};
    struct alloc_node node = {.properties = {.type = 1, .location = {.type = 1, .id = 0}}, .size = MIB};
    handle graph = NULL, made = NULL, exec = NULL, stream = NULL, captured = NULL;
    TELL(cu.cuGraphCreate(&graph, 0));
    TELL(cu.cuGraphAddMemAllocNode(&out_handle, graph, NULL, 0, &untyped_node));
    TELL(cu.cuGraphAddMemAllocNode(&out_handle, (handle)UNTOUCHED, NULL, 0, &node));
    TELL(cu.cuGraphAddMemAllocNode(&made, graph, NULL, 0, &node));
    TELL(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    TELL(cu.cuGraphLaunch(exec, (handle)UNTOUCHED));
    TELL(cu.cuGraphLaunch((handle)UNTOUCHED, NULL));
    TELL(cu.cuGraphLaunch(exec, NULL));
    TELL(cu.cuGraphLaunch(exec, NULL));
    TELL(cu.cuMemFree(node.at));
    TELL(cu.cuMemFree(node.at));
    TELL(cu.cuGraphExecDestroy(exec));
    TELL(cu.cuGraphExecDestroy(exec));
    TELL(cu.cuGraphDestroy(graph));
    TELL(cu.cuStreamCreate(&stream, 1));
    TELL(cu.cuStreamBeginCapture(NULL, 0));
    TELL(cu.cuStreamBeginCapture(stream, 0));
    TELL(cu.cuStreamBeginCapture(stream, 0));
    TELL(cu.cuMemAlloc(&out, MIB));
    TELL(cu.cuMemAllocAsync(&out, MIB, stream));
    TELL(cu.cuStreamEndCapture(stream, &captured));
    TELL(cu.cuStreamBeginCapture(stream, 0));
    TELL(cu.cuStreamSynchronize(stream));
    TELL(cu.cuStreamEndCapture(stream, &captured));
    TELL(cu.cuStreamEndCapture(stream, &captured));
    TELL(cu.cuStreamBeginCapture(stream, 2));
    TELL(cu.cuMemAlloc(&out, MIB));
    TELL(cu.cuCtxSynchronize());
    TELL(cu.cuStreamEndCapture(stream, &captured));
}

static void *in_thread(void *none) {
    without_context();
    return none;
}

int main(void) {
    handle context = NULL;
    pthread_t thread;
    driver_reach();
    reset();
    TELL(cu.cuMemAlloc(&out, MIB));
    TELL(cu.cuDevicePrimaryCtxRetain(&out_handle, 0));
    TELL(cu.cuMemCreate(&out_physical, 2 * MIB, &plain, 0));
    TELL(cu.cuInit(7));
    TELL(cu.cuInit(0));
    without_context();
    TELL(cu.cuDevicePrimaryCtxRetain(&context, 0));
    TELL(cu.cuCtxSetCurrent(context));
    linear();
    arrays_and_pools();
    virtual();
    graphs_and_captures();
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    TELL(cu.cuDevicePrimaryCtxRelease(0));
    TELL(cu.cuMemAlloc(&out, MIB));
    return 0;
}

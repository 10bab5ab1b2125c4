// SPDX-License-Identifier: Apache-2.0
// Discovery, memory, processes, faults and events through NVML.
#include <pthread.h>
#include <time.h>

#include "check.h"
#include "nvml_api.h"

static void before_init(void) {
    unsigned count;
    CHECK_CODE("before init a call says that it is uninitialised", NV_UNINITIALIZED, nvmlDeviceGetCount_v2(&count));
    CHECK_CODE("so does one that is not implemented", NV_UNINITIALIZED, nvmlDeviceGetP2PStatus());
    char *state = strdup(getenv("FAKEGPU_STATE"));
    setenv("FAKEGPU_STATE", "/nonexistent", 1);
    CHECK_CODE("without a state file no driver is loaded", NV_DRIVER_NOT_LOADED, nvmlInit_v2());
    setenv("FAKEGPU_STATE", "/dev/null", 1);
    CHECK_CODE("what is no state file is a mismatch", NV_LIB_RM_VERSION_MISMATCH, nvmlInit_v2());
    setenv("FAKEGPU_STATE", state, 1);
    free(state);
    CHECK_CODE("with one it starts", NV_SUCCESS, nvmlInit_v2());
}

static void discovery(void) {
    nv_device gpu, same;
    unsigned count, index;
    char text[96], first[96];
    nv_pci_info pci;
    CHECK_CODE("devices are counted", NV_SUCCESS, nvmlDeviceGetCount_v2(&count));
    CHECK("there are as many as were made", count == 3);
    CHECK_CODE("an index beyond them is invalid", NV_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(3, &gpu));
    CHECK_CODE("an index gives a handle", NV_SUCCESS, nvmlDeviceGetHandleByIndex_v2(1, &gpu));
    CHECK_CODE("a device has a name", NV_SUCCESS, nvmlDeviceGetName(gpu, text, sizeof text));
    CHECK("the name is the vendor's", strcmp(text, "NVIDIA H100 80GB HBM3") == 0);
    CHECK_CODE("a buffer that is too small is refused", NV_INSUFFICIENT_SIZE, nvmlDeviceGetName(gpu, text, 5));
    CHECK_CODE("a device has a UUID", NV_SUCCESS, nvmlDeviceGetUUID(gpu, first, sizeof first));
    CHECK("it has the usual form", strlen(first) == 40 && strncmp(first, "GPU-", 4) == 0);
    CHECK_CODE("the UUID finds the device", NV_SUCCESS, nvmlDeviceGetHandleByUUID(first, &same));
    CHECK("which is the same", same == gpu);
    CHECK_CODE("another UUID finds nothing", NV_NOT_FOUND, nvmlDeviceGetHandleByUUID("GPU-0", &same));
    CHECK_CODE("a device has a bus id", NV_SUCCESS, nvmlDeviceGetPciInfo_v3(gpu, &pci));
    CHECK("its device id is the board's", pci.pci_device_id == 0x233010DE);
    CHECK_CODE("the bus id finds the device", NV_SUCCESS, nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, &same));
    CHECK("which is the same", same == gpu && nvmlDeviceGetIndex(same, &index) == NV_SUCCESS && index == 1);
    CHECK_CODE("a device has a serial number", NV_SUCCESS, nvmlDeviceGetSerial(gpu, text, sizeof text));
    CHECK("which finds it", strlen(text) == 13 && nvmlDeviceGetHandleBySerial(text, &same) == NV_SUCCESS && same == gpu);
    CHECK_CODE("a handle that is none is invalid", NV_INVALID_ARGUMENT, nvmlDeviceGetIndex((nv_device)text, &index));
    CHECK_CODE("what is not implemented is not supported", NV_NOT_SUPPORTED, nvmlDeviceGetP2PStatus());

    fakegpu("create --force --state $FAKEGPU_STATE.twin --seed test --board h100-80gb --gpus 3");
    nvmlShutdown();
    char *state = strdup(getenv("FAKEGPU_STATE")), twin[512];
    snprintf(twin, sizeof twin, "%s.twin", state);
    setenv("FAKEGPU_STATE", twin, 1);
    nvmlInit_v2();
    nvmlDeviceGetHandleByIndex_v2(1, &gpu);
    nvmlDeviceGetUUID(gpu, text, sizeof text);
    CHECK("a node made of the same seed has the same UUIDs", strcmp(text, first) == 0);
    nvmlShutdown();
    unlink(twin);
    setenv("FAKEGPU_STATE", state, 1);
    free(state);
    nvmlInit_v2();
}

static void memory_and_processes(void) {
    const unsigned long long mib = 1ull << 20;
    nv_device gpu;
    nv_memory memory;
    nv_memory_v2 exact = {.version = NV_STRUCT_VERSION(nv_memory_v2, 2)};
    nv_process list[4];
    unsigned count = 0;
    char arguments[256];
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    CHECK_CODE("memory is told with what the driver keeps", NV_SUCCESS, nvmlDeviceGetMemoryInfo_v2(gpu, &exact));
    CHECK("total and reserved are the board's", exact.total == 81559 * mib && exact.reserved == 407 * mib);
    CHECK("the rest is free", exact.free == 81152 * mib && exact.used == 0);
    CHECK_CODE("the first version works too", NV_SUCCESS, nvmlDeviceGetMemoryInfo(gpu, &memory));
    CHECK("it counts what is kept as used", memory.used == 407 * mib && memory.free == 81152 * mib);
    exact.version = 2;
    CHECK_CODE("another version is refused", NV_FUNCTION_NOT_FOUND, nvmlDeviceGetMemoryInfo_v2(gpu, &exact));
    CHECK_CODE("no process is listed", NV_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, NULL));

    snprintf(arguments, sizeof arguments, "attach --gpu 0 --memory 1024 --pid %ld", (long)getpid());
    CHECK("a process can be attached", fakegpu(arguments) == 0);
    CHECK("and once more with another context", fakegpu(arguments) == 0);
    CHECK_CODE("a list without room says so", NV_INSUFFICIENT_SIZE,
               nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, NULL));
    CHECK("and how much is needed", count == 1);
    count = 4;
    CHECK_CODE("a list with room is filled", NV_SUCCESS, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, list));
    CHECK("the process is there once", count == 1 && list[0].pid == (unsigned)getpid());
    CHECK("with the memory of both", list[0].used == 2048 * mib && list[0].gi == 0xFFFFFFFF);
    nvmlDeviceGetMemoryInfo(gpu, &memory);
    CHECK("its memory is not free", memory.free == (81152 - 2048) * mib);
    snprintf(arguments, sizeof arguments, "detach --pid %ld", (long)getpid());
    CHECK("it can be detached", fakegpu(arguments) == 0);
    CHECK("a process that ends is gone from the list",
          fakegpu("attach --gpu 0 --memory 1 --pid $$") == 0 &&
              (count = 4, nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, list) == NV_SUCCESS) && count == 0);
}

static void faults(void) {
    nv_device gpu, other;
    unsigned index;
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    nvmlDeviceGetHandleByIndex_v2(1, &other);
    fakegpu("fault --call nvmlDeviceGetIndex --return NVML_ERROR_UNKNOWN --gpu 0");
    CHECK_CODE("a fault leaves other GPUs alone", NV_SUCCESS, nvmlDeviceGetIndex(other, &index));
    CHECK_CODE("a fault comes at the next call", NV_UNKNOWN, nvmlDeviceGetIndex(gpu, &index));
    CHECK_CODE("and once", NV_SUCCESS, nvmlDeviceGetIndex(gpu, &index));
    fakegpu("fault --call nvmlDeviceGetIndex --return NVML_ERROR_TIMEOUT --count 2");
    CHECK("a fault comes as often as it was set",
          nvmlDeviceGetIndex(gpu, &index) == NV_TIMEOUT && nvmlDeviceGetIndex(other, &index) == NV_TIMEOUT &&
              nvmlDeviceGetIndex(gpu, &index) == NV_SUCCESS);
    CHECK("an unknown call is refused", fakegpu("fault --call nvmlNonsense --return NVML_ERROR_UNKNOWN 2>/dev/null") != 0);
    fakegpu("fault --lost --gpu 0");
    CHECK_CODE("a lost GPU says so", NV_GPU_IS_LOST, nvmlDeviceGetIndex(gpu, &index));
    CHECK_CODE("also when it is looked for", NV_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(0, &gpu));
    CHECK_CODE("the others go on", NV_SUCCESS, nvmlDeviceGetIndex(other, &index));
    fakegpu("fault --clear");
    CHECK_CODE("clearing brings it back", NV_SUCCESS, nvmlDeviceGetIndex(gpu, &index));
}

static void events(void) {
    nv_device gpu;
    nv_event_set set;
    nv_event event;
    nvmlDeviceGetHandleByIndex_v2(2, &gpu);
    fakegpu("xid --gpu 2 --xid 31");
    CHECK_CODE("an event set is made", NV_SUCCESS, nvmlEventSetCreate(&set));
    CHECK_CODE("an event that does not exist is not supported", NV_NOT_SUPPORTED, nvmlDeviceRegisterEvents(gpu, 1ull << 40, set));
    CHECK_CODE("a device is registered", NV_SUCCESS, nvmlDeviceRegisterEvents(gpu, NV_EVENT_XID, set));
    CHECK_CODE("what was before is not delivered", NV_TIMEOUT, nvmlEventSetWait_v2(set, &event, 20));
    fakegpu("xid --gpu 0 --xid 45");
    fakegpu("xid --gpu 2 --xid 79");
    CHECK_CODE("an event is delivered", NV_SUCCESS, nvmlEventSetWait_v2(set, &event, 1000));
    CHECK("it is the registered device's", event.device == gpu && event.data == 79 && event.gi == 0xFFFFFFFF);
    CHECK_CODE("and delivered once", NV_TIMEOUT, nvmlEventSetWait_v2(set, &event, 20));
    CHECK_CODE("the set can be freed", NV_SUCCESS, nvmlEventSetFree(set));
}

static unsigned recovery_of(nv_device gpu) {
    nv_field_value value = {.field = 230};
    nv_return result = nvmlDeviceGetFieldValues(gpu, 1, &value);
    return result == NV_SUCCESS && value.result == NV_SUCCESS ? value.value.ui : 999;
}

static void health(void) {
    nv_device gpu, other;
    unsigned corrected, uncorrected, pending, failed, mode;
    unsigned long long errors, reasons;
    nv_licensable_features features;
    nvmlDeviceGetHandleByIndex_v2(0, &gpu);
    nvmlDeviceGetHandleByIndex_v2(1, &other);
    fakegpu("health --gpu 0 --recovery drain-reset --ecc 3 --remap failed --remap pending --brake thermal");
    CHECK("the recovery action is told", recovery_of(gpu) == 4 && recovery_of(other) == 0);
    nvmlDeviceGetRemappedRows(gpu, &corrected, &uncorrected, &pending, &failed);
    CHECK("the last sign of a kind counts", pending == 1 && failed == 0);
    CHECK("memory errors are counted", nvmlDeviceGetTotalEccErrors(gpu, 1, 0, &errors) == NV_SUCCESS && errors == 3);
    CHECK("what could be corrected is counted apart", nvmlDeviceGetTotalEccErrors(gpu, 0, 0, &errors) == NV_SUCCESS && errors == 0);
    CHECK("the thermal brake is told", nvmlDeviceGetCurrentClocksThrottleReasons(gpu, &reasons) == NV_SUCCESS && reasons == 0x40);
    CHECK("a GPU is a real one", nvmlDeviceGetVirtualizationMode(gpu, &mode) == NV_SUCCESS && mode == 0);
    fakegpu("health --gpu 0 --virtual licensed");
    CHECK("unless it is not", nvmlDeviceGetVirtualizationMode(gpu, &mode) == NV_SUCCESS && mode == 2);
    CHECK("then it can have a licence", nvmlDeviceGetGridLicensableFeatures_v4(gpu, &features) == NV_SUCCESS &&
                                            features.supported && features.count == 1 && features.features[0].licensed);
    fakegpu("reset --gpu 0");
    nvmlDeviceGetRemappedRows(gpu, &corrected, &uncorrected, &pending, &failed);
    CHECK("a reset ends what can end", recovery_of(gpu) == 0 && pending == 0 &&
                                           nvmlDeviceGetTotalEccErrors(gpu, 1, 0, &errors) == NV_SUCCESS && errors == 0);
    CHECK("but does not cool", nvmlDeviceGetCurrentClocksThrottleReasons(gpu, &reasons) == NV_SUCCESS && reasons == 0x40);
    CHECK("an unknown action is refused", fakegpu("health --gpu 0 --recovery prayer 2>/dev/null") != 0);
}

static void *ask_index(void *gpu) {
    unsigned index = 999;
    nvmlDeviceGetIndex(gpu, &index);
    return (void *)(unsigned long)index; // NOLINT: a number that is never followed
}

static void hanging(void) {
    nv_device gpu, other;
    unsigned index;
    pthread_t thread;
    void *answer;
    nvmlDeviceGetHandleByIndex_v2(1, &gpu);
    nvmlDeviceGetHandleByIndex_v2(2, &other);
    fakegpu("fault --hang --gpu 1");
    pthread_create(&thread, NULL, ask_index, gpu);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until = (struct timespec){.tv_sec = until.tv_sec + 1, .tv_nsec = until.tv_nsec - 1000000000};
    CHECK("a call hangs", pthread_timedjoin_np(thread, &answer, &until) != 0);
    CHECK_CODE("those of other GPUs do not", NV_SUCCESS, nvmlDeviceGetIndex(other, &index));
    fakegpu("fault --clear");
    pthread_join(thread, &answer);
    CHECK("and returns when the fault is cleared", (unsigned long)answer == 1);
}

int main(void) {
    fresh_node("--board h100-80gb --gpus 3");
    before_init();
    discovery();
    memory_and_processes();
    faults();
    events();
    health();
    hanging();
    CHECK_CODE("it shuts down", NV_SUCCESS, nvmlShutdown());
    CHECK_CODE("once more is uninitialised", NV_UNINITIALIZED, nvmlShutdown());
    return finish();
}

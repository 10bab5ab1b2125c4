// SPDX-License-Identifier: Apache-2.0
// MIG through NVML: mode, geometry, the life of instances, the vendor's errors.
#include "check.h"
#include "nvml_api.h"

static nv_device gpu_at(unsigned index) {
    nv_device gpu = NULL;
    nvmlDeviceGetHandleByIndex_v2(index, &gpu);
    return gpu;
}

static nv_return create_at(nv_device gpu, unsigned id, unsigned start, unsigned size, nv_gi *gi) {
    nv_placement at = {.start = start, .size = size};
    return nvmlDeviceCreateGpuInstanceWithPlacement(gpu, id, &at, gi);
}

static void profiles(nv_device h100) {
    nv_gi_profile info;
    nv_gi_profile_v2 named = {.version = NV_STRUCT_VERSION(nv_gi_profile_v2, 2)};
    nv_placement places[8];
    unsigned count = 0;
    CHECK_CODE("profiles are told with MIG mode off", NV_SUCCESS, nvmlDeviceGetGpuInstanceProfileInfo(h100, GI_1, &info));
    CHECK("as the data has them", info.id == ID_1G && info.memory_mib == 9984 && info.sm == 16 && info.count == 7);
    CHECK_CODE("a profile that the board lacks is not supported", NV_NOT_SUPPORTED,
               nvmlDeviceGetGpuInstanceProfileInfo(h100, GI_8, &info));
    CHECK_CODE("a number that is no profile is invalid", NV_INVALID_ARGUMENT,
               nvmlDeviceGetGpuInstanceProfileInfo(h100, NV_GI_PROFILES, &info));
    CHECK_CODE("the second version has the name", NV_SUCCESS, nvmlDeviceGetGpuInstanceProfileInfoV(h100, GI_1_REV1, &named));
    CHECK("with its suffix", strcmp(named.name, "MIG 1g.10gb+me") == 0);
    named.version = 7;
    CHECK_CODE("another version is refused", NV_INVALID_ARGUMENT,
               nvmlDeviceGetGpuInstanceProfileInfoV(h100, GI_1, &named));
    CHECK_CODE("placements are counted", NV_SUCCESS,
               nvmlDeviceGetGpuInstancePossiblePlacements_v2(h100, ID_3G, NULL, &count));
    CHECK("there are two of 3g", count == 2);
    CHECK_CODE("and told", NV_SUCCESS, nvmlDeviceGetGpuInstancePossiblePlacements_v2(h100, ID_3G, places, &count));
    CHECK("at the halves", places[0].start == 0 && places[1].start == 4 && places[1].size == 4);
}

static void mode(nv_device h100, nv_device a100) {
    unsigned current, pending;
    nv_return activation;
    nv_gi gi, list[8];
    nv_device mig;
    unsigned count;
    CHECK("with MIG mode off there can be no MIG devices",
          nvmlDeviceGetMaxMigDeviceCount(h100, &count) == NV_SUCCESS && count == 0);
    CHECK_CODE("and none is found", NV_NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(h100, 0, &mig));
    CHECK("nor listed", nvmlDeviceGetGpuInstances(h100, ID_1G, list, &count) == NV_SUCCESS && count == 0);
    CHECK("the capacity is that of an empty GPU",
          nvmlDeviceGetGpuInstanceRemainingCapacity(h100, ID_1G, &count) == NV_SUCCESS && count == 7);
    CHECK_CODE("with MIG mode off nothing is created", NV_NOT_SUPPORTED, nvmlDeviceCreateGpuInstance(h100, ID_1G, &gi));
    CHECK_CODE("on Hopper the mode is switched", NV_SUCCESS, nvmlDeviceSetMigMode(h100, 1, &activation));
    nvmlDeviceGetMigMode(h100, &current, &pending);
    CHECK("then there can be seven", nvmlDeviceGetMaxMigDeviceCount(h100, &count) == NV_SUCCESS && count == 7);
    CHECK("at once", activation == NV_SUCCESS && current == 1 && pending == 1);
    create_at(h100, ID_1G, 0, 1, &gi);
    CHECK_CODE("not while there is an instance", IN_USE, nvmlDeviceSetMigMode(h100, 0, &activation));
    nvmlGpuInstanceDestroy(gi);
    CHECK_CODE("again without", NV_SUCCESS, nvmlDeviceSetMigMode(h100, 0, &activation));
    nvmlDeviceSetMigMode(h100, 1, &activation);

    CHECK_CODE("on Ampere the switch is taken", NV_SUCCESS, nvmlDeviceSetMigMode(a100, 1, &activation));
    nvmlDeviceGetMigMode(a100, &current, &pending);
    CHECK("but waits for a reset", activation == RESET_REQUIRED && current == 0 && pending == 1);
    CHECK("a reset makes it so", fakegpu("reset --gpu 1") == 0 && nvmlDeviceGetMigMode(a100, &current, &pending) == NV_SUCCESS &&
                                     current == 1);
    fakegpu("reboot");
    nvmlDeviceGetMigMode(a100, &current, &pending);
    CHECK("Ampere keeps the mode over a reboot", current == 1 && pending == 1);
    nvmlDeviceGetMigMode(h100, &current, &pending);
    CHECK("Hopper forgets it", current == 0 && pending == 0);
    nvmlDeviceSetMigMode(h100, 1, &activation);
}

static void instances(nv_device gpu) {
    nv_gi gi, other, list[8];
    nv_ci ci, second;
    nv_gi_info info;
    nv_ci_profile profile;
    nv_device mig;
    unsigned count;
    CHECK_CODE("an instance is made where it was asked for", NV_SUCCESS, create_at(gpu, ID_3G, 4, 4, &gi));
    CHECK_CODE("its place can be read", NV_SUCCESS, nvmlGpuInstanceGetInfo(gi, &info));
    CHECK("and is that", info.placement.start == 4 && info.placement.size == 4 && info.profile_id == ID_3G);
    CHECK_CODE("the same place again has no resources", INSUFFICIENT_RESOURCES, create_at(gpu, ID_3G, 4, 4, &other));
    CHECK_CODE("nor has one that overlaps", INSUFFICIENT_RESOURCES, create_at(gpu, ID_1G, 5, 1, &other));
    CHECK_CODE("a start that the profile does not have is invalid", NV_INVALID_ARGUMENT, create_at(gpu, ID_3G, 2, 4, &other));
    CHECK_CODE("so is a wrong size", NV_INVALID_ARGUMENT, create_at(gpu, ID_3G, 0, 3, &other));
    CHECK_CODE("a profile that the board lacks is not supported", NV_NOT_SUPPORTED, create_at(gpu, 99, 0, 1, &other));
    CHECK_CODE("a GPU instance alone is no device", NV_NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &mig));
    CHECK_CODE("instances are listed by profile", NV_SUCCESS, nvmlDeviceGetGpuInstances(gpu, ID_3G, list, &count));
    CHECK("the one", count == 1 && list[0] == gi);
    CHECK_CODE("and found by id", NV_SUCCESS, nvmlDeviceGetGpuInstanceById(gpu, info.id, &other));

    CHECK_CODE("a compute instance of full size is offered", NV_SUCCESS,
               nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, GI_3, 0, &profile));
    CHECK_CODE("one that is too large is not", NV_NOT_SUPPORTED,
               nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, GI_4, 0, &profile));
    CHECK_CODE("it is made", NV_SUCCESS, nvmlGpuInstanceCreateComputeInstance(gi, GI_3, &ci));
    CHECK_CODE("twice has no resources", INSUFFICIENT_RESOURCES, nvmlGpuInstanceCreateComputeInstance(gi, GI_3, &second));
    CHECK_CODE("now the GPU instance is in use", IN_USE, nvmlGpuInstanceDestroy(gi));
    CHECK_CODE("and a device", NV_SUCCESS, nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &mig));
    CHECK_CODE("a compute instance goes", NV_SUCCESS, nvmlComputeInstanceDestroy(ci));
    CHECK_CODE("once", NV_INVALID_ARGUMENT, nvmlComputeInstanceDestroy(ci));
    CHECK_CODE("then the GPU instance", NV_SUCCESS, nvmlGpuInstanceDestroy(gi));
    create_at(gpu, ID_3G, 4, 4, &other);
    CHECK_CODE("an old handle does not name the new instance", NV_INVALID_ARGUMENT, nvmlGpuInstanceGetInfo(gi, &info));
    nvmlGpuInstanceDestroy(other);
}

static void devices(nv_device gpu) {
    nv_gi gi;
    nv_ci ci;
    nv_device mig, parent, same;
    nv_attributes attributes;
    nv_memory memory;
    char uuid[96], again[96], name[96];
    unsigned is_mig, count = 4;
    nv_process list[4];
    create_at(gpu, ID_2G, 2, 2, &gi);
    nvmlGpuInstanceCreateComputeInstance(gi, GI_2, &ci);
    nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &mig);
    CHECK("a MIG device knows that it is one", nvmlDeviceIsMigDeviceHandle(mig, &is_mig) == NV_SUCCESS && is_mig);
    CHECK("its GPU is not", nvmlDeviceIsMigDeviceHandle(gpu, &is_mig) == NV_SUCCESS && !is_mig);
    CHECK("it leads to its GPU", nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &parent) == NV_SUCCESS && parent == gpu);
    nvmlDeviceGetUUID(mig, uuid, sizeof uuid);
    CHECK("its UUID has the usual form", strncmp(uuid, "MIG-", 4) == 0 && strlen(uuid) == 40);
    CHECK("the UUID finds it", nvmlDeviceGetHandleByUUID(uuid, &same) == NV_SUCCESS && same == mig);
    nvmlDeviceGetName(mig, name, sizeof name);
    CHECK("its name ends in the profile", strcmp(name, "NVIDIA H100 80GB HBM3 MIG 2g.20gb") == 0);
    nvmlDeviceGetAttributes_v2(mig, &attributes);
    CHECK("its attributes are the profile's", attributes.sm == 32 && attributes.gi_slices == 2 && attributes.memory_mib == 20091);
    nvmlDeviceGetMemoryInfo(mig, &memory);
    CHECK("so is its memory", memory.total == 20091ull << 20);

    char arguments[256];
    snprintf(arguments, sizeof arguments, "attach --gpu 0 --instance 2g.20gb:2 --memory 512 --pid %ld", (long)getpid());
    CHECK("a process attaches to an instance", fakegpu(arguments) == 0);
    CHECK_CODE("the compute instance is in use then", IN_USE, nvmlComputeInstanceDestroy(ci));
    CHECK("the device lists the process",
          nvmlDeviceGetComputeRunningProcesses_v3(mig, &count, list) == NV_SUCCESS && count == 1);
    nvmlDeviceGetMemoryInfo(mig, &memory);
    CHECK("its memory is the device's", memory.used == 512ull << 20);
    fakegpu("detach --pid $PPID");
    nvmlComputeInstanceDestroy(ci);
    nvmlGpuInstanceDestroy(gi);
    CHECK_CODE("a device's handle ends with it", NV_INVALID_ARGUMENT, nvmlDeviceGetUUID(mig, again, sizeof again));
    create_at(gpu, ID_2G, 2, 2, &gi);
    nvmlGpuInstanceCreateComputeInstance(gi, GI_2, &ci);
    nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, &mig);
    nvmlDeviceGetUUID(mig, again, sizeof again);
    CHECK("the same place has the same UUID", strcmp(uuid, again) == 0);
    nvmlComputeInstanceDestroy(ci);
    nvmlGpuInstanceDestroy(gi);
}

static unsigned create_all(nv_device gpu, unsigned id, unsigned size, nv_gi *made) {
    unsigned count = 0;
    for (unsigned start = 0; start < 8; start++) count += create_at(gpu, id, start, size, &made[count]) == NV_SUCCESS;
    return count;
}

static void destroy_all(nv_gi *made, unsigned count) {
    for (unsigned i = 0; i < count; i++) nvmlGpuInstanceDestroy(made[i]);
}

static void packing(nv_device gpu) {
    nv_gi made[16], extra;
    nv_ci_profile profile;
    unsigned count, left;
    count = create_all(gpu, ID_1G, 1, made);
    CHECK("seven 1g fit", count == 7);
    destroy_all(made, count);

    create_at(gpu, ID_3G, 4, 4, &made[7]);
    count = create_all(gpu, ID_1G, 1, made);
    CHECK("four 1g fit beside a 3g at 4", count == 4);
    destroy_all(made, count);
    nvmlGpuInstanceDestroy(made[7]);

    create_at(gpu, ID_1G_ME, 3, 1, &made[0]);
    CHECK_CODE("there is one instance with the media engines", INSUFFICIENT_RESOURCES, create_at(gpu, ID_1G_ME, 0, 1, &extra));
    CHECK("others fit beside it", nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, ID_1G, &left) == NV_SUCCESS && left == 6);
    nvmlGpuInstanceDestroy(made[0]);

    nvmlDeviceCreateGpuInstance(gpu, ID_1G, &made[0]);
    nvmlDeviceCreateGpuInstance(gpu, ID_1G, &made[1]);
    nvmlDeviceCreateGpuInstance(gpu, ID_2G, &made[2]);
    CHECK_CODE("places that the driver chose leave none for a 3g", INSUFFICIENT_RESOURCES,
               nvmlDeviceCreateGpuInstance(gpu, ID_3G, &extra));
    destroy_all(made, 3);

    create_at(gpu, ID_7G, 0, 8, &made[0]);
    CHECK_CODE("a 7g offers the full compute instance", NV_SUCCESS,
               nvmlGpuInstanceGetComputeInstanceProfileInfo(made[0], 4, 0, &profile));
    CHECK_CODE("and the one for NVLink, which is another", NV_SUCCESS,
               nvmlGpuInstanceGetComputeInstanceProfileInfo(made[0], 8, 0, &profile));
    CHECK_CODE("but no revised one", NV_NOT_SUPPORTED,
               nvmlGpuInstanceGetComputeInstanceProfileInfo(made[0], 7, 0, &profile));
    nvmlGpuInstanceDestroy(made[0]);
}

static void reboot(nv_device h100, nv_device a100) {
    nv_gi gi;
    nv_ci ci;
    nv_return activation;
    unsigned count;
    nv_gi list[8];
    nvmlDeviceSetMigMode(h100, 1, &activation);
    create_at(a100, ID_1G, 0, 1, &gi);
    nvmlGpuInstanceCreateComputeInstance(gi, GI_1, &ci);
    nvmlShutdown();
    nvmlInit_v2();
    nvmlDeviceGetGpuInstances(a100, ID_1G, list, &count);
    CHECK("instances outlive the library's session", count == 1);
    fakegpu("reboot");
    nvmlDeviceGetGpuInstances(a100, ID_1G, list, &count);
    CHECK("but not a reboot", count == 0);
    create_at(a100, ID_1G, 0, 1, &gi);
    CHECK_CODE("what is made at their place starts empty", NV_SUCCESS, nvmlGpuInstanceDestroy(gi));
}

int main(void) {
    fresh_node("--board h100-80gb --gpus 1");
    fakegpu("add --board a100-80gb --gpus 1");
    nvmlInit_v2();
    nv_device h100 = gpu_at(0), a100 = gpu_at(1);
    profiles(h100);
    mode(h100, a100);
    instances(h100);
    devices(h100);
    packing(h100);
    packing(a100);
    reboot(h100, a100);
    nvmlShutdown();
    return finish();
}

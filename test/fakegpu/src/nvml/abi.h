// SPDX-License-Identifier: Apache-2.0
// The part of NVML's binary interface that is implemented here, under own names.
// tests/abi_check.c holds it against the vendor's header where that is at hand.
#ifndef FAKEGPU_NVML_ABI_H
#define FAKEGPU_NVML_ABI_H

typedef int nv_return;
enum {
    NV_SUCCESS = 0,
    NV_UNINITIALIZED = 1,
    NV_INVALID_ARGUMENT = 2,
    NV_NOT_SUPPORTED = 3,
    NV_NO_PERMISSION = 4,
    NV_NOT_FOUND = 6,
    NV_INSUFFICIENT_SIZE = 7,
    NV_DRIVER_NOT_LOADED = 9,
    NV_TIMEOUT = 10,
    NV_FUNCTION_NOT_FOUND = 13,
    NV_GPU_IS_LOST = 15,
    NV_OPERATING_SYSTEM = 17,
    NV_LIB_RM_VERSION_MISMATCH = 18,
    NV_MEMORY = 20,
    NV_ARGUMENT_VERSION_MISMATCH = 25,
    NV_UNKNOWN = 999,
};

typedef struct nv_device_st *nv_device;
typedef struct nv_gi_st *nv_gi;
typedef struct nv_ci_st *nv_ci;
typedef struct nv_event_set_st *nv_event_set;

#define NV_STRUCT_VERSION(type, version) ((unsigned)sizeof(type) | (unsigned)(version) << 24)

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nv_pci_info;

typedef struct {
    unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
    char bus_id[32];
} nv_pci_info_ext;

typedef struct {
    unsigned long long total, free, used;
} nv_memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nv_memory_v2;

typedef struct {
    const char *cgroup; // its path in the file system
    unsigned long long soft, hard;
} nv_set_limits;

typedef struct {
    const char *cgroup;
    unsigned long long soft, hard, used;
} nv_get_limits;

typedef struct {
    unsigned long long total, free, used;
} nv_bar1_memory;

typedef struct {
    unsigned pid;
    unsigned long long used;
} nv_process_v1;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
} nv_process;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
    unsigned long long used_protected;
} nv_process_detail;

typedef struct {
    unsigned version, mode, count;
    nv_process_detail *entries;
} nv_process_detail_list;

typedef struct {
    unsigned sm, ce, dec, enc, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mib;
} nv_attributes;

typedef struct {
    unsigned start, size;
} nv_placement;

typedef struct {
    unsigned id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory_mib;
} nv_gi_profile;

typedef struct {
    unsigned version, id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
} nv_gi_profile_v2;

typedef struct {
    unsigned version, id, slices, count, sm, ce, dec, enc, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
    unsigned capabilities;
} nv_gi_profile_v3;

typedef struct {
    nv_device device;
    unsigned id, profile_id;
    nv_placement placement;
} nv_gi_info;

typedef struct {
    unsigned id, slices, count, sm, ce, dec, enc, jpeg, ofa;
} nv_ci_profile;

typedef struct {
    unsigned version, id, slices, count, sm, ce, dec, enc, jpeg, ofa;
    char name[96];
} nv_ci_profile_v2;

typedef struct {
    unsigned version, id, slices, count, sm, ce, dec, enc, jpeg, ofa;
    char name[96];
    unsigned capabilities;
} nv_ci_profile_v3;

typedef struct {
    nv_device device;
    nv_gi gi;
    unsigned id, profile_id;
    nv_placement placement;
} nv_ci_info;

typedef struct {
    nv_device device;
    unsigned long long type, data;
    unsigned gi, ci;
} nv_event;

typedef struct {
    unsigned version, type;
    union {
        char text[41];
        unsigned char bytes[16];
    } value;
} nv_uuid;

typedef struct {
    unsigned version, value;
} nv_addressing_mode;

typedef struct {
    unsigned gpu, memory;
} nv_utilization;

typedef union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    unsigned short us;
} nv_value;

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    int type;
    nv_return result;
    nv_value value;
} nv_field_value;

typedef struct {
    unsigned year;
    unsigned short month, day, hour, min, sec;
    unsigned char status;
} nv_license_expiry;

typedef struct {
    unsigned code, licensed;
    char info[128], product[128];
    unsigned enabled;
    nv_license_expiry expiry;
} nv_licensable_feature;

typedef struct {
    int supported;
    unsigned count;
    nv_licensable_feature features[3];
} nv_licensable_features;

#define NV_EVENT_XID 0x8ull
// Event types of driver 580, of which only XIDs are ever raised here.
#define NV_EVENTS 0xFF9Full
// Profiles that driver 580 knows; the header has one more.
#define NV_GI_PROFILES 0x11u
#define NV_CI_PROFILES 0x9u

#endif

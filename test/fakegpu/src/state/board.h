// SPDX-License-Identifier: Apache-2.0
// The boards that can be simulated: their constants and their MIG geometry.
#ifndef FAKEGPU_BOARD_H
#define FAKEGPU_BOARD_H

#include <stddef.h>
#include <stdint.h>

// One MIG GPU-instance profile of a board. NONE (-1) marks what no source gives.
struct fg_profile {
    const char *name;
    int nvml;        // NVML_GPU_INSTANCE_PROFILE_*
    int id;          // what the driver calls the profile id
    int slices;      // compute slices
    unsigned starts; // bit N set: position N is legal
    int size;        // memory slices taken
    int max;         // most instances of it on one GPU
    int sm, ce, dec, enc, jpeg, ofa;
    int mib;
};

enum fg_arch { FG_AMPERE = 7, FG_HOPPER = 9, FG_BLACKWELL = 10 }; // NVML's numbers

struct fg_board {
    const char *key;
    const char *product; // as NVML names it
    enum fg_arch arch;
    int memory_slices;
    unsigned pci_device; // PCI device id; the vendor is always 0x10de
    int total_mib;       // what NVML calls total
    int reserved_mib;    // of these the driver keeps
    int sm;
    int cc_major, cc_minor;
    int coherent; // the CPU reaches the memory: the GPU is a NUMA node
    const struct fg_profile *profiles;
    size_t profile_count;
};

size_t fg_board_count(void);
// Fills *board with the index'th board; 0 when there is none.
int fg_board_at(size_t index, struct fg_board *board);
// Fills *board with the board of that key; 0 when there is none.
int fg_board_find(const char *key, struct fg_board *board);

// Most MIG devices one GPU of this board can have.
int fg_board_max_instances(const struct fg_board *board);
// The profile's index by NVML constant or by driver id; -1 when the board lacks it.
int fg_profile_by_nvml(const struct fg_board *board, unsigned constant);
int fg_profile_by_id(const struct fg_board *board, unsigned id);
int fg_profile_by_name(const struct fg_board *board, const char *name);
// A copy of the profile with everything filled in that no source gives.
struct fg_profile fg_profile_filled(const struct fg_board *board, int index);

#endif

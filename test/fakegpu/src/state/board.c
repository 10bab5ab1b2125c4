// SPDX-License-Identifier: Apache-2.0
#include "board.h"

#include <string.h>

#define NONE (-1)

struct board_row {
    const char *key;
    const char *arch;
    int memory_slices;
    unsigned pci_device;
    const struct fg_profile *profiles;
    size_t profile_count;
};

#include "boards_table.inc"

// What the profile data does not hold. Totals minus reserved give the usable
// memory; where the data knows a full-GPU profile in GiB the two agree, except
// on the H200, whose measured 7g (140.0 GiB) is above total minus reserved.
// Totals of boards without a full-GPU figure are close to the card's own and
// not sourced.
struct constants {
    const char *key;
    const char *product;
    int total_mib, reserved_mib, sm, cc_major, cc_minor, coherent;
};

static const struct constants constants[] = {
    {"a30-24gb", "NVIDIA A30", 24576, 573, 56, 8, 0, 0},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", 40960, 768, 108, 8, 0, 0},
    {"a100-80gb", "NVIDIA A100-SXM4-80GB", 81920, 1024, 108, 8, 0, 0},
    {"h100-80gb", "NVIDIA H100 80GB HBM3", 81559, 407, 132, 9, 0, 0},
    {"h100-94gb", "NVIDIA H100 NVL", 95830, 475, 132, 9, 0, 0},
    {"h100-96gb", "NVIDIA GH200 480GB", 97871, 543, 132, 9, 0, 1},
    {"gh200-144gb", "NVIDIA GH200 144G HBM3e", 147456, 640, 132, 9, 0, 1},
    {"h200-141gb", "NVIDIA H200", 143771, 616, 132, 9, 0, 0},
    {"b200-180gb", "NVIDIA B200", 183359, 640, 148, 10, 0, 0},
    {"gb200-186gb", "NVIDIA GB200", 189471, 640, 152, 10, 0, 1},
    {"b300-269gb", "NVIDIA B300 SXM6 AC", 275040, 640, 148, 10, 3, 0},
    {"gb300-278gb", "NVIDIA GB300", 284208, 640, 152, 10, 3, 1},
    {"rtxpro6000-96gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 607, 188, 12, 0, 0},
};

static enum fg_arch arch_of(const char *name) {
    if (strcmp(name, "ampere") == 0) return FG_AMPERE;
    if (strcmp(name, "hopper") == 0) return FG_HOPPER;
    return FG_BLACKWELL;
}

size_t fg_board_count(void) { return sizeof board_rows / sizeof board_rows[0]; }

int fg_board_at(size_t index, struct fg_board *board) {
    if (index >= fg_board_count()) return 0;
    const struct board_row *row = &board_rows[index];
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        const struct constants *c = &constants[i];
        if (strcmp(c->key, row->key) != 0) continue;
        *board = (struct fg_board){
            .key = row->key, .product = c->product, .arch = arch_of(row->arch),
            .memory_slices = row->memory_slices, .pci_device = row->pci_device,
            .total_mib = c->total_mib, .reserved_mib = c->reserved_mib, .sm = c->sm,
            .cc_major = c->cc_major, .cc_minor = c->cc_minor, .coherent = c->coherent,
            .profiles = row->profiles, .profile_count = row->profile_count,
        };
        return 1;
    }
    return 0;
}

int fg_board_find(const char *key, struct fg_board *board) {
    for (size_t i = 0; i < fg_board_count(); i++) {
        if (strcmp(board_rows[i].key, key) == 0) return fg_board_at(i, board);
    }
    return 0;
}

int fg_board_max_instances(const struct fg_board *board) {
    int most = 0;
    for (size_t i = 0; i < board->profile_count; i++) {
        if (board->profiles[i].max > most) most = board->profiles[i].max;
    }
    return most;
}

int fg_profile_by_nvml(const struct fg_board *board, unsigned constant) {
    for (size_t i = 0; i < board->profile_count; i++) {
        if ((unsigned)board->profiles[i].nvml == constant) return (int)i;
    }
    return -1;
}

int fg_profile_by_id(const struct fg_board *board, unsigned id) {
    for (size_t i = 0; i < board->profile_count; i++) {
        if ((unsigned)board->profiles[i].id == id) return (int)i;
    }
    return -1;
}

int fg_profile_by_name(const struct fg_board *board, const char *name) {
    for (size_t i = 0; i < board->profile_count; i++) {
        if (strcmp(board->profiles[i].name, name) == 0) return (int)i;
    }
    return -1;
}

static int or_else(int value, int fallback) { return value == NONE ? fallback : value; }

struct fg_profile fg_profile_filled(const struct fg_board *board, int index) {
    struct fg_profile p = board->profiles[index];
    int full = p.size == board->memory_slices;
    int usable = board->total_mib - board->reserved_mib;
    int with_media = strstr(p.name, "+me") != NULL || full;

    // A slice's part of the GPU, as the sourced boards divide it: the whole for
    // the full profile, an equal part of the SMs (even number) for the others.
    int per_slice = board->sm / 8 / 2 * 2;
    p.sm = or_else(p.sm, full ? board->sm : per_slice * p.slices);
    p.ce = or_else(p.ce, p.slices);
    p.dec = or_else(p.dec, p.slices);
    p.enc = or_else(p.enc, 0);
    p.jpeg = or_else(p.jpeg, p.slices);
    p.ofa = or_else(p.ofa, with_media);
    p.mib = or_else(p.mib, full ? usable : usable / board->memory_slices * p.size);
    return p;
}

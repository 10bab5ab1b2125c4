// SPDX-License-Identifier: Apache-2.0
// The table of boards against what is known of them.
#include "check.h"
#include "state/board.h"
#include "state/mig.h"

static void rows(void) {
    struct fg_board b;
    CHECK("the H100 is known", fg_board_find("h100-80gb", &b));
    CHECK("its usable memory is 79.25 GiB", b.total_mib - b.reserved_mib == 81152);
    struct fg_profile p = b.profiles[fg_profile_by_name(&b, "1g.20gb")];
    CHECK("its 1g.20gb is the row of the data", p.nvml == 9 && p.id == 15 && p.slices == 1 && p.starts == 0x55 &&
                                                      p.size == 2 && p.max == 4 && p.sm == 26 && p.mib == 20091);
    CHECK("the A100 is known", fg_board_find("a100-80gb", &b));
    CHECK("its usable memory is 79.00 GiB", b.total_mib - b.reserved_mib == 80896);
    CHECK("its 1g.10gb has no decoder", b.profiles[fg_profile_by_name(&b, "1g.10gb")].dec == 0);
    CHECK("the H200 is known", fg_board_find("h200-141gb", &b));
    CHECK("its totals are the measured ones", b.total_mib == 143771 && b.reserved_mib == 616);
    CHECK("the RTX PRO 6000 has twelve memory slices", fg_board_find("rtxpro6000-96gb", &b) && b.memory_slices == 12);
    CHECK("and a negative suffix among its profiles", fg_profile_by_name(&b, "2g.48gb-me") >= 0);
    CHECK("a board without geometry is left out", !fg_board_find("rtxpro5000-48gb", &b));
    CHECK("so is one that does not exist", !fg_board_find("h999", &b));
}

static void every_board(void) {
    struct fg_board b;
    int complete = 1, inside = 1, small = 1, full = 0, boards = 0;
    for (size_t i = 0; fg_board_at(i, &b); i++, boards++) {
        for (int p = 0; p < (int)b.profile_count; p++) {
            struct fg_profile f = fg_profile_filled(&b, p);
            complete &= f.sm > 0 && f.mib > 0 && f.ce >= 0 && f.dec >= 0 && f.jpeg >= 0 && f.ofa >= 0;
            inside &= 31 - __builtin_clz(f.starts) + f.size <= b.memory_slices;
            small &= f.mib <= b.total_mib && f.sm <= b.sm;
            full += f.size == b.memory_slices && strchr(f.name, '+') == NULL;
        }
    }
    CHECK("every board of the data has its constants", boards == (int)fg_board_count());
    CHECK("no figure is left open", complete);
    CHECK("every placement lies on its board", inside);
    CHECK("no instance is larger than its board", small);
    CHECK("every board has a profile of full size", full == boards);
}

// Fills an empty GPU with one profile and counts.
static int fits(const struct fg_board *b, int profile) {
    struct fg_gpu *gpu = calloc(1, sizeof *gpu);
    int slot, count = 0;
    for (unsigned start = 0; start < 16; start++) {
        if (b->profiles[profile].starts >> start & 1) count += fg_gi_create(gpu, b, profile, (int)start, &slot) == FG_OK;
    }
    free(gpu);
    return count;
}

static void capacities(void) {
    struct fg_board b;
    int right = 1;
    for (size_t i = 0; fg_board_at(i, &b); i++) {
        for (int p = 0; p < (int)b.profile_count; p++) {
            int count = fits(&b, p);
            if (count != b.profiles[p].max) printf("      %s %s: %d of %d\n", b.key, b.profiles[p].name, count, b.profiles[p].max);
            right &= count == b.profiles[p].max;
        }
    }
    CHECK("of every profile as many fit as the data says", right);
}

int main(void) {
    rows();
    every_board();
    capacities();
    printf("%s\n", failures == 0 ? "all hold" : "SOME DO NOT HOLD");
    return failures != 0;
}

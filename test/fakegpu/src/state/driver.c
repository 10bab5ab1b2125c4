// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <stdlib.h>

int fg_cuda_version(const char *driver) {
    static const struct {
        int branch, version;
    } known[] = {{615, 13040}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060},
                 {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000}, {515, 11070},
                 {510, 11060}, {470, 11040}};
    int branch = atoi(driver);
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (branch >= known[i].branch) return known[i].version;
    }
    return 11000;
}

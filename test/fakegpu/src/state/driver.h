// SPDX-License-Identifier: Apache-2.0
// The CUDA version that came with a driver branch, as 1000 * major + 10 * minor.
#ifndef FAKEGPU_DRIVER_H
#define FAKEGPU_DRIVER_H

int fg_cuda_version(const char *driver);

#endif

// SPDX-License-Identifier: Apache-2.0
// NVML's return codes by name and in words.
#ifndef FAKEGPU_NVML_RESULTS_H
#define FAKEGPU_NVML_RESULTS_H

const char *nv_result_text(int result);
const char *nv_result_name(int result);
// The code of "NVML_ERROR_..."; -1 for an unknown name.
int nv_result_by_name(const char *name);

#endif

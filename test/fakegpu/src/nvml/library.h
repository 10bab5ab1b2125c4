// SPDX-License-Identifier: Apache-2.0
#ifndef FAKEGPU_NVML_LIBRARY_H
#define FAKEGPU_NVML_LIBRARY_H

struct fg_db;

// The open state between nvmlInit and nvmlShutdown, else NULL.
struct fg_db *nv_library_db(void);

#endif

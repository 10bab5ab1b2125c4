// SPDX-License-Identifier: Apache-2.0
#ifndef FAKEGPU_CUDA_ENTRY_TABLE_H
#define FAKEGPU_CUDA_ENTRY_TABLE_H

// The driver's answers to a look-up.
enum query { QUERY_FOUND = 0, QUERY_NOT_FOUND = 1, QUERY_TOO_OLD = 2 };

// The newest variant that is not newer than the version asked for, else NULL.
enum query entry_find(const char *name, int version, int per_thread, void **address);

#endif

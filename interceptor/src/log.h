// SPDX-License-Identifier: Apache-2.0
//
// What the library says: nothing, unless SLUICE_LOG asks, and one line when it has to refuse all memory.

#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

enum log_level { LOG_ALWAYS, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

// Writes one line to stderr when SLUICE_LOG is at least that level. LOG_ALWAYS is for the one reason of failing closed.
void sluice_log(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif // SLUICE_LOG_H

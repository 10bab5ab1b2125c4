// SPDX-License-Identifier: Apache-2.0
//
// Lines on stderr. SLUICE_LOG is a level, never a path: programs with privileges load the library too.

#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// -1 until SLUICE_LOG has been read. Several threads reading it find the same.
static int chosen = -1;

static int level_asked(void) {
    static const char *const names[] = {"", "error", "warn", "info", "debug"};
    const char *asked = secure_getenv("SLUICE_LOG");
    for (int i = LOG_ERROR; asked != NULL && i <= LOG_DEBUG; i++) {
        if (strcmp(asked, names[i]) == 0) return i;
    }
    return LOG_ALWAYS;
}

void sluice_log(enum log_level level, const char *format, ...) {
    int kept = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    int limit = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (limit < 0) {
        limit = level_asked();
        __atomic_store_n(&chosen, limit, __ATOMIC_RELAXED);
    }
    if ((int)level <= limit) {
        char line[512];
        int prefix = snprintf(line, sizeof line, "libsluice[%d]: ", (int)getpid());
        va_list arguments;
        va_start(arguments, format);
        int length = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, arguments);
        va_end(arguments);
        size_t end = strnlen(line, sizeof line - 2);
        line[end] = '\n';
        if (length >= 0 && write(STDERR_FILENO, line, end + 1) < 0) errno = 0; // nobody to tell
    }
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
}

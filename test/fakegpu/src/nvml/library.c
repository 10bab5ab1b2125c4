// SPDX-License-Identifier: Apache-2.0
// Start and end of the library, and what it says of itself and the driver.
#include "library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "call.h"
#include "results.h"
#include "state/driver.h"
#include "state/state.h"

// A C library has one state per process; nothing else in here is global.
static struct fg_db database;
static struct fg_db *opened; // &database while initialised
static int references;
static pthread_mutex_t references_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    pthread_mutex_lock(&references_mutex);
    fg_before_fork(&database);
}

static void after_fork_parent(void) {
    fg_after_fork_parent(&database);
    pthread_mutex_unlock(&references_mutex);
}

static void after_fork_child(void) {
    fg_after_fork_child(&database);
    pthread_mutex_unlock(&references_mutex);
}

static void register_fork_handlers(void) { pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

struct fg_db *nv_library_db(void) { return __atomic_load_n(&opened, __ATOMIC_ACQUIRE); }

static nv_return open_state(void) {
    switch (fg_open(&database, fg_state_path())) {
    case 0: return NV_SUCCESS;
    case -EPROTO: return NV_LIB_RM_VERSION_MISMATCH;
    case -EACCES: return NV_NO_PERMISSION;
    default: return NV_DRIVER_NOT_LOADED;
    }
}

static nv_return init(enum nv_call call) {
    pthread_once(&fork_handlers, register_fork_handlers);
    pthread_mutex_lock(&references_mutex);
    nv_return result = references > 0 ? NV_SUCCESS : open_state();
    if (result == NV_SUCCESS) {
        references++;
        __atomic_store_n(&opened, &database, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&references_mutex);
    if (result != NV_SUCCESS) return result;

    struct fg_db *db;
    result = nv_enter(call, -1, &db);
    if (result == NV_SUCCESS) return nv_leave(db, NV_SUCCESS);
    pthread_mutex_lock(&references_mutex); // a fault was set for the call: take it back
    if (--references == 0) {
        __atomic_store_n(&opened, NULL, __ATOMIC_RELEASE);
        fg_close(&database);
    }
    pthread_mutex_unlock(&references_mutex);
    return result;
}

NV_API nv_return nvmlInit(void) { return init(CALL_nvmlInit); }
NV_API nv_return nvmlInit_v2(void) { return init(CALL_nvmlInit_v2); }
NV_API nv_return nvmlInitWithFlags(unsigned flags) {
    (void)flags; // they only choose which GPUs may fail to attach
    return init(CALL_nvmlInitWithFlags);
}

NV_API nv_return nvmlShutdown(void) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlShutdown, -1, &db);
    if (result != NV_SUCCESS) return result;
    fg_unlock(db);
    pthread_mutex_lock(&references_mutex);
    if (references > 0 && --references == 0) {
        __atomic_store_n(&opened, NULL, __ATOMIC_RELEASE);
        fg_close(&database);
    }
    pthread_mutex_unlock(&references_mutex);
    return NV_SUCCESS;
}

NV_API const char *nvmlErrorString(nv_return result) { return nv_result_text(result); }

NV_API nv_return nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlSystemGetDriverVersion, -1, &db);
    if (result != NV_SUCCESS) return result;
    return nv_leave(db, nv_put_text(version, length, db->state->driver));
}

NV_API nv_return nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlSystemGetNVMLVersion, -1, &db);
    if (result != NV_SUCCESS) return result;
    char text[64];
    snprintf(text, sizeof text, "%d.%s", fg_cuda_version(db->state->driver) / 1000, db->state->driver);
    return nv_leave(db, nv_put_text(version, length, text));
}

static nv_return cuda_version(enum nv_call call, int *version) {
    struct fg_db *db;
    nv_return result = nv_enter(call, -1, &db);
    if (result != NV_SUCCESS) return result;
    if (version == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    *version = fg_cuda_version(db->state->driver);
    return nv_leave(db, NV_SUCCESS);
}

NV_API nv_return nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(CALL_nvmlSystemGetCudaDriverVersion, version);
}

NV_API nv_return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(CALL_nvmlSystemGetCudaDriverVersion_v2, version);
}

NV_API nv_return nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    struct fg_db *db;
    nv_return result = nv_enter(CALL_nvmlSystemGetProcessName, -1, &db);
    if (result != NV_SUCCESS) return result;
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t size = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL) fclose(file);
    if (size == 0) return nv_leave(db, NV_NOT_FOUND);
    text[size] = '\0';
    if (name == NULL || length == 0) return nv_leave(db, NV_INVALID_ARGUMENT);
    snprintf(name, length, "%s", text); // cut to the buffer, as the driver does
    return nv_leave(db, NV_SUCCESS);
}

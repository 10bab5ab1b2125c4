// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <string.h>
#include <time.h>

#include "library.h"
#include "state/mig.h"
#include "state/state.h"

extern const char *const nv_call_names[];

static void pause_ms(unsigned ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static int meets(const struct fg_fault *fault, enum nv_call call, int gpu) {
    return fg_read(&fault->used) && (fault->gpu < 0 || fault->gpu == gpu) &&
           (strcmp(fault->call, "*") == 0 || strncmp(fault->call, nv_call_names[call], sizeof fault->call) == 0);
}

// Uses up one occurrence of the first fault that is set for the call.
static nv_return next_fault(struct fg_db *db, enum nv_call call, int gpu) {
    struct fg_fault *faults = db->state->faults;
    nv_return result = NV_SUCCESS;
    unsigned delay = 0;
    int seen = 0;
    const uint32_t *hangs = NULL;
    for (int i = 0; i < FG_MAX_FAULTS; i++) seen |= fg_read(&faults[i].used) != 0;
    if (!seen) return NV_SUCCESS;

    fg_lock(db);
    for (int i = 0; i < FG_MAX_FAULTS; i++) {
        if (!meets(&faults[i], call, gpu)) continue;
        if (faults[i].hangs) {
            hangs = &faults[i].used;
            break;
        }
        result = faults[i].result;
        delay = faults[i].delay_ms;
        if (faults[i].left == 1) fg_publish(&faults[i].used, 0);
        if (faults[i].left > 1) faults[i].left--;
        break;
    }
    fg_unlock(db);
    while (hangs != NULL && fg_read(hangs)) pause_ms(20);
    if (delay > 0) pause_ms(delay);
    return result;
}

nv_return nv_enter(enum nv_call call, int gpu, struct fg_db **out) {
    struct fg_db *db = nv_library_db();
    if (db == NULL) return NV_UNINITIALIZED;
    __atomic_fetch_add(&db->state->calls[call], 1, __ATOMIC_RELAXED);
    nv_return fault = next_fault(db, call, gpu);
    if (fault != NV_SUCCESS) return fault;
    if (gpu >= 0) {
        if ((unsigned)gpu >= fg_read(&db->state->gpu_count)) return NV_INVALID_ARGUMENT;
        if (fg_read(&db->state->gpus[gpu].lost)) return NV_GPU_IS_LOST;
    }
    fg_lock(db);
    *out = db;
    return NV_SUCCESS;
}

nv_return nv_leave(struct fg_db *db, nv_return result) {
    fg_unlock(db);
    return result;
}

nv_return nv_not_supported(enum nv_call call) {
    struct fg_db *db;
    nv_return result = nv_enter(call, -1, &db);
    return result == NV_SUCCESS ? nv_leave(db, NV_NOT_SUPPORTED) : result;
}

// A handle's bits, from the top: mark (8), kind (4), GPU (8), GI slot (8), CI slot (8), generations (14 + 14).
#define MARK 0xFBull
#define GENERATION 0x3FFFu

void *nv_handle(struct fg_db *db, struct nv_target t) {
    unsigned long long bits = MARK << 56 | (unsigned long long)t.kind << 52 | (unsigned long long)t.gpu << 44;
    if (t.kind != NV_KIND_GPU) {
        const struct fg_gi *gi = &db->state->gpus[t.gpu].gis[t.gi];
        bits |= (unsigned long long)t.gi << 36 | (unsigned long long)(gi->generation & GENERATION) << 14;
        if (t.kind != NV_KIND_GI) {
            bits |= (unsigned long long)t.ci << 28 | (gi->cis[t.ci].generation & GENERATION);
        }
    }
    return (void *)bits; // NOLINT: a number that is never followed
}

int nv_gpu_of(const void *handle) {
    unsigned long long bits = (unsigned long long)handle;
    return bits >> 56 == MARK ? (int)(bits >> 44 & 0xFF) : -1;
}

static enum nv_kind kind_of(const void *handle) { return (enum nv_kind)((unsigned long long)handle >> 52 & 0xF); }

// Reads the handle against the locked state; 0 when what it named is gone.
static int resolve(struct fg_db *db, const void *handle, struct nv_target *t) {
    unsigned long long bits = (unsigned long long)handle;
    *t = (struct nv_target){.kind = kind_of(handle), .gpu = nv_gpu_of(handle), .gi = -1, .ci = -1};
    if (t->kind == NV_KIND_GPU) return 1;
    t->gi = (int)(bits >> 36 & 0xFF);
    if (t->gi >= FG_MAX_GIS) return 0;
    const struct fg_gi *gi = &db->state->gpus[t->gpu].gis[t->gi];
    if (!fg_read(&gi->used) || (gi->generation & GENERATION) != (bits >> 14 & GENERATION)) return 0;
    if (t->kind == NV_KIND_GI) return 1;
    t->ci = (int)(bits >> 28 & 0xFF);
    if (t->ci >= FG_MAX_CIS) return 0;
    const struct fg_ci *ci = &gi->cis[t->ci];
    return fg_read(&ci->used) && (ci->generation & GENERATION) == (bits & GENERATION);
}

static nv_return enter_kinds(enum nv_call call, const void *handle, unsigned kinds, struct fg_db **db,
                             struct nv_target *target) {
    if (nv_library_db() == NULL) return NV_UNINITIALIZED;
    int gpu = nv_gpu_of(handle);
    if (gpu < 0 || !(kinds >> kind_of(handle) & 1)) return NV_INVALID_ARGUMENT;
    nv_return result = nv_enter(call, gpu, db);
    if (result != NV_SUCCESS) return result;
    return resolve(*db, handle, target) ? NV_SUCCESS : nv_leave(*db, NV_INVALID_ARGUMENT);
}

nv_return nv_enter_device(enum nv_call call, nv_device device, struct fg_db **db, struct nv_target *target) {
    return enter_kinds(call, device, 1u << NV_KIND_GPU | 1u << NV_KIND_MIG, db, target);
}

nv_return nv_enter_gpu(enum nv_call call, nv_device device, struct fg_db **db, struct nv_target *target) {
    return enter_kinds(call, device, 1u << NV_KIND_GPU, db, target);
}

nv_return nv_enter_gi(enum nv_call call, nv_gi gi, struct fg_db **db, struct nv_target *target) {
    return enter_kinds(call, gi, 1u << NV_KIND_GI, db, target);
}

nv_return nv_enter_ci(enum nv_call call, nv_ci ci, struct fg_db **db, struct nv_target *target) {
    return enter_kinds(call, ci, 1u << NV_KIND_CI, db, target);
}

nv_return nv_put_text(char *buffer, unsigned length, const char *text) {
    if (buffer == NULL) return NV_INVALID_ARGUMENT;
    size_t size = strlen(text) + 1;
    if (size > length) return NV_INSUFFICIENT_SIZE;
    memcpy(buffer, text, size);
    return NV_SUCCESS;
}

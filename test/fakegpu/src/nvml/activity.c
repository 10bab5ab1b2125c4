// SPDX-License-Identifier: Apache-2.0
// Whether kernels are running.
#include <time.h>

#include "call.h"
#include "device.h"

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// A GPU is busy or idle at the moment of the call; there is no history to average over.
NV_API nv_return nvmlDeviceGetUtilizationRates(nv_device device, nv_utilization *rates) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetUtilizationRates, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (rates == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (nv_mig_on(db, &t)) return nv_leave(db, NV_NOT_SUPPORTED);
    *rates = (nv_utilization){0};
    uint64_t now = now_ns();
    for (int lane = 0; lane < FG_LANES; lane++) {
        if (__atomic_load_n(&nv_gpu(db, &t)->busy_until[lane], __ATOMIC_RELAXED) > now) rates->gpu = 100;
    }
    return nv_leave(db, NV_SUCCESS);
}

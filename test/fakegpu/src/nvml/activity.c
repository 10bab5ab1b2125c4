// SPDX-License-Identifier: Apache-2.0
// Whether kernels are running.
#include "call.h"
#include "device.h"
#include "state/engine.h"

// A GPU is busy or idle at the moment of the call; there is no history to average over.
NV_API nv_return nvmlDeviceGetUtilizationRates(nv_device device, nv_utilization *rates) {
    struct fg_db *db;
    struct nv_target t;
    nv_return result = nv_enter_device(CALL_nvmlDeviceGetUtilizationRates, device, &db, &t);
    if (result != NV_SUCCESS) return result;
    if (rates == NULL) return nv_leave(db, NV_INVALID_ARGUMENT);
    if (nv_mig_on(db, &t)) return nv_leave(db, NV_NOT_SUPPORTED);
    *rates = (nv_utilization){0};
    struct fg_moment moment;
    fg_look(db, &moment);
    for (uint32_t lane = 0; lane < moment.lanes; lane++) {
        if (fg_running(&moment, lane) && db->engine->lane[lane].gpu == (uint32_t)t.gpu) rates->gpu = 100;
    }
    return nv_leave(db, NV_SUCCESS);
}

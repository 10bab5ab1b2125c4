// SPDX-License-Identifier: Apache-2.0
//
// Charging a device across its shares.

#include "charge.h"

#include "ledger.h"
#include "quota.h"

static void give_units(struct device *device, uint32_t units) {
    for (int i = device->share_count; i-- > 0 && units > 0;) units -= ledger_give(&device->shares[i]->ledger, units);
}

// A share that enforces nothing has no end.
static uint32_t limit_of(const struct share *share) {
    return share_enforces(share) ? quota_limit_units(share_limit(share)) : UINT32_MAX - 1;
}

bool charge_try(struct device *device, uint64_t bytes) {
    uint32_t units = quota_units(bytes), left = units;
    if (device->state != DEVICE_LIMITED) return false;
    if (units == 0) return true;
    for (int i = 0; i < device->share_count && left > 0; i++) {
        struct share *share = device->shares[i];
        left -= ledger_take(&share->ledger, left, limit_of(share), i + 1 < device->share_count || device->share_count > 1);
    }
    if (left == 0) return true;
    give_units(device, units - left);
    return false;
}

void charge_refuse(struct device *device) {
    if (device->share_count > 0 && device->shares[0]->ledger.page != NULL) {
        ledger_count(&device->shares[0]->ledger.page->refused, 1);
    }
}

bool charge_take(struct device *device, uint64_t bytes) {
    bool taken = charge_try(device, bytes);
    if (!taken) charge_refuse(device);
    return taken;
}

void charge_force(struct device *device, uint64_t bytes) {
    if (device->state != DEVICE_LIMITED || charge_try(device, bytes)) return;
    ledger_force(&device->shares[0]->ledger, quota_units(bytes));
}

void charge_give(struct device *device, uint64_t bytes) {
    if (device->state == DEVICE_LIMITED) give_units(device, quota_units(bytes));
}

void charge_driver_refused(struct device *device, cu_result result) {
    if (result != CU_OUT_OF_MEMORY || device->state != DEVICE_LIMITED) return;
    ledger_count(&device->shares[0]->ledger.page->refused_by_driver, 1);
}

// A context has a page for code anyway.
static uint64_t pages_of(uint64_t packed) { return packed > QUOTA_PAGE ? quota_round(packed - QUOTA_PAGE, QUOTA_PAGE) : 0; }

bool charge_pack(struct device *device, uint64_t bytes) {
    lock_take(&device->pack_lock);
    uint64_t before = pages_of(device->packed), after = pages_of(device->packed + bytes);
    bool taken = after == before ? device->state == DEVICE_LIMITED : charge_take(device, after - before);
    if (taken) device->packed += bytes;
    lock_drop(&device->pack_lock);
    return taken;
}

void charge_unpack(struct device *device, uint64_t bytes) {
    lock_take(&device->pack_lock);
    if (bytes > device->packed) bytes = device->packed;
    uint64_t before = pages_of(device->packed), after = pages_of(device->packed - bytes);
    device->packed -= bytes;
    lock_drop(&device->pack_lock);
    charge_give(device, before - after);
}

uint64_t charge_context_figure(const struct device *device) {
    uint64_t figure = 0;
    for (int i = 0; i < device->share_count; i++) {
        // A context alone is never free: an agent that does not know its figure yet writes the safe one.
        uint64_t own = share_context(device->shares[i]);
        if (own == 0 && device->shares[i]->limits != NULL) own = MODE_CONTEXT_DEFAULT;
        if (own + share_overhead(device->shares[i]) > figure) figure = own + share_overhead(device->shares[i]);
    }
    return figure;
}

struct report charge_report(const struct device *device) {
    struct report report = {0};
    if (device->state != DEVICE_LIMITED) return report;
    for (int i = 0; i < device->share_count; i++) {
        struct share *share = device->shares[i];
        uint64_t limit = share_enforces(share) ? share_limit(share) : UINT64_MAX / 2;
        if (__builtin_add_overflow(report.limit, limit, &report.limit)) report.limit = UINT64_MAX;
        if (share->ledger.page != NULL) report.used += ledger_used(&share->ledger);
    }
    return report;
}

void charge_export(struct device *device, uint64_t bytes) {
    if (device->state == DEVICE_LIMITED) ledger_export(&device->shares[0]->ledger, bytes);
}

void charge_unexport(struct device *device, uint64_t bytes) {
    if (device->state == DEVICE_LIMITED) ledger_unexport(&device->shares[0]->ledger, bytes);
}

bool charge_import(struct device *device, uint64_t bytes, uint64_t *paid) {
    *paid = 0;
    if (device->state != DEVICE_LIMITED) return false;
    if (ledger_import(&device->shares[0]->ledger, bytes)) return true;
    *paid = bytes;
    return charge_take(device, bytes);
}

void charge_unimport(struct device *device, uint64_t bytes, uint64_t paid) {
    if (device->state != DEVICE_LIMITED) return;
    if (paid == 0) ledger_unimport(&device->shares[0]->ledger, bytes);
    else charge_give(device, paid);
}

// SPDX-License-Identifier: Apache-2.0
//
// Charging a device: its shares are filled in their order, and an amount may straddle them.

#ifndef SLUICE_CHARGE_H
#define SLUICE_CHARGE_H

#include "process.h"

// Charges before the driver is asked; false: over the limit, nothing charged, and counted as refused.
bool charge_take(struct device *device, uint64_t bytes);
// Tries the same without counting a refusal.
bool charge_try(struct device *device, uint64_t bytes);
void charge_refuse(struct device *device);
// Charges what is there already.
void charge_force(struct device *device, uint64_t bytes);
void charge_give(struct device *device, uint64_t bytes);

// Counts a refusal by the driver of what the limit allowed.
void charge_driver_refused(struct device *device, cu_result result);

// Code packs into pages that other code uses too: the pages of the sum are charged.
bool charge_pack(struct device *device, uint64_t bytes);
void charge_unpack(struct device *device, uint64_t bytes);
// What one context costs, with the agent's correction for what comes with it.
uint64_t charge_context_figure(const struct device *device);

// The device as the process is told it.
struct report {
    uint64_t limit, used;
};
struct report charge_report(const struct device *device);

// Memory shared with other processes, recorded in the device's first share.
void charge_export(struct device *device, uint64_t bytes);
void charge_unexport(struct device *device, uint64_t bytes);
// Charges an import: nothing while an exporter of the share pays. `paid` is what was charged.
bool charge_import(struct device *device, uint64_t bytes, uint64_t *paid);
void charge_unimport(struct device *device, uint64_t bytes, uint64_t paid);

#endif // SLUICE_CHARGE_H

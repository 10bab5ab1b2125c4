// SPDX-License-Identifier: Apache-2.0
//
// The ledger's byte-range locks.

#ifndef SLUICE_LEDGER_LOCK_H
#define SLUICE_LEDGER_LOCK_H

#include "ledger.h"

// Waits for the growth byte; false where the file cannot be locked.
bool ledger_lock_growth(struct ledger *ledger);
void ledger_unlock_growth(struct ledger *ledger);

// Takes the life byte of a slot; false where another process has it.
bool ledger_lock_life(struct ledger *ledger, unsigned slot);
void ledger_unlock_life(struct ledger *ledger, unsigned slot);

// Makes sure that the descriptor is still the ledger's; a program may have closed it, and have another file there now.
bool ledger_check_descriptor(struct ledger *ledger);

// Opens the file at the ledger's path on a high descriptor that exec closes; -1 where it cannot.
int ledger_open_file(const char *path);

#endif // SLUICE_LEDGER_LOCK_H

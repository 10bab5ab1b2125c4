// SPDX-License-Identifier: Apache-2.0
//
// The ledger's words of pacing.

#include <errno.h>
#include <pthread.h>

#include "ledger.h"
#include "ledger_lock.h"

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

void ledger_renew(struct ledger *ledger) {
    // Taking nothing goes through the slow path, which takes the life byte again.
    ledger_force(ledger, 0);
}

uint64_t *ledger_pace(struct ledger *ledger) {
    for (int round = 0; ledger->page != NULL && round < 2; round++) {
        struct sluice_usage_slot *slot = ledger->slot < 0 ? NULL : &ledger->page->slots[ledger->slot];
        if (slot != NULL && load(&slot->stamp) == ledger->stamp) return &slot->pace;
        ledger_renew(ledger);
    }
    return NULL;
}

uint32_t ledger_working(struct ledger *ledger) {
    uint32_t count = 1, used = ledger->page == NULL ? 0 : __atomic_load_n(&ledger->page->slots_used, __ATOMIC_ACQUIRE);
    int kept = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    bool can_ask = ledger->page != NULL && ledger_check_descriptor(ledger);
    for (uint32_t i = 0; i < used && i < SLUICE_USAGE_SLOTS; i++) {
        const struct sluice_usage_slot *slot = &ledger->page->slots[i];
        if ((int)i == ledger->slot || !(load(&slot->pace) & (SLUICE_PACE_WANTS | SLUICE_PACE_RUNS))) continue;
        if (can_ask && ledger_lives(ledger, i)) count++;
    }
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return count;
}

// SPDX-License-Identifier: Apache-2.0
//
// A lock between the threads of this process: one word and the kernel's futex. The C library's mutexes would do, but where
// a program has no threads library they are empty in old versions, and a child of fork must be able to start over: all
// words here lie in memory that the kernel empties for it.

#ifndef SLUICE_LOCK_H
#define SLUICE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct sluice_lock {
    uint32_t word; // 0 free, 1 held, 2 held and waited for
};

void sluice_lock_wait(struct sluice_lock *lock);
void sluice_lock_wake(struct sluice_lock *lock);

static inline void lock_take(struct sluice_lock *lock) {
    uint32_t seen = 0;
    if (!__atomic_compare_exchange_n(&lock->word, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        sluice_lock_wait(lock);
    }
}

static inline bool lock_try(struct sluice_lock *lock) {
    uint32_t seen = 0;
    return __atomic_compare_exchange_n(&lock->word, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void lock_drop(struct sluice_lock *lock) {
    if (__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2) sluice_lock_wake(lock);
}

#endif // SLUICE_LOCK_H

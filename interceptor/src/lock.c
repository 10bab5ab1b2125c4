// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a lock between threads.

#include "lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void sluice_lock_wait(struct sluice_lock *lock) {
    int kept = errno;
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) {
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
    errno = kept;
}

void sluice_lock_wake(struct sluice_lock *lock) {
    int kept = errno;
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = kept;
}

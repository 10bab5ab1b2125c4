// SPDX-License-Identifier: Apache-2.0
//
// The helper thread. It is stopped before the driver's own exit handlers run, and a child of fork has none.

#include "helper.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "pacer.h"
#include "real.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WORD_OF_32_BITS 2u // flag of a futex in a list of them

#define MOST_WORDS (DEVICES + 1)
#define ALONE_WAIT 20000000ull
#define SHORT_WAIT 1000000ull // where the kernel cannot wait for several words
#define LONGEST_WAIT 1000000000ull
#define STOP_WAIT 100000000ull

// Signals that the C library needs in every thread: cancellation and changes of user ids.
#define LIBRARY_SIGNALS (3ull << 31)
#define SET_BYTES 8

struct word {
    uint64_t value, address;
    uint32_t flags, reserved;
};

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

void helper_call(struct process *process) {
    __atomic_fetch_add(&process->helper_call, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &process->helper_call, FUTEX_WAKE, 1, NULL, NULL, 0);
}

// Acts for all devices. Says when to look again, and collects the words whose change matters.
static uint64_t act_all(struct process *process, struct word *words, int *count) {
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < DEVICES; i++) {
        struct pacer *pacer = __atomic_load_n(&process->devices[i].pacer, __ATOMIC_ACQUIRE);
        if (pacer == NULL) continue;
        lock_take(&pacer->lock);
        struct pacer_hold hold = pacer_hold(process);
        uint64_t at = pacer_act(pacer, &(struct pacer_look){.now = pacer_now(), .all = true, .alone = hold.alone});
        pacer_release(process, &hold);
        if (at < next) next = at;
        if (pacer->state == PACER_OPEN && pacer->by != NULL) {
            words[(*count)++] = (struct word){.value = pacer->admitted, .address = (uintptr_t)pacer->word, .flags = WORD_OF_32_BITS};
        }
        lock_drop(&pacer->lock);
    }
    return next;
}

static void wait_for_one(const struct word *word, uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, (const uint32_t *)(uintptr_t)word->address, FUTEX_WAIT, (uint32_t)word->value, &time, NULL, 0);
}

// Waits until a word changes, at most so long. The first word is that of calls.
static void wait(const struct word *words, int count, bool one_device, uint64_t until) {
    uint64_t now = pacer_now(), ns = until > now ? until - now : 0;
    if (ns == 0) return;
    if (ns > LONGEST_WAIT) ns = LONGEST_WAIT;
    if (count == 1) {
        wait_for_one(&words[0], ns);
        return;
    }
    uint64_t end = now + ns;
    struct timespec time = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
    if (syscall(SYS_futex_waitv, words, (unsigned)count, 0, &time, CLOCK_MONOTONIC) >= 0 || errno != ENOSYS) return;
    // Calls wake the word of calls only: with it unwatched, the wait is short. They matter little where there is one device.
    uint64_t most = count == 2 && one_device ? ALONE_WAIT : SHORT_WAIT;
    wait_for_one(&words[1], ns < most ? ns : most);
}

static void *run(void *argument) {
    struct process *process = argument;
    struct word words[MOST_WORDS];
    syscall(SYS_prctl, PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    syscall(SYS_prctl, PR_SET_NAME, "sluice", 0, 0, 0);
    while (__atomic_load_n(&process->helper, __ATOMIC_ACQUIRE) == HELPER_RUNS) {
        int count = 1;
        words[0] = (struct word){.value = __atomic_load_n(&process->helper_call, __ATOMIC_ACQUIRE),
                                 .address = (uintptr_t)&process->helper_call, .flags = WORD_OF_32_BITS};
        uint64_t until = act_all(process, words, &count);
        wait(words, count, process->device_count == 1, until);
    }
    __atomic_store_n(&process->helper, HELPER_MISSING, __ATOMIC_RELEASE);
    syscall(SYS_futex, &process->helper, FUTEX_WAKE, 1, NULL, NULL, 0);
    return NULL;
}

// Before the driver ends. Launches of exit handlers, and of threads meanwhile, are paced on as where there is no helper.
static void stop(void *argument) {
    struct process *process = __atomic_load_n(&sluice_process, __ATOMIC_ACQUIRE);
    (void)argument; // a sanitizer in the program loses it
    uint32_t runs = HELPER_RUNS;
    struct timespec time = {.tv_nsec = STOP_WAIT};
    if (process == NULL || !__atomic_compare_exchange_n(&process->helper, &runs, HELPER_STOPS, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    helper_call(process);
    syscall(SYS_futex, &process->helper, FUTEX_WAIT, HELPER_STOPS, &time, NULL, 0);
}

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static bool start_thread(struct process *process) {
    create_function *create = (create_function *)real_pthread_create();
    uint64_t all = ~LIBRARY_SIGNALS, before = 0;
    pthread_attr_t detached;
    pthread_t thread;
    if (create == NULL || pthread_attr_init(&detached) != 0) return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, SET_BYTES);
    bool started = create(&thread, &detached, run, process) == 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SET_BYTES);
    pthread_attr_destroy(&detached);
    return started;
}

void helper_start(struct process *process) {
    if (__atomic_load_n(&process->helper, __ATOMIC_ACQUIRE) != HELPER_NONE) return;
    lock_take(&process->helper_lock);
    if (process->helper == HELPER_NONE) {
        __atomic_store_n(&process->helper, HELPER_RUNS, __ATOMIC_RELEASE);
        __cxa_atexit(stop, NULL, NULL);
        if (!start_thread(process)) {
            __atomic_store_n(&process->helper, HELPER_MISSING, __ATOMIC_RELEASE);
            sluice_log(LOG_WARN, "no thread for pacing: slices end when something is launched");
        }
    }
    lock_drop(&process->helper_lock);
}

// SPDX-License-Identifier: Apache-2.0
//
// The ledger's fast path, its slow path, and the clearing of dead slots.

#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ledger_lock.h"
#include "quota.h"

// Credit is taken in steps of 32 MiB where there is enough, so that small takings seldom need the lock.
#define STEP (32u << 8)

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void store(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static bool swap(uint64_t *word, uint64_t *seen, uint64_t value) {
    return __atomic_compare_exchange_n(word, seen, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static struct sluice_usage_slot *own(struct ledger *ledger) {
    if (ledger->slot < 0) return NULL;
    struct sluice_usage_slot *slot = &ledger->page->slots[ledger->slot];
    return load(&slot->stamp) == ledger->stamp ? slot : NULL;
}

static unsigned slots_used(const struct sluice_usage *page) {
    uint32_t used = __atomic_load_n(&page->slots_used, __ATOMIC_ACQUIRE);
    return used > SLUICE_USAGE_SLOTS ? SLUICE_USAGE_SLOTS : used;
}

bool ledger_open(struct ledger *ledger, const char *path, const char **reason) {
    struct stat found;
    memset(ledger, 0, sizeof *ledger);
    ledger->fd = ledger->slot = -1;
    if (snprintf(ledger->path, sizeof ledger->path, "%s", path) >= (int)sizeof ledger->path) {
        *reason = "its path is too long";
        return false;
    }
    int fd = ledger_open_file(path);
    *reason = "it cannot be opened";
    if (fd < 0) return false;
    *reason = "it is not a complete usage file";
    if (syscall(SYS_fstat, fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size >= (off_t)SLUICE_USAGE_SIZE) {
        void *page = mmap(NULL, SLUICE_USAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page != MAP_FAILED) {
            ledger->page = page;
            ledger->fd = fd;
            ledger->device = found.st_dev;
            ledger->inode = found.st_ino;
            return true;
        }
        *reason = "it cannot be mapped";
    }
    close(fd);
    return false;
}

void ledger_close(struct ledger *ledger) {
    if (ledger->page != NULL) munmap(ledger->page, SLUICE_USAGE_SIZE);
    if (ledger->fd >= 0) close(ledger->fd);
    ledger->page = NULL;
    ledger->fd = ledger->slot = -1;
}

static uint64_t imports(const struct sluice_usage *page) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < slots_used(page); i++) sum += load(&page->slots[i].imported);
    return sum;
}

// Moves what an exporter no longer pays for to the orphans while others map it, and forgets the orphans with the last
// import. Under the growth byte.
static void orphan(struct sluice_usage *page, uint64_t exported) {
    uint64_t mapped = imports(page), now = load(&page->orphan);
    uint64_t sum = mapped == 0 ? 0 : now + exported;
    store(&page->orphan, sum < mapped ? sum : mapped);
}

// Clears a slot whose process is dead. Under the growth byte.
static void reap(struct ledger *ledger, unsigned at) {
    struct sluice_usage *page = ledger->page;
    struct sluice_usage_slot *slot = &page->slots[at];
    if ((int)at == ledger->slot || ledger_lives(ledger, at)) return;
    uint64_t exported = load(&slot->exported);
    bool imported = load(&slot->imported) != 0;
    store(&slot->imported, 0);
    if (exported != 0 || imported) orphan(page, exported);
    store(&slot->exported, 0);
    store(&slot->pace, 0);
    store(&slot->word, 0);
    store(&slot->stamp, 0);
    ledger_count(&page->reaped, 1);
}

static void reap_all(struct ledger *ledger) {
    for (unsigned i = 0; i < slots_used(ledger->page); i++) {
        const struct sluice_usage_slot *slot = &ledger->page->slots[i];
        if (load(&slot->stamp) != 0 || load(&slot->word) != 0) reap(ledger, i);
    }
}

// What is given out: all credits, and what orphans hold.
static uint64_t given(const struct sluice_usage *page) {
    uint64_t sum = quota_units(load(&page->orphan));
    for (unsigned i = 0; i < slots_used(page); i++) sum += quota_credit(load(&page->slots[i].word));
    return sum;
}

static void take_back_unused(struct sluice_usage *page) {
    for (unsigned i = 0; i < slots_used(page); i++) {
        uint64_t *word = &page->slots[i].word, seen = load(word);
        while (quota_unused(seen) != 0 && !swap(word, &seen, quota_word(quota_held(seen), quota_held(seen)))) {
        }
    }
}

static uint64_t new_stamp(void) {
    static uint32_t count;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t nanoseconds = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    uint64_t stamp = nanoseconds << 12 ^ (uint64_t)getpid() << 40 ^ __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return stamp == 0 ? 1 : stamp;
}

// Takes a free slot and its life byte. Under the growth byte.
static bool take_slot(struct ledger *ledger) {
    struct sluice_usage *page = ledger->page;
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SLUICE_USAGE_SLOTS; i++) {
            struct sluice_usage_slot *slot = &page->slots[i];
            if (load(&slot->stamp) != 0 || load(&slot->word) != 0 || !ledger_lock_life(ledger, i)) continue;
            if (i >= slots_used(page)) __atomic_store_n(&page->slots_used, i + 1, __ATOMIC_RELEASE);
            ledger->slot = (int)i;
            ledger->stamp = new_stamp();
            store(&slot->exported, ledger->exported);
            store(&slot->imported, ledger->imported);
            store(&slot->start_cpu, 0);
            store(&slot->pace, 0);
            store(&slot->lock_wait, ledger->waited);
            __atomic_store_n(&slot->pid, (uint32_t)getpid(), __ATOMIC_RELAXED);
            __atomic_store_n(&slot->pid_namespace, ledger_pid_namespace(), __ATOMIC_RELAXED);
            store(&slot->stamp, ledger->stamp);
            return true;
        }
        if (round == 0) reap_all(ledger); // the dead keep their slots until somebody needs one
    }
    ledger_count(&page->slots_full, 1);
    return false;
}

// Holds the life byte again, should the program have closed the descriptor, and registers what the process holds again,
// should it have been taken for dead meanwhile. Under the growth byte.
static bool still_registered(struct ledger *ledger) {
    if (own(ledger) != NULL) return ledger_lock_life(ledger, (unsigned)ledger->slot);
    bool again = ledger->slot >= 0;
    if (again) ledger_unlock_life(ledger, (unsigned)ledger->slot); // ours alone: a lock of who has it now stays
    ledger->slot = -1;
    if (!take_slot(ledger)) return false;
    uint32_t held = __atomic_load_n(&ledger->held, __ATOMIC_ACQUIRE);
    store(&ledger->page->slots[ledger->slot].word, quota_word(held, held));
    if (again) ledger_count(&ledger->page->registered_again, 1);
    return true;
}

// Enters the slow path: one thread of one process, registered. It waits and opens files, where a thread can be cancelled; one
// that ended here would leave the lock to nobody.
static bool enter(struct ledger *ledger) {
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    lock_take(&ledger->lock);
    ledger->cancel = cancel;
    if (ledger->page != NULL && ledger_check_descriptor(ledger) && ledger_lock_growth(ledger)) {
        if (still_registered(ledger)) return true;
        ledger_unlock_growth(ledger);
    }
    lock_drop(&ledger->lock);
    pthread_setcancelstate(cancel, NULL);
    return false;
}

static void leave(struct ledger *ledger) {
    int cancel = ledger->cancel;
    ledger_unlock_growth(ledger);
    lock_drop(&ledger->lock);
    pthread_setcancelstate(cancel, NULL);
}

static bool fix_limit(struct ledger *ledger, uint64_t limit) {
    struct sluice_usage *page = ledger->page;
    uint64_t in_force = load(&page->limit);
    if (limit == 0 || in_force == limit) return true;
    for (unsigned i = 0; in_force != 0 && i < slots_used(page); i++) {
        if ((int)i != ledger->slot && load(&page->slots[i].stamp) != 0 && ledger_lives(ledger, i)) return false;
    }
    store(&page->limit, limit);
    return true;
}

bool ledger_join(struct ledger *ledger, uint64_t fixed_limit, const char **reason) {
    int kept = errno;
    bool joined = false;
    *reason = "all its slots are taken";
    if (ledger->page != NULL && load((const uint64_t *)(const void *)&ledger->page->magic) != 0 &&
        __atomic_load_n(&ledger->page->min_reader, __ATOMIC_ACQUIRE) > SLUICE_ABI_VERSION) {
        *reason = "it needs a newer library";
        return false;
    }
    if (enter(ledger)) {
        struct sluice_usage *page = ledger->page;
        __atomic_store_n(&page->version, SLUICE_ABI_VERSION, __ATOMIC_RELAXED);
        __atomic_store_n(&page->min_reader, SLUICE_ABI_MIN_READER, __ATOMIC_RELAXED);
        __atomic_store_n(&page->magic, SLUICE_USAGE_MAGIC, __ATOMIC_RELEASE);
        joined = fix_limit(ledger, fixed_limit);
        if (!joined) *reason = "another process of the group fixed another limit";
        leave(ledger);
    }
    errno = kept;
    return joined;
}

// Gives the process credit for more, and takes it. Under the growth byte, with its own slot.
static uint32_t grow(struct ledger *ledger, uint32_t units, uint32_t limit, bool some) {
    struct sluice_usage *page = ledger->page;
    uint64_t *word = &page->slots[ledger->slot].word;
    uint32_t left = 0, unused = 0;
    for (int round = 0; round < 3; round++) {
        uint64_t sum = given(page);
        left = quota_left(limit, sum);
        unused = sum <= limit ? quota_unused(load(word)) : 0;
        if (sum <= limit && (uint64_t)left + unused >= units) break;
        if (round == 0) take_back_unused(page);
        if (round == 1) reap_all(ledger);
    }
    uint64_t fits = (uint64_t)left + unused;
    uint32_t taken = fits >= units ? units : some ? (uint32_t)fits : 0;
    if (taken == 0) return 0;
    uint64_t seen = load(word);
    while (true) {
        // Other threads of the process may have used some of the credit meanwhile.
        uint32_t needed = taken > quota_unused(seen) ? taken - quota_unused(seen) : 0;
        if (needed > left) {
            if (!some) return 0;
            taken -= needed - left;
            continue;
        }
        uint32_t more = needed == 0 ? 0 : left - needed < STEP ? left : needed + STEP;
        if (swap(word, &seen, quota_word(quota_credit(seen) + more, quota_held(seen) + taken))) return taken;
    }
}

static bool take_fast(struct ledger *ledger, uint32_t units, uint32_t limit) {
    struct sluice_usage_slot *slot = own(ledger);
    if (slot == NULL || limit != __atomic_load_n(&ledger->seen_limit, __ATOMIC_RELAXED)) return false;
    uint64_t seen = load(&slot->word);
    do {
        if (quota_unused(seen) < units) return false;
    } while (!swap(&slot->word, &seen, seen + units));
    return true;
}

uint32_t ledger_take(struct ledger *ledger, uint32_t units, uint32_t limit, bool some) {
    uint32_t taken = units;
    if (!take_fast(ledger, units, limit)) {
        int kept = errno;
        taken = 0;
        if (enter(ledger)) {
            taken = grow(ledger, units, limit, some);
            __atomic_store_n(&ledger->seen_limit, limit, __ATOMIC_RELAXED);
            leave(ledger);
        }
        errno = kept;
    }
    __atomic_fetch_add(&ledger->held, taken, __ATOMIC_RELEASE);
    return taken;
}

void ledger_force(struct ledger *ledger, uint32_t units) {
    int kept = errno;
    if (enter(ledger)) {
        uint64_t *word = &ledger->page->slots[ledger->slot].word, seen = load(word), wanted;
        do {
            uint32_t held = quota_held(seen) + units;
            wanted = quota_word(held > quota_credit(seen) ? held : quota_credit(seen), held);
        } while (!swap(word, &seen, wanted));
        ledger_count(&ledger->page->forced, (uint64_t)units * SLUICE_USAGE_UNIT);
        leave(ledger);
    }
    __atomic_fetch_add(&ledger->held, units, __ATOMIC_RELEASE);
    errno = kept;
}

// Takes from the process's own count, never below zero.
static uint32_t subtract(uint32_t *count, uint32_t units) {
    uint32_t seen = __atomic_load_n(count, __ATOMIC_ACQUIRE), less;
    do {
        less = units < seen ? units : seen;
    } while (!__atomic_compare_exchange_n(count, &seen, seen - less, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return less;
}

uint32_t ledger_give(struct ledger *ledger, uint32_t units) {
    units = subtract(&ledger->held, units);
    if (units == 0) return 0;
    struct sluice_usage_slot *slot = own(ledger);
    if (slot == NULL) {
        // Taken for dead: registering again takes the whole of what is still held.
        int kept = errno;
        if (enter(ledger)) leave(ledger);
        errno = kept;
        return units;
    }
    uint64_t seen = load(&slot->word), wanted;
    do {
        uint32_t held = quota_held(seen);
        wanted = quota_word(quota_credit(seen), held > units ? held - units : 0);
    } while (!swap(&slot->word, &seen, wanted));
    return units;
}

uint64_t ledger_used(struct ledger *ledger) {
    struct sluice_usage *page = ledger->page;
    int kept = errno;
    uint64_t units = 0;
    if (page == NULL) return 0;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    bool can_ask = ledger_check_descriptor(ledger);
    for (unsigned i = 0; i < slots_used(page); i++) {
        uint32_t held = quota_held(load(&page->slots[i].word));
        if (held != 0 && (!can_ask || ledger_lives(ledger, i))) units += held;
    }
    pthread_setcancelstate(cancel, NULL);
    errno = kept;
    return units * SLUICE_USAGE_UNIT + load(&page->orphan);
}

void ledger_export(struct ledger *ledger, uint64_t bytes) {
    int kept = errno;
    if (enter(ledger)) {
        ledger->exported += bytes;
        store(&ledger->page->slots[ledger->slot].exported, ledger->exported);
        leave(ledger);
    }
    errno = kept;
}

void ledger_unexport(struct ledger *ledger, uint64_t bytes) {
    int kept = errno;
    if (enter(ledger)) {
        uint64_t less = bytes < ledger->exported ? bytes : ledger->exported;
        ledger->exported -= less;
        store(&ledger->page->slots[ledger->slot].exported, ledger->exported);
        orphan(ledger->page, less);
        leave(ledger);
    }
    errno = kept;
}

bool ledger_import(struct ledger *ledger, uint64_t bytes) {
    int kept = errno;
    bool paid = false;
    if (enter(ledger)) {
        struct sluice_usage *page = ledger->page;
        for (unsigned i = 0; i < slots_used(page) && !paid; i++) {
            paid = load(&page->slots[i].exported) >= bytes && ledger_lives(ledger, i);
        }
        if (paid) {
            ledger->imported += bytes;
            store(&page->slots[ledger->slot].imported, ledger->imported);
        }
        leave(ledger);
    }
    errno = kept;
    return paid;
}

void ledger_unimport(struct ledger *ledger, uint64_t bytes) {
    int kept = errno;
    if (enter(ledger)) {
        ledger->imported -= bytes < ledger->imported ? bytes : ledger->imported;
        store(&ledger->page->slots[ledger->slot].imported, ledger->imported);
        orphan(ledger->page, 0);
        leave(ledger);
    }
    errno = kept;
}

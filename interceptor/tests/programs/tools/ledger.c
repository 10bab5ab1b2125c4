// SPDX-License-Identifier: Apache-2.0
// Prints what a usage file says, as JSON: ledger FILE. A slot whose process is dead counts for nothing but "dead": its bytes
// are anybody's who needs them.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sluice_abi.h"

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int lives(int fd, unsigned slot) {
    struct flock life = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SLUICE_USAGE_LIFE_BYTE(slot), .l_len = 1};
    return fcntl(fd, F_GETLK, &life) == 0 && life.l_type != F_UNLCK;
}

int main(int count, char **arguments) {
    int fd = count == 2 ? open(arguments[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        perror(count == 2 ? arguments[1] : "usage: ledger FILE");
        return 1;
    }
    const struct sluice_usage *u = mmap(NULL, sizeof *u, PROT_READ, MAP_SHARED, fd, 0);
    if (u == MAP_FAILED || lseek(fd, 0, SEEK_END) < (off_t)sizeof *u) return 1;
    uint64_t held = u->orphan, dead = 0, credit = 0, exported = 0, imported = 0;
    static uint64_t start_cpu[SLUICE_USAGE_SLOTS], lock_wait[SLUICE_USAGE_SLOTS];
    int slots = 0;
    for (unsigned i = 0; i < SLUICE_USAGE_SLOTS; i++) {
        const struct sluice_usage_slot *s = &u->slots[i];
        uint64_t bytes = (s->word & UINT32_MAX) * SLUICE_USAGE_UNIT;
        if (s->stamp == 0) continue;
        if (!lives(fd, i)) {
            dead += bytes;
            continue;
        }
        held += bytes;
        credit += (s->word >> 32) * SLUICE_USAGE_UNIT;
        exported += s->exported;
        imported += s->imported;
        start_cpu[slots] = s->start_cpu;
        lock_wait[slots] = s->lock_wait;
        slots++;
    }
    // The slot that 99 of 100 do not exceed.
    qsort(start_cpu, (size_t)slots, sizeof start_cpu[0], ascending);
    qsort(lock_wait, (size_t)slots, sizeof lock_wait[0], ascending);
    int p99 = slots > 0 ? (slots * 99 + 99) / 100 - 1 : 0;
    printf("{\"startCpuP99Ns\":%llu,\"lockWaitP99Ns\":%llu,", (unsigned long long)start_cpu[p99], (unsigned long long)lock_wait[p99]);
    printf("\"held\":%llu,\"dead\":%llu,\"credit\":%llu,\"orphan\":%llu,\"limit\":%llu,\"slots\":%d,\"exported\":%llu,\"imported\":%llu,"
           "\"refused\":%llu,\"refusedByDriver\":%llu,\"unknownVariants\":%llu,\"reaped\":%llu,\"forced\":%llu,\"registeredAgain\":%llu}\n",
           (unsigned long long)held, (unsigned long long)dead, (unsigned long long)credit, (unsigned long long)u->orphan, (unsigned long long)u->limit,
           slots, (unsigned long long)exported, (unsigned long long)imported, (unsigned long long)u->refused,
           (unsigned long long)u->refused_by_driver, (unsigned long long)u->unknown_variants, (unsigned long long)u->reaped,
           (unsigned long long)u->forced, (unsigned long long)u->registered_again);
    return 0;
}

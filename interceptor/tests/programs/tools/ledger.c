// SPDX-License-Identifier: Apache-2.0
// Prints what a usage file says, as JSON: ledger FILE.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sluice_abi.h"

int main(int count, char **arguments) {
    int fd = count == 2 ? open(arguments[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        perror(count == 2 ? arguments[1] : "usage: ledger FILE");
        return 1;
    }
    const struct sluice_usage *u = mmap(NULL, sizeof *u, PROT_READ, MAP_SHARED, fd, 0);
    if (u == MAP_FAILED || lseek(fd, 0, SEEK_END) < (off_t)sizeof *u) return 1;
    uint64_t held = u->orphan, credit = 0, exported = 0, imported = 0;
    int slots = 0;
    for (unsigned i = 0; i < SLUICE_USAGE_SLOTS; i++) {
        const struct sluice_usage_slot *s = &u->slots[i];
        held += (s->word & UINT32_MAX) * SLUICE_USAGE_UNIT;
        credit += (s->word >> 32) * SLUICE_USAGE_UNIT;
        exported += s->exported;
        imported += s->imported;
        slots += s->stamp != 0;
    }
    printf("{\"held\":%llu,\"credit\":%llu,\"orphan\":%llu,\"limit\":%llu,\"slots\":%d,\"exported\":%llu,\"imported\":%llu,"
           "\"refused\":%llu,\"refusedByDriver\":%llu,\"unknownVariants\":%llu,\"reaped\":%llu,\"forced\":%llu,\"registeredAgain\":%llu}\n",
           (unsigned long long)held, (unsigned long long)credit, (unsigned long long)u->orphan, (unsigned long long)u->limit,
           slots, (unsigned long long)exported, (unsigned long long)imported, (unsigned long long)u->refused,
           (unsigned long long)u->refused_by_driver, (unsigned long long)u->unknown_variants, (unsigned long long)u->reaped,
           (unsigned long long)u->forced, (unsigned long long)u->registered_again);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A device pointer is the address of a reserved range that the host cannot touch; the first part of it is real once
// something is copied there.
#include "space.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNITS (PAGE_BYTES / BLOCK_BYTES)

// All allocations, sorted by address; guarded by the library's lock.
static struct allocation *table;
static size_t table_count, table_room;

static size_t position(cu_pointer at) {
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].at <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low; // the first that begins behind `at`
}

struct allocation *space_holding(cu_pointer at) {
    size_t index = position(at);
    if (index == 0 || at - table[index - 1].at >= table[index - 1].size) return NULL;
    return &table[index - 1];
}

struct allocation *space_at(cu_pointer at) {
    struct allocation *found = space_holding(at);
    return found != NULL && found->at == at ? found : NULL;
}

int space_add(struct range *range, cu_pointer at, size_t size) {
    if (table_count == table_room) {
        size_t room = table_room == 0 ? 64 : 2 * table_room;
        struct allocation *grown = realloc(table, room * sizeof *grown);
        if (grown == NULL) return 0;
        table = grown;
        table_room = room;
    }
    size_t index = position(at);
    memmove(&table[index + 1], &table[index], (table_count - index) * sizeof *table);
    table[index] = (struct allocation){.at = at, .size = size, .range = range};
    table_count++;
    range->living++;
    return 1;
}

// Addresses begin at a page, as the driver's do.
struct range *space_open(enum space_kind kind, int device, cu_context context, size_t size) {
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL) return NULL;
    void *reserved = mmap(NULL, size + PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        free(range);
        return NULL;
    }
    unsigned char *base = (unsigned char *)round_up((uintptr_t)reserved, PAGE_BYTES);
    *range = (struct range){.kind = kind, .device = device, .context = context, .base = base, .size = size,
                            .reserved = reserved, .reserved_size = size + PAGE_BYTES};
    return range;
}

cu_result space_single(enum space_kind kind, int device, cu_context context, size_t size, struct range **range) {
    *range = space_open(kind, device, context, size);
    if (*range == NULL) return CU_OUT_OF_MEMORY;
    if (space_add(*range, (cu_pointer)(uintptr_t)(*range)->base, size)) return CU_SUCCESS;
    munmap((*range)->reserved, (*range)->reserved_size);
    free(*range);
    return CU_OUT_OF_MEMORY;
}

static void forget_page(struct range *page) {
    for (struct range **link = &page->context->pages; *link != NULL; link = &(*link)->next_page) {
        if (*link != page) continue;
        *link = page->next_page;
        break;
    }
    free(page->units);
}

void space_close(struct core *core, struct range *range) {
    if (range->closing != NULL) range->closing(core, range);
    if (range->units != NULL) forget_page(range);
    if (range->charged > 0) core_refund(core, &core->devices[range->device], range->charged);
    if (range->reserved != NULL) munmap(range->reserved, range->reserved_size);
    free(range);
}

static int unit_taken(const struct range *page, size_t unit) { return page->units[unit / 64] >> unit % 64 & 1; }

static void mark(struct range *page, size_t first, size_t count, int taken) {
    for (size_t unit = first; unit < first + count; unit++) {
        uint64_t bit = 1ull << unit % 64;
        page->free_units += taken ? (size_t)-1 : 1;
        page->units[unit / 64] = taken ? page->units[unit / 64] | bit : page->units[unit / 64] & ~bit;
    }
}

static int find_gap(const struct range *page, size_t count, size_t *first) {
    size_t run = 0;
    for (size_t unit = 0; unit < UNITS; unit++) {
        if (run == 0 && unit % 64 == 0 && page->units[unit / 64] == UINT64_MAX) {
            unit += 63;
            continue;
        }
        run = unit_taken(page, unit) ? 0 : run + 1;
        if (run < count) continue;
        *first = unit + 1 - count;
        return 1;
    }
    return 0;
}

int space_page_take(cu_context context, size_t size, struct range **page, cu_pointer *at) {
    size_t count = size / BLOCK_BYTES, first;
    for (struct range *p = context->pages; p != NULL; p = p->next_page) {
        if (p->free_units < count || !find_gap(p, count, &first)) continue;
        mark(p, first, count, 1);
        *page = p;
        *at = (cu_pointer)(uintptr_t)p->base + first * BLOCK_BYTES;
        return 1;
    }
    return 0;
}

int space_page_new(cu_context context, struct range *page) {
    page->units = calloc(UNITS / 64, sizeof *page->units);
    if (page->units == NULL) return 0;
    page->free_units = UNITS;
    struct range **link = &context->pages;
    while (*link != NULL) link = &(*link)->next_page;
    *link = page;
    return 1;
}

void space_remove(struct core *core, struct allocation *allocation) {
    struct allocation gone = *allocation;
    size_t index = (size_t)(allocation - table);
    memmove(&table[index], &table[index + 1], (table_count - index - 1) * sizeof *table);
    table_count--;
    if (gone.range->units != NULL) {
        size_t first = (gone.at - (cu_pointer)(uintptr_t)gone.range->base) / BLOCK_BYTES;
        mark(gone.range, first, round_up(gone.size, BLOCK_BYTES) / BLOCK_BYTES, 0);
    }
    if (--gone.range->living == 0) space_close(core, gone.range);
}

void core_drop_allocations(struct core *core, cu_context context) {
    for (size_t i = table_count; i-- > 0;) {
        if (i < table_count && table[i].range->context == context) space_remove(core, &table[i]);
    }
}

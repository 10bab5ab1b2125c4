// SPDX-License-Identifier: Apache-2.0
// Device addresses: which ranges there are, what stands behind them, and who holds it.
#ifndef FAKEGPU_CUDA_SPACE_H
#define FAKEGPU_CUDA_SPACE_H

#include "core.h"

#define MIB (1ull << 20)
#define PAGE_BYTES (2 * MIB) // what the driver takes at least for an allocation of its own
#define CHUNK_BYTES (32 * MIB) // by which pools and graph memory grow (measured on an H200)
#define BLOCK_BYTES 512ull     // to which everything is aligned

enum space_kind {
    SPACE_LINEAR,
    SPACE_MANAGED,
    SPACE_POOL,     // of a pool, freed in stream order
    SPACE_GRAPH,    // of a graph's allocation node
    SPACE_IPC,      // another process's, opened
    SPACE_EXTERNAL, // another API's, mapped
    SPACE_MAPPED,   // a physical allocation's, mapped
};

// A range of addresses that came at once: one allocation, or a page that small ones share.
struct range {
    enum space_kind kind;
    int device;
    cu_context context; // goes with it; NULL: with none
    unsigned char *base;
    size_t size;
    void *reserved; // what is given back to the kernel, NULL when others do that
    size_t reserved_size;
    struct range *next_page; // of pages: the context's next
    uint64_t *units;         // of pages: which blocks are taken
    size_t free_units;       // of pages: how many are not
    uint64_t charged;        // refunded when the range closes
    int living;
    int real; // bytes at the start can be touched
    void *owner;
    void (*closing)(struct core *core, struct range *range); // for owners that have to know; may be NULL
};

struct allocation {
    cu_pointer at;
    size_t size;
    struct range *range;
};

static inline size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// The allocation that holds the address, or begins there; NULL for none. Good until the next change.
struct allocation *space_holding(cu_pointer at);
struct allocation *space_at(cu_pointer at);

// Makes a range with addresses of its own; NULL for want of host memory.
struct range *space_open(enum space_kind kind, int device, cu_context context, size_t size);
// Lays an allocation into the range; 0 for want of host memory.
int space_add(struct range *range, cu_pointer at, size_t size);
// Takes it away; the range closes with its last one.
void space_remove(struct core *core, struct allocation *allocation);
void space_close(struct core *core, struct range *range);

// A small block of the context's pages; NULL pointer result when a new page is needed.
int space_page_take(cu_context context, size_t size, struct range **page, cu_pointer *at);
int space_page_new(cu_context context, struct range *page);

// An allocation with a range of its own, not yet charged.
cu_result space_single(enum space_kind kind, int device, cu_context context, size_t size, struct range **range);

#endif

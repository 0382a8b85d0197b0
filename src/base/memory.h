// SPDX-License-Identifier: Apache-2.0
/* Allocation: the one door to malloc, checked size arithmetic, and the arena.
 * Owns the test hooks: failing the n-th allocation, and zones in which allocating is a defect. */
#ifndef FTKI_BASE_MEMORY_H
#define FTKI_BASE_MEMORY_H

#include "base/status.h"

/* Checked arithmetic: false (and *out untouched) on overflow. */
static inline bool ftki_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool ftki_add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Zeroed memory of count * bytes; NULL on overflow or exhaustion. Free with ftki_free. */
void *ftki_alloc(size_t count, size_t bytes);
/* Like realloc; new memory is not zeroed. On failure NULL, the old block stays. */
void *ftki_realloc(void *p, size_t count, size_t bytes);
void ftki_free(void *p);

/* Test hook: the n-th allocation from now (1 = next) fails, those after it succeed again; n = 0
 * switches off. Counts ftki_alloc, ftki_realloc and arena commits of all threads. */
void ftki_alloc_fail_at(uint64_t n);
uint64_t ftki_alloc_count(void); /* allocations so far, all threads */

/* Between enter and leave an allocation by this thread, or by a team it runs meanwhile, aborts
 * debug builds (defect, never input) and is counted in release builds. Nests. Other threads may
 * allocate: one session may open while another decodes. */
void ftki_no_alloc_enter(void);
void ftki_no_alloc_leave(void);
bool ftki_no_alloc_inside(void); /* for threads.c, which takes the zone along to its workers */
uint64_t ftki_no_alloc_violations(void);

/* ARENA: one mapping for one owner, planned first and committed once.
 *   plan:   size_t at = ftki_arena_plan(&a, count, bytes);  (repeat)   offsets are 64-byte aligned
 *   commit: ftki_arena_commit(&a, e)                 one 2 MiB-aligned mapping, huge pages asked
 *   use:    ftki_arena_at(&a, at)
 * Memory is zero and is backed by the system as it is touched. Overflow while planning makes
 * commit fail. A zeroed arena is ready to plan; close a zeroed or closed arena freely. */
typedef struct ftki_arena {
    unsigned char *base; /* 2 MiB aligned, NULL before commit */
    size_t bytes;        /* planned so far */
    void *mapping;       /* what munmap wants */
    size_t mapping_bytes;
    bool overflow;
} ftki_arena;

/* Offset of count * bytes. */
size_t ftki_arena_plan(ftki_arena *a, size_t count, size_t bytes);
ftk_status ftki_arena_commit(ftki_arena *a, ftk_error *e);
/* The same without the wish for huge pages: for memory that is used sparsely. */
ftk_status ftki_arena_commit_small(ftki_arena *a, ftk_error *e);
static inline void *ftki_arena_at(const ftki_arena *a, size_t offset) { return a->base + offset; }
void ftki_arena_close(ftki_arena *a);

#endif

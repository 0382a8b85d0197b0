// SPDX-License-Identifier: Apache-2.0
/* The door to malloc and the arena, with the test hooks behind it. Owns the process-wide
 * allocation counter and the per-thread no-allocation zone. */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_uint_fast64_t allocations; /* so far, failed ones included */
static atomic_uint_fast64_t fail_at;     /* number of the allocation that fails; 0: none */
static atomic_uint_fast64_t violations;
static _Thread_local int32_t zone_depth;

void ftki_alloc_fail_at(uint64_t n) {
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&allocations) + n);
}

uint64_t ftki_alloc_count(void) { return atomic_load(&allocations); }

void ftki_no_alloc_enter(void) { zone_depth++; }
void ftki_no_alloc_leave(void) { zone_depth--; }
bool ftki_no_alloc_inside(void) { return zone_depth > 0; }
uint64_t ftki_no_alloc_violations(void) { return atomic_load(&violations); }

/* Every allocation passes here first: counts it and says whether it may go on. */
static bool admit(void) {
    if (zone_depth > 0) {
        atomic_fetch_add(&violations, 1);
#ifndef NDEBUG
        abort(); /* a defect of ours: the zone promised not to allocate */
#endif
    }
    return atomic_fetch_add(&allocations, 1) + 1 != atomic_load(&fail_at);
}

void *ftki_alloc(size_t count, size_t bytes) {
    if (!admit()) return NULL;
    size_t total;
    if (!ftki_mul_size(count, bytes, &total) || total > PTRDIFF_MAX) return NULL;
    return calloc(1, total > 0 ? total : 1);
}

void *ftki_realloc(void *p, size_t count, size_t bytes) {
    if (!admit()) return NULL;
    size_t total;
    if (!ftki_mul_size(count, bytes, &total) || total > PTRDIFF_MAX) return NULL;
    return realloc(p, total > 0 ? total : 1);
}

void ftki_free(void *p) { free(p); }

/* ------------------------------------------------------------------- arena
 *
 *   mapping (from the system, up to 2 MiB larger)
 *   |<- slack, given back ->| base: 2 MiB aligned ... bytes |<- slack, given back ->|
 */
#define HUGE_PAGE ((size_t)2 << 20)

size_t ftki_arena_plan(ftki_arena *a, size_t count, size_t bytes) {
    size_t at = a->bytes, total, end;
    if (!ftki_mul_size(count, bytes, &total) || !ftki_add_size(at, total, &end) ||
        end > PTRDIFF_MAX - 2 * HUGE_PAGE) {
        a->overflow = true;
        return at;
    }
    a->bytes = (end + 63) & ~(size_t)63;
    return at;
}

static ftk_status commit(ftki_arena *a, bool huge, ftk_error *e) {
    if (a->overflow)
        return ftki_fail(e, FTK_OUT_OF_MEMORY,
                         "the memory plan is larger than the address space; use a smaller context");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t wanted = ((a->bytes > 0 ? a->bytes : 1) + page - 1) & ~(page - 1);
    void *raw = MAP_FAILED;
    if (admit())
        raw = mmap(NULL, wanted + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (raw == MAP_FAILED)
        return ftki_fail(e, FTK_OUT_OF_MEMORY,
                         "%zu bytes of memory could not be had; use a smaller context or model",
                         a->bytes);

    unsigned char *start = raw;
    size_t head = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    size_t tail = HUGE_PAGE - head;
    if (head > 0) munmap(start, head);
    if (tail > 0) munmap(start + head + wanted, tail);
    a->base = start + head;
    a->mapping = a->base;
    a->mapping_bytes = wanted;
    /* Advice only: without huge pages everything works, slower. */
#ifdef MADV_HUGEPAGE
    (void)madvise(a->base, wanted, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
    (void)huge;
#endif
    return FTK_OK;
}

ftk_status ftki_arena_commit(ftki_arena *a, ftk_error *e) { return commit(a, true, e); }
ftk_status ftki_arena_commit_small(ftki_arena *a, ftk_error *e) { return commit(a, false, e); }

void ftki_arena_close(ftki_arena *a) {
    if (a->mapping != NULL) munmap(a->mapping, a->mapping_bytes);
    *a = (ftki_arena){0};
}

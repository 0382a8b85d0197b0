// SPDX-License-Identifier: Apache-2.0
/* The merging loop: see merge.h.
 *
 * Symbols are a linked list in an array; a symbol keeps the key of the pair it starts, so a heap
 * entry (key, symbol) is current exactly when the symbol still has that key. */
#include "text/merge.h"

#include "base/memory.h"

#define NONE UINT32_MAX
#define SCAN_UP_TO 64

ftk_status ftki_merge_reserve(ftki_merge_scratch *scratch, size_t n_symbols, ftk_error *e) {
    if (n_symbols <= scratch->n_symbols) return FTK_OK;
    size_t room = n_symbols < 256 ? 256 : n_symbols;
    ftki_symbol *larger = ftki_realloc(scratch->symbols, room, sizeof *larger);
    if (!larger)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to tokenize a word of %zu symbols",
                         n_symbols);
    scratch->symbols = larger;
    scratch->n_symbols = room;
    return FTK_OK;
}

void ftki_merge_free(ftki_merge_scratch *scratch) {
    ftki_free(scratch->symbols);
    ftki_free(scratch->heap);
    *scratch = (ftki_merge_scratch){0};
}

typedef struct merge_run {
    ftki_symbol *symbols;
    const char *word;
    ftki_pair_fn pair;
    const void *ctx;
} merge_run;

/* Looks up the pair that starts at symbol i. */
static uint32_t refresh(const merge_run *run, uint32_t i) {
    ftki_symbol *left = &run->symbols[i];
    left->key = left->next == NONE ? FTKI_NO_PAIR
                                   : run->pair(run->ctx, run->word, left,
                                               &run->symbols[left->next], &left->joined);
    return left->key;
}

/* Joins symbol i with the one after it and looks up the two pairs that changes. */
static void join(const merge_run *run, uint32_t i) {
    ftki_symbol *left = &run->symbols[i], *right = &run->symbols[left->next];
    left->id = left->joined;
    left->end = right->end;
    left->next = right->next;
    if (right->next != NONE) run->symbols[right->next].prev = i;
    right->key = FTKI_NO_PAIR;
    refresh(run, i);
    if (left->prev != NONE) refresh(run, left->prev);
}

static void merge_by_scanning(const merge_run *run) {
    for (;;) {
        uint32_t best = NONE, best_key = FTKI_NO_PAIR;
        for (uint32_t i = 0; i != NONE; i = run->symbols[i].next)
            if (run->symbols[i].key < best_key) best_key = run->symbols[best = i].key;
        if (best == NONE) return;
        join(run, best);
    }
}

/* A binary min-heap of key << 32 | symbol: equal keys come out leftmost first. */
static void sift_up(uint64_t *heap, size_t i) {
    uint64_t entry = heap[i];
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
    uint64_t entry = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= entry) break;
        heap[i] = heap[child];
    }
    heap[i] = entry;
}

static void push(const merge_run *run, uint64_t *heap, size_t *n, uint32_t i) {
    if (i == NONE || run->symbols[i].key == FTKI_NO_PAIR) return;
    heap[*n] = (uint64_t)run->symbols[i].key << 32 | i;
    sift_up(heap, (*n)++);
}

static void merge_by_heap(const merge_run *run, uint64_t *heap, size_t n_symbols) {
    size_t n = 0;
    for (uint32_t i = 0; i < n_symbols; i++)
        if (run->symbols[i].key != FTKI_NO_PAIR) heap[n++] = (uint64_t)run->symbols[i].key << 32 | i;
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
    while (n > 0) {
        uint32_t key = (uint32_t)(heap[0] >> 32), i = (uint32_t)heap[0];
        heap[0] = heap[--n];
        if (n > 0) sift_down(heap, n, 0);
        if (run->symbols[i].key != key) continue; /* joined or changed since it was pushed */
        join(run, i);
        push(run, heap, &n, i);
        push(run, heap, &n, run->symbols[i].prev);
    }
}

ftk_status ftki_merge(ftki_merge_scratch *scratch, size_t n, const char *word, ftki_pair_fn pair,
                      const void *ctx, ftk_error *e) {
    merge_run run = {scratch->symbols, word, pair, ctx};
    for (size_t i = 0; i < n; i++) {
        run.symbols[i].prev = i == 0 ? NONE : (uint32_t)i - 1;
        run.symbols[i].next = i + 1 == n ? NONE : (uint32_t)i + 1;
    }
    for (size_t i = 0; i < n; i++) refresh(&run, (uint32_t)i);
    if (n <= SCAN_UP_TO) {
        merge_by_scanning(&run);
        return FTK_OK;
    }
    /* Every join removes a symbol and pushes at most two entries. */
    size_t room;
    if (!ftki_mul_size(n, 3, &room)) room = SIZE_MAX;
    if (room > scratch->n_heap) {
        ftki_free(scratch->heap);
        scratch->n_heap = 0;
        scratch->heap = ftki_alloc(room, sizeof *scratch->heap);
        if (!scratch->heap)
            return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to tokenize a word of %zu symbols",
                             n);
        scratch->n_heap = room;
    }
    merge_by_heap(&run, scratch->heap, n);
    return FTK_OK;
}

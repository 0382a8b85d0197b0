// SPDX-License-Identifier: Apache-2.0
/* Paged KV cache. Each (layer, KV head) has its own list of pages of 32 entries, so that layers
 * and heads may hold different positions and a different number of them. Entries are ordered by
 * position. Pages come from one reserve planned when the session opens: address space is taken
 * for the whole context, memory only as pages are touched. Nothing is allocated after open.
 * An entry may stand for several tokens: its page then has a row of biases, log(size), that
 * attention adds to the scores.
 * Owns pages, lists, position ids and biases; attention itself is in src/kernels. */
#ifndef FTKI_KV_H
#define FTKI_KV_H

#include "base/memory.h"
#include "base/cursor.h"
#include "base/mapfile.h"
#include "kernels/kernels.h"

typedef struct ftki_kv_list {
    unsigned char **pages; /* [max_pages], the first n_pages are held */
    const float **biases;  /* [max_pages] per page [32], NULL: every entry stands for one token */
    int32_t n_biased;      /* pages that have biases */
    int32_t n_pages;
    int32_t n_entries;
} ftki_kv_list;

typedef struct ftki_kv {
    ftki_kv_format format;
    int32_t n_layers, n_kv_heads, head_dim;
    int32_t max_pages;        /* per list: context / 32 rounded up */
    size_t page_bytes;
    ftki_kv_list *lists;      /* [n_layers][n_kv_heads] */
    ftki_arena arena;         /* pages; committed apart from `index`, with huge pages */
    ftki_arena index;         /* lists, their page tables, the free stack, biases */
    float *bias;              /* [n_reserved][32], page i of the reserve; touched only where used */
    unsigned char **free_pages; /* [n_free] pages given back, last in first out */
    size_t n_free;
    size_t n_fresh;           /* pages of the reserve never used lie behind the first n_fresh */
    size_t n_reserved;
    size_t n_used, n_peak;    /* pages */
} ftki_kv;

/* Bytes ftki_kv_open reserves, 0 on overflow. */
size_t ftki_kv_plan_bytes(ftki_kv_format format, int32_t n_layers, int32_t n_kv_heads,
                          int32_t head_dim, int32_t context);
ftk_status ftki_kv_open(ftki_kv *out, ftki_kv_format format, int32_t n_layers, int32_t n_kv_heads,
                        int32_t head_dim, int32_t context, ftk_error *e);
void ftki_kv_close(ftki_kv *kv); /* zeroed or closed: fine */

static inline ftki_kv_list *ftki_kv_at(const ftki_kv *kv, int32_t layer, int32_t head) {
    return &kv->lists[(size_t)layer * (size_t)kv->n_kv_heads + (size_t)head];
}

/* Appends n entries to every head of the layer: takes pages and writes position ids `positions` [n],
 * ascending (NULL: first_position, first_position + 1, ...), and biases log_sizes [n] (NULL: zeros).
 * The codes are written by the caller's threads with kernels->kv_write at the slots. Positions must
 * lie after those held (FTK_INVALID_ARGUMENT). FTK_CONTEXT_FULL when a list would outgrow the
 * context. On failure nothing changed. */
ftk_status ftki_kv_append_at(ftki_kv *kv, int32_t layer, int32_t n, const int32_t *positions,
                             int32_t first_position, const float *log_sizes, ftk_error *e);
static inline ftk_status ftki_kv_append(ftki_kv *kv, int32_t layer, int32_t n, int32_t first_position,
                                        ftk_error *e) {
    return ftki_kv_append_at(kv, layer, n, NULL, first_position, NULL, e);
}
/* Bias of one entry: 0 unless it was merged. Setting takes no memory. */
float ftki_kv_bias(const ftki_kv_list *l, int32_t entry);
void ftki_kv_set_bias(ftki_kv *kv, ftki_kv_list *l, int32_t entry, float log_size);
/* What ftki_attn.bias wants for the list. */
static inline const float *const *ftki_kv_biases(const ftki_kv_list *l) {
    return l->n_biased > 0 ? (const float *const *)l->biases : NULL;
}
/* Page and slot of entry `entry` of a list. */
static inline unsigned char *ftki_kv_page(const ftki_kv_list *l, int32_t entry) {
    return l->pages[entry / FTKI_PAGE];
}
static inline int32_t *ftki_kv_positions(unsigned char *page) { return (int32_t *)(void *)page; }
static inline int32_t ftki_kv_position(const ftki_kv_list *l, int32_t entry) {
    return ftki_kv_positions(ftki_kv_page(l, entry))[entry % FTKI_PAGE];
}
/* Entries of the list whose position is below `position`: they are the first ones. */
int32_t ftki_kv_entries_before(const ftki_kv_list *l, int32_t position);

/* Drops, in every list, the entries whose position is >= position; whole pages go back. */
void ftki_kv_rewind(ftki_kv *kv, int32_t position);

/* Keeps entries [0, first) and, of those from `first` on, entries [n], indices strictly ascending in
 * [first, n_entries): codes and biases move together without quantising again. Different lists may
 * then hold different positions and counts. In two steps: `move` may run for different lists in
 * different threads, `shrink` gives the pages no longer needed back and may not. `keep` is both.
 * FTK_INVALID_ARGUMENT for other indices, nothing changed. */
ftk_status ftki_kv_move(ftki_kv *kv, int32_t layer, int32_t head, int32_t first, const int32_t *entries,
                        int32_t n, ftk_error *e);
void ftki_kv_shrink(ftki_kv *kv, int32_t layer, int32_t head, int32_t n_entries);
ftk_status ftki_kv_keep(ftki_kv *kv, int32_t layer, int32_t head, const int32_t *entries, int32_t n,
                        ftk_error *e);

/* Gives back pages [first, first + n) of a list, all of them full: later entries move down by 32 n. */
void ftki_kv_drop_pages(ftki_kv *kv, int32_t layer, int32_t head, int32_t first, int32_t n);

uint64_t ftki_kv_bytes(const ftki_kv *kv);      /* pages in use */
uint64_t ftki_kv_peak_bytes(const ftki_kv *kv);

/* SNAPSHOT BODY, little-endian, independent of the page layout:
 *   u32 version = 1, format (0 INT8, 1 F16, 2 F32), n_layers, n_kv_heads, head_dim
 *   for each layer and head: u32 n_entries, then that many entries, each
 *     i32 position               0 <= position < `end`, strictly ascending within the list
 *     INT8: f32 k_scale >= 0, v_log within -126..126; i8 k [dim] as they lie in pages, that is
 *           rotated, v [head_dim]; none -128
 *     F16, F32: k [head_dim], v [head_dim], finite
 * Only what is held is written. Integrity (checksum, fingerprint) is the caller's frame. Loading
 * checks everything before anything is replaced: on failure *kv is as it was. A body of another
 * shape, or with more entries than the context holds, is FTK_MISMATCH; damage is FTK_FORMAT with
 * the byte. */
ftk_status ftki_kv_save(const ftki_kv *kv, ftki_writer *w, ftk_error *e);
ftk_status ftki_kv_load(ftki_kv *kv, ftki_cursor *c, int32_t end, ftk_error *e);

/* For the snapshot: gives all pages of all lists back, and takes pages for n entries of an empty
 * list, which the caller knows to fit. */
void ftki_kv_clear(ftki_kv *kv);
void ftki_kv_take(ftki_kv *kv, ftki_kv_list *l, int32_t n);

#endif

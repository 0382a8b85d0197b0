// SPDX-License-Identifier: Apache-2.0
/* The paged cache: its reserve, lists, and what changes them. Pages are handed out from the start
 * of the reserve, and given back ones first, so memory touched stays dense. Owns no maths: codes
 * are written by the kernels, moved by kv_layout. The snapshot is in snapshot.c. */
#include "kv/kv.h"

#include <limits.h>
#include <string.h>

#include "kernels/kv_layout.h"

static int32_t pages_for(int32_t entries) { return (entries + FTKI_PAGE - 1) / FTKI_PAGE; }
static size_t n_lists(const ftki_kv *kv) { return (size_t)kv->n_layers * (size_t)kv->n_kv_heads; }

/* ---------------------------------------------------------------- the plan */

typedef struct plan {
    size_t lists, page_tables, bias_tables, free_pages, bias;
} plan;

/* Lays both arenas out. They carry an overflow into commit. */
static plan lay_out(ftki_kv *kv) {
    size_t lists = n_lists(kv), pages = 0;
    if (!ftki_mul_size(lists, (size_t)kv->max_pages, &pages)) kv->index.overflow = true;
    kv->n_reserved = pages;
    (void)ftki_arena_plan(&kv->arena, pages, kv->page_bytes);
    return (plan){
        .lists = ftki_arena_plan(&kv->index, lists, sizeof(ftki_kv_list)),
        .page_tables = ftki_arena_plan(&kv->index, pages, sizeof(unsigned char *)),
        .bias_tables = ftki_arena_plan(&kv->index, pages, sizeof(float *)),
        .free_pages = ftki_arena_plan(&kv->index, pages, sizeof(unsigned char *)),
        .bias = ftki_arena_plan(&kv->index, pages, FTKI_PAGE * sizeof(float)),
    };
}

static ftki_kv shape(ftki_kv_format format, int32_t n_layers, int32_t n_kv_heads, int32_t head_dim,
                     int32_t context) {
    return (ftki_kv){.format = format, .n_layers = n_layers, .n_kv_heads = n_kv_heads,
                     .head_dim = head_dim, .max_pages = context / FTKI_PAGE + (context % FTKI_PAGE != 0),
                     .page_bytes = ftki_kv_page_bytes(format, head_dim)};
}

size_t ftki_kv_plan_bytes(ftki_kv_format format, int32_t n_layers, int32_t n_kv_heads,
                          int32_t head_dim, int32_t context) {
    ftki_kv kv = shape(format, n_layers, n_kv_heads, head_dim, context);
    (void)lay_out(&kv);
    size_t bytes = 0;
    if (kv.arena.overflow || kv.index.overflow) return 0;
    return ftki_add_size(kv.arena.bytes, kv.index.bytes, &bytes) ? bytes : 0;
}

ftk_status ftki_kv_open(ftki_kv *out, ftki_kv_format format, int32_t n_layers, int32_t n_kv_heads,
                        int32_t head_dim, int32_t context, ftk_error *e) {
    if (n_layers < 1 || n_kv_heads < 1 || head_dim < 1 || head_dim > FTKI_MAX_HEAD_DIM || context < 1 ||
        context > INT32_MAX - FTKI_PAGE)
        return ftki_fail(e, FTK_INVALID_ARGUMENT,
                         "KV cache of %d layers, %d heads of size %d, context %d: out of range",
                         n_layers, n_kv_heads, head_dim, context);
    ftki_kv kv = shape(format, n_layers, n_kv_heads, head_dim, context);
    plan at = lay_out(&kv);
    ftk_status status = ftki_arena_commit(&kv.arena, e);
    if (status == FTK_OK) status = ftki_arena_commit_small(&kv.index, e);
    if (status != FTK_OK) {
        ftki_kv_close(&kv);
        return status;
    }
    kv.lists = ftki_arena_at(&kv.index, at.lists);
    kv.free_pages = ftki_arena_at(&kv.index, at.free_pages);
    unsigned char **tables = ftki_arena_at(&kv.index, at.page_tables);
    const float **biases = ftki_arena_at(&kv.index, at.bias_tables);
    for (size_t i = 0; i < n_lists(&kv); i++) {
        kv.lists[i].pages = tables + i * (size_t)kv.max_pages;
        kv.lists[i].biases = biases + i * (size_t)kv.max_pages;
    }
    kv.bias = ftki_arena_at(&kv.index, at.bias);
    *out = kv;
    return FTK_OK;
}

void ftki_kv_close(ftki_kv *kv) {
    ftki_arena_close(&kv->arena);
    ftki_arena_close(&kv->index);
    memset(kv, 0, sizeof *kv);
}

/* ---------------------------------------------------------- pages in and out */

/* The reserve holds max_pages for every list, so a list within its limit always finds one. */
static unsigned char *take_page(ftki_kv *kv) {
    kv->n_used++;
    if (kv->n_used > kv->n_peak) kv->n_peak = kv->n_used;
    if (kv->n_free > 0) return kv->free_pages[--kv->n_free];
    return (unsigned char *)ftki_arena_at(&kv->arena, kv->page_bytes * kv->n_fresh++);
}

static void give_back(ftki_kv *kv, ftki_kv_list *l, int32_t page) {
    kv->free_pages[kv->n_free++] = l->pages[page];
    kv->n_used--;
    l->n_biased -= l->biases[page] != NULL;
    l->biases[page] = NULL;
}

static void shrink(ftki_kv *kv, ftki_kv_list *l, int32_t n_entries) {
    l->n_entries = n_entries;
    while (l->n_pages > pages_for(n_entries)) give_back(kv, l, --l->n_pages);
}

void ftki_kv_take(ftki_kv *kv, ftki_kv_list *l, int32_t n) {
    l->n_entries += n;
    while (l->n_pages < pages_for(l->n_entries)) l->pages[l->n_pages++] = take_page(kv);
}

void ftki_kv_clear(ftki_kv *kv) {
    for (size_t i = n_lists(kv); i > 0; i--) shrink(kv, &kv->lists[i - 1], 0);
}

/* ------------------------------------------------------------------- biases */

float ftki_kv_bias(const ftki_kv_list *l, int32_t entry) {
    const float *row = l->biases[entry / FTKI_PAGE];
    return row ? row[entry % FTKI_PAGE] : 0.0f;
}

void ftki_kv_set_bias(ftki_kv *kv, ftki_kv_list *l, int32_t entry, float log_size) {
    int32_t page = entry / FTKI_PAGE;
    size_t index = (size_t)(l->pages[page] - kv->arena.base) / kv->page_bytes;
    float *row = kv->bias + index * FTKI_PAGE;
    if (!l->biases[page]) {
        if (log_size == 0.0f) return;
        memset(row, 0, FTKI_PAGE * sizeof *row);
        l->biases[page] = row;
        l->n_biased++;
    }
    row[entry % FTKI_PAGE] = log_size;
}

/* -------------------------------------------------------- entries in and out */

ftk_status ftki_kv_append_at(ftki_kv *kv, int32_t layer, int32_t n, const int32_t *positions,
                             int32_t first_position, const float *log_sizes, ftk_error *e) {
    if (positions && n > 0) first_position = positions[0];
    if (n < 0 || first_position < 0 || n > INT32_MAX - first_position)
        return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, layer,
                               "cannot append %d entries at position %d", n, first_position);
    for (int32_t i = 1; positions && i < n; i++)
        if (positions[i] <= positions[i - 1])
            return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, layer, "position %d cannot follow position %d",
                                   positions[i], positions[i - 1]);
    for (int32_t head = 0; head < kv->n_kv_heads; head++) {
        const ftki_kv_list *l = ftki_kv_at(kv, layer, head);
        if (n > kv->max_pages * FTKI_PAGE - l->n_entries)
            return ftki_fail_layer(e, FTK_CONTEXT_FULL, layer,
                                   "the cache holds %d of %d entries, %d more do not fit",
                                   l->n_entries, kv->max_pages * FTKI_PAGE, n);
        if (l->n_entries > 0 && ftki_kv_position(l, l->n_entries - 1) >= first_position)
            return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, layer,
                                   "position %d does not lie after position %d, the last one held",
                                   first_position, ftki_kv_position(l, l->n_entries - 1));
    }
    for (int32_t head = 0; head < kv->n_kv_heads; head++) {
        ftki_kv_list *l = ftki_kv_at(kv, layer, head);
        int32_t first = l->n_entries;
        ftki_kv_take(kv, l, n);
        for (int32_t i = 0; i < n; i++) {
            int32_t at = first + i;
            ftki_kv_positions(ftki_kv_page(l, at))[at % FTKI_PAGE] = positions ? positions[i] : first_position + i;
            if (log_sizes || l->biases[at / FTKI_PAGE])
                ftki_kv_set_bias(kv, l, at, log_sizes ? log_sizes[i] : 0.0f);
        }
    }
    return FTK_OK;
}

int32_t ftki_kv_entries_before(const ftki_kv_list *l, int32_t position) {
    int32_t low = 0, high = l->n_entries;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (ftki_kv_position(l, middle) < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Backwards, so that the pages given back last, and taken again first, are the earliest. */
void ftki_kv_rewind(ftki_kv *kv, int32_t position) {
    for (size_t i = n_lists(kv); i > 0; i--)
        shrink(kv, &kv->lists[i - 1], ftki_kv_entries_before(&kv->lists[i - 1], position));
}

ftk_status ftki_kv_move(ftki_kv *kv, int32_t layer, int32_t head, int32_t first, const int32_t *entries,
                        int32_t n, ftk_error *e) {
    ftki_kv_list *l = ftki_kv_at(kv, layer, head);
    if (first < 0 || first > l->n_entries || n < 0 || n > l->n_entries - first)
        return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, layer, "cannot keep %d of the entries from %d to %d", n,
                               first, l->n_entries);
    for (int32_t i = 0; i < n; i++)
        if (entries[i] >= l->n_entries || entries[i] < (i > 0 ? entries[i - 1] + 1 : first))
            return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, layer,
                                   "entry %d to keep, number %d of the list, is out of range or order",
                                   entries[i], i);
    for (int32_t i = 0; i < n; i++) {
        int32_t to = first + i;
        if (entries[i] == to) continue;
        ftki_kv_copy_entry(kv->format, kv->head_dim, ftki_kv_page(l, to), to % FTKI_PAGE,
                           ftki_kv_page(l, entries[i]), entries[i] % FTKI_PAGE);
        if (l->n_biased > 0) ftki_kv_set_bias(kv, l, to, ftki_kv_bias(l, entries[i]));
    }
    return FTK_OK;
}

void ftki_kv_shrink(ftki_kv *kv, int32_t layer, int32_t head, int32_t n_entries) {
    shrink(kv, ftki_kv_at(kv, layer, head), n_entries);
}

ftk_status ftki_kv_keep(ftki_kv *kv, int32_t layer, int32_t head, const int32_t *entries, int32_t n,
                        ftk_error *e) {
    FTKI_TRY(ftki_kv_move(kv, layer, head, 0, entries, n, e));
    ftki_kv_shrink(kv, layer, head, n);
    return FTK_OK;
}

void ftki_kv_drop_pages(ftki_kv *kv, int32_t layer, int32_t head, int32_t first, int32_t n) {
    ftki_kv_list *l = ftki_kv_at(kv, layer, head);
    for (int32_t i = first; i < first + n; i++) give_back(kv, l, i);
    size_t behind = (size_t)(l->n_pages - first - n);
    memmove(l->pages + first, l->pages + first + n, behind * sizeof *l->pages);
    memmove(l->biases + first, l->biases + first + n, behind * sizeof *l->biases);
    l->n_pages -= n;
    l->n_entries -= n * FTKI_PAGE;
    memset(l->biases + l->n_pages, 0, (size_t)n * sizeof *l->biases);
}

uint64_t ftki_kv_bytes(const ftki_kv *kv) { return (uint64_t)kv->n_used * kv->page_bytes; }
uint64_t ftki_kv_peak_bytes(const ftki_kv *kv) { return (uint64_t)kv->n_peak * kv->page_bytes; }

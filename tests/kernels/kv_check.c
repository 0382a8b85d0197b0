// SPDX-License-Identifier: Apache-2.0
/* The checks of writing and reading cache entries and of value norms. A write touches its slot
 * only; what is read back differs from what was written by no more than half a step. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "format/quants.h"
#include "kernels/harness.h"
#include "kernels/kv_layout.h"

static const int32_t head_dims[] = {1, 8, 16, 33, 48, 64, 80, 96, 128, 256, 512};
enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

static double cleaned(float x, double largest) {
    return isnan(x) ? 0 : fmin(fmax((double)x, -largest), largest);
}

/* The rotation as a matrix: element i, j of a piece of n is +-1 / sqrt(n), minus where i & j has an
 * odd number of bits. */
static void rotate(const double *x, int32_t dim, double *y) {
    for (int32_t at = 0; at < dim;) {
        int32_t n = 1;
        while (2 * n <= dim - at) n *= 2;
        for (int32_t i = 0; i < n; i++) {
            y[at + i] = 0;
            for (int32_t j = 0; j < n; j++)
                y[at + i] += (__builtin_popcount((unsigned)(i & j)) % 2 ? -x[at + j] : x[at + j]) / sqrt(n);
        }
        at += n;
    }
}

typedef struct entry {
    ftki_kv_format format;
    int32_t head_dim, dim, slot;
    float *key, *value;
    unsigned char *page;
    char where[80];
} entry;

static entry open_entry(ht *t, int32_t round) {
    entry e = {.format = (ftki_kv_format)(round % 3), .head_dim = head_dims[ht_below(t, N_HEAD_DIMS)],
               .slot = ht_below(t, FTKI_PAGE)};
    ht_pattern p = (ht_pattern)(round / 3 % HT_N_PATTERNS);
    e.dim = ftki_kv_dim(e.head_dim);
    e.key = ht_alloc(t, (size_t)e.head_dim * 4, 4);
    e.value = ht_alloc(t, (size_t)e.head_dim * 4, 4);
    ht_floats(t, e.key, (size_t)e.head_dim, p);
    ht_floats(t, e.value, (size_t)e.head_dim, p);
    e.page = ht_alloc(t, ftki_kv_page_bytes(e.format, e.head_dim), FTKI_ALIGN);
    snprintf(e.where, sizeof e.where, "%s, format %d, head_dim %d, slot %d", ht_pattern_name(p),
             (int)e.format, e.head_dim, e.slot);
    return e;
}

/* The codes of an INT8 entry, each within half a step of x [dim], none beyond 127. */
static void check_codes(ht *t, const int8_t *codes, const double *x, int32_t dim, double scale, const char *where) {
    double largest = 0;
    for (int32_t d = 0; d < dim; d++) largest = fmax(largest, fabs(x[d]));
    if (largest > 1e37) return; /* the rotation may overflow */
    if (largest < 0x1p-99) largest = scale > 0 ? largest : 0;
    ht_near(t, scale, largest / 127, largest * 1e-5, where);
    for (int32_t d = 0; d < dim; d++) {
        if (scale == 0) ht_near(t, codes[d], 0, 0, where);
        else ht_near(t, codes[d], x[d] / scale, 0.5 + 1e-3, where);
        if (codes[d] == -128) ht_fail(t, "%s: a code of -128", where);
    }
}

static void check_int8(ht *t, const entry *e) {
    double x[FTKI_MAX_HEAD_DIM] = {0}, y[FTKI_MAX_HEAD_DIM];
    int8_t k[FTKI_MAX_HEAD_DIM], v[FTKI_MAX_HEAD_DIM];
    const int8_t *codes = (const int8_t *)e->page;
    int32_t sum = 0;
    for (int32_t d = 0; d < e->dim; d++) {
        k[d] = codes[ftki_kv_k_offset(e->format) + ftki_k_code(e->dim, e->slot, d)];
        v[d] = codes[ftki_kv_v_offset(e->format, e->head_dim) + ftki_v_code(e->slot, d)];
        sum += k[d];
    }
    for (int32_t d = 0; d < e->head_dim; d++) x[d] = cleaned(e->key[d], (double)FLT_MAX);
    rotate(x, e->dim, y);
    check_codes(t, k, y, e->dim, (double)ftki_page_k_scale(e->page)[e->slot], e->where);
    ht_near(t, ftki_page_k_start(e->page)[e->slot], -128.0 * sum, 0, e->where);
    for (int32_t d = 0; d < e->head_dim; d++) x[d] = cleaned(e->value[d], (double)FLT_MAX);
    bool zeros = true;
    for (int32_t d = 0; d < e->dim; d++) zeros &= v[d] == 0;
    double v_log = (double)ftki_page_v_log(e->page)[e->slot];
    if (zeros) ht_near(t, v_log, -30, 0, e->where);
    check_codes(t, v, x, e->dim, zeros ? 0 : exp2(v_log), e->where);
}

static void check_floats(ht *t, const entry *e) {
    double largest = e->format == FTKI_KV_F16 ? 65504 : (double)FLT_MAX;
    for (int32_t d = 0; d < e->dim; d++) {
        size_t at[2] = {(size_t)(d * FTKI_PAGE + e->slot), (size_t)(e->slot * e->dim + d)};
        for (int i = 0; i < 2; i++) {
            const unsigned char *data = e->page + (i ? ftki_kv_v_offset(e->format, e->head_dim) : ftki_kv_k_offset(e->format));
            double want = d < e->head_dim ? cleaned((i ? e->value : e->key)[d], largest) : 0;
            double got = e->format == FTKI_KV_F32 ? (double)((const float *)(const void *)data)[at[i]]
                                                  : (double)ftki_f16_to_f32(((const uint16_t *)(const void *)data)[at[i]]);
            ht_near(t, got, want, e->format == FTKI_KV_F32 ? 0 : fabs(want) * 0x1p-11 + 0x1p-25, e->where);
        }
    }
}

/* Bytes of the page that belong to another slot keep what they were. */
static void check_others(ht *t, const entry *e, const unsigned char *before) {
    size_t bytes = ftki_kv_page_bytes(e->format, e->head_dim), element = ftki_kv_element_bytes(e->format);
    unsigned char *mine = ht_alloc(t, bytes, 1);
    memset(mine, 0, bytes);
    for (int32_t piece = 0; piece < 4; piece++)
        if (e->format == FTKI_KV_INT8 && piece > 0) memset(mine + piece * 128 + 4 * e->slot, 1, 4);
    for (int32_t d = 0; d < e->dim; d++) {
        size_t k = e->format == FTKI_KV_INT8 ? ftki_k_code(e->dim, e->slot, d) : (size_t)(d * FTKI_PAGE + e->slot);
        size_t v = e->format == FTKI_KV_INT8 ? ftki_v_code(e->slot, d) : (size_t)(e->slot * e->dim + d);
        memset(mine + ftki_kv_k_offset(e->format) + k * element, 1, element);
        memset(mine + ftki_kv_v_offset(e->format, e->head_dim) + v * element, 1, element);
    }
    for (size_t i = 0; i < bytes; i++)
        if (!mine[i] && e->page[i] != before[i]) {
            ht_fail(t, "%s: wrote byte %zu of the page, which is another slot's", e->where, i);
            return;
        }
}

void check_kv_write(ht *t) {
    if (t->bench) {
        entry e = open_entry(t, 0);
        float *x = ht_alloc(t, 256, 4);
        ht_floats(t, x, 64, HT_PLAIN);
        unsigned char *page = ht_alloc(t, ftki_kv_page_bytes(FTKI_KV_INT8, 64), FTKI_ALIGN);
        HT_BENCH(t, "kv_write INT8 64", 0, 512, t->table->kv_write(FTKI_KV_INT8, 64, page, e.slot, x, x));
        return;
    }
    for (int round = 0; round < 90 && !t->failures; round++) {
        entry e = open_entry(t, round);
        size_t bytes = ftki_kv_page_bytes(e.format, e.head_dim);
        unsigned char *want = ht_alloc(t, bytes, FTKI_ALIGN), *before = ht_alloc(t, bytes, FTKI_ALIGN);
        t->table->kv_write(e.format, e.head_dim, e.page, e.slot, e.key, e.value);
        t->scalar->kv_write(e.format, e.head_dim, want, e.slot, e.key, e.value);
        ht_same_bytes(t, e.page, want, bytes, e.where);
        check_others(t, &e, before);
        if (e.format == FTKI_KV_INT8) check_int8(t, &e);
        else check_floats(t, &e);
        ht_release(t);
    }
}

void check_kv_read(ht *t) {
    if (t->bench) return;
    for (int round = 0; round < 90 && !t->failures; round++) {
        entry e = open_entry(t, round);
        ftki_kv_write_scalar(e.format, e.head_dim, e.page, e.slot, e.key, e.value);
        float *got[2], *want[2];
        for (int i = 0; i < 2; i++) {
            got[i] = ht_alloc(t, (size_t)e.head_dim * 4, 4);
            want[i] = ht_alloc(t, (size_t)e.head_dim * 4, 4);
        }
        if (ht_below(t, 2)) {
            t->table->kv_read(e.format, e.head_dim, e.page, e.slot, got[0], got[1]);
        } else {
            t->table->kv_read(e.format, e.head_dim, e.page, e.slot, NULL, got[1]);
            t->table->kv_read(e.format, e.head_dim, e.page, e.slot, got[0], NULL);
        }
        t->scalar->kv_read(e.format, e.head_dim, e.page, e.slot, want[0], want[1]);
        double x[2][FTKI_MAX_HEAD_DIM], step = 0, largest = e.format == FTKI_KV_F16 ? 65504 : (double)FLT_MAX;
        if (e.format == FTKI_KV_INT8) step = (double)ftki_page_k_scale(e.page)[e.slot];
        for (int i = 0; i < 2; i++) {
            ht_same(t, got[i], want[i], (size_t)e.head_dim, e.where);
            double size = 0;
            for (int32_t d = 0; d < e.head_dim; d++) {
                x[i][d] = cleaned((i ? e.value : e.key)[d], largest);
                size = fmax(size, fabs(x[i][d]));
            }
            if (size > 1e36) continue;
            if (e.format == FTKI_KV_INT8 && i == 1) step = size / 127;
            for (int32_t d = 0; d < e.head_dim; d++) {
                /* A rotated key's elements are each half a step off at most, so together sqrt(dim). */
                double bound = e.format == FTKI_KV_F32 ? 0
                               : e.format == FTKI_KV_F16 ? fabs(x[i][d]) * 0x1p-11 + 0x1p-25
                               : step * (i ? 0.501 : 0.5 * sqrt(e.dim)) + size * 1e-5 + 0x1p-99;
                ht_near(t, (double)got[i][d], x[i][d], bound, e.where);
            }
        }
        ht_release(t);
    }
}

void check_value_norms(ht *t) {
    if (t->bench) return;
    for (int round = 0; round < 40 && !t->failures; round++) {
        ftki_kv_format format = (ftki_kv_format)(round % 3);
        int32_t head_dim = head_dims[ht_below(t, N_HEAD_DIMS)], n = 1 + ht_below(t, 70), n_pages = (n + 31) / 32;
        size_t bytes = ftki_kv_page_bytes(format, head_dim);
        const unsigned char **pages = ht_alloc(t, (size_t)n_pages * sizeof *pages, sizeof *pages);
        float *x = ht_alloc(t, (size_t)head_dim * 4, 4), *got = ht_alloc(t, (size_t)n * 4, 4);
        float *want = ht_alloc(t, (size_t)n * 4, 4);
        double norm[96];
        for (int32_t p = 0; p < n_pages; p++) pages[p] = memset(ht_alloc(t, bytes, FTKI_ALIGN), 0, bytes);
        for (int32_t e = 0; e < n; e++) {
            ht_floats(t, x, (size_t)head_dim, e % 5 == 4 ? HT_ZEROS : HT_SPIKES);
            ftki_kv_write_scalar(format, head_dim, (unsigned char *)(uintptr_t)pages[e / 32], e % 32, x, x);
            norm[e] = 0;
            for (int32_t d = 0; d < head_dim; d++) norm[e] += (double)x[d] * (double)x[d];
            norm[e] = sqrt(norm[e]);
        }
        t->table->value_norms(format, head_dim, pages, n, got);
        t->scalar->value_norms(format, head_dim, pages, n, want);
        char where[64];
        snprintf(where, sizeof where, "format %d, head_dim %d, %d entries", (int)format, head_dim, n);
        ht_same(t, got, want, (size_t)n, where);
        for (int32_t e = 0; e < n; e++)
            ht_near(t, (double)got[e], norm[e],
                    format == FTKI_KV_INT8  ? norm[e] * 0.05
                    : format == FTKI_KV_F16 ? norm[e] * 1e-3 + 0x1p-25 * head_dim
                                            : norm[e] * 1e-6, where);
        ht_release(t);
    }
}

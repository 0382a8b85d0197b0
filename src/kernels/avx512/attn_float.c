// SPDX-License-Identifier: Apache-2.0
/* Attention over F16 and F32 pages: 16 keys per vector for the scores, 16 value dimensions per
 * vector for the output, up to MANY rows together so that each load serves them all. */
#include "kernels/avx512/attn.h"

#include "kernels/avx512/exp.h"
#include "kernels/avx512/lanes.h"
#include "kernels/kv_layout.h"

enum { MANY = 4 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

typedef struct rows_of {
    int32_t dim;
    bool half;            /* F16 pages */
    const float *q[MANY]; /* [dim] */
    int32_t begin[MANY], end[MANY];
    float *out[MANY];     /* [dim] */
    float max[MANY], sum[MANY];
} rows_of;

/* 16 numbers from element i of k or v. */
ALWAYS_INLINE __m512 load16(const bool half, const unsigned char *data, size_t i) {
    if (half) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(data + 2 * i)));
    return _mm512_loadu_ps((const float *)(const void *)data + i);
}

/* s of all rows: products over d ascending, then the bias. */
ALWAYS_INLINE void score_rows(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *page, const float *bias, __m512 (*s)[2]) {
    const unsigned char *k = page + FTKI_PAGE_FLOATS;
    UNROLL for (int32_t r = 0; r < rows; r++) s[r][0] = s[r][1] = _mm512_setzero_ps();
    for (int32_t d = 0; d < w->dim; d++) {
        __m512 k0 = load16(half, k, (size_t)d * FTKI_PAGE), k1 = load16(half, k, (size_t)d * FTKI_PAGE + 16);
        UNROLL for (int32_t r = 0; r < rows; r++) {
            __m512 q = _mm512_set1_ps(w->q[r][d]);
            s[r][0] = _mm512_fmadd_ps(q, k0, s[r][0]);
            s[r][1] = _mm512_fmadd_ps(q, k1, s[r][1]);
        }
    }
    if (!bias) return;
    const __m512 unit = _mm512_set1_ps(FTKI_LOG2E);
    UNROLL for (int32_t r = 0; r < rows; r++) {
        s[r][0] = _mm512_add_ps(s[r][0], _mm512_mul_ps(_mm512_loadu_ps(bias), unit));
        s[r][1] = _mm512_add_ps(s[r][1], _mm512_mul_ps(_mm512_loadu_ps(bias + 16), unit));
    }
}

static void grow(rows_of *w, int32_t r, float top) {
    float factor = ftki_attn_rescale(w->max[r], top);
    __m512 by = _mm512_set1_ps(factor);
    for (int32_t d = 0; d < w->dim; d += 16)
        _mm512_storeu_ps(w->out[r] + d, _mm512_mul_ps(_mm512_loadu_ps(w->out[r] + d), by));
    w->sum[r] *= factor;
    w->max[r] = top;
}

/* The softmax of one row and page; its weights to p [32]. */
ALWAYS_INLINE void weigh_row(rows_of *w, int32_t r, const __m512 *s, uint32_t seen, float *p) {
    const __m512 nothing = _mm512_set1_ps(-INFINITY);
    __m512 s0 = _mm512_mask_mov_ps(nothing, (__mmask16)seen, s[0]);
    __m512 s1 = _mm512_mask_mov_ps(nothing, (__mmask16)(seen >> 16), s[1]);
    float top = max16_avx512(_mm512_max_ps(s0, s1));
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    __m512 max = _mm512_set1_ps(w->max[r]);
    __m512 p0 = exp2_avx512(_mm512_sub_ps(s0, max)), p1 = exp2_avx512(_mm512_sub_ps(s1, max));
    w->sum[r] += sum16_avx512(_mm512_add_ps(p0, p1));
    _mm512_store_ps(p, p0);
    _mm512_store_ps(p + 16, p1);
}

/* out += p v for n_vectors x 16 dims from d, entries ascending. */
ALWAYS_INLINE void add_values(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *v, float (*p)[FTKI_PAGE], int32_t d,
                              const int32_t n_vectors) {
    __m512 out[MANY][4];
    UNROLL for (int32_t r = 0; r < rows; r++)
        UNROLL for (int32_t i = 0; i < n_vectors; i++) out[r][i] = _mm512_loadu_ps(w->out[r] + d + 16 * i);
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        __m512 values[4];
        UNROLL for (int32_t i = 0; i < n_vectors; i++)
            values[i] = load16(half, v, (size_t)j * (size_t)w->dim + (size_t)(d + 16 * i));
        UNROLL for (int32_t r = 0; r < rows; r++) {
            __m512 weight = _mm512_set1_ps(p[r][j]);
            UNROLL for (int32_t i = 0; i < n_vectors; i++) out[r][i] = _mm512_fmadd_ps(weight, values[i], out[r][i]);
        }
    }
    UNROLL for (int32_t r = 0; r < rows; r++)
        UNROLL for (int32_t i = 0; i < n_vectors; i++) _mm512_storeu_ps(w->out[r] + d + 16 * i, out[r][i]);
}

ALWAYS_INLINE void attend_pages(rows_of *w, const int32_t rows, const bool half, const ftki_attn *a,
                                int32_t page_begin, int32_t page_end) {
    const size_t v_offset = ftki_kv_v_offset(a->format, a->head_dim);
    for (int32_t page = page_begin; page < page_end; page++) {
        float p[MANY][FTKI_PAGE] __attribute__((aligned(64)));
        uint32_t seen[MANY], any = 0;
        __m512 s[MANY][2];
        UNROLL for (int32_t r = 0; r < rows; r++) any |= seen[r] = attn_seen(w->begin[r], w->end[r], page * FTKI_PAGE);
        if (!any) continue;
        score_rows(w, rows, half, a->pages[page], a->bias ? a->bias[page] : NULL, s);
        UNROLL for (int32_t r = 0; r < rows; r++) weigh_row(w, r, s[r], seen[r], p[r]);
        const unsigned char *v = a->pages[page] + v_offset;
        int32_t d = 0;
        for (; d + 64 <= w->dim; d += 64) add_values(w, rows, half, v, p, d, 4);
        for (; d < w->dim; d += 16) add_values(w, rows, half, v, p, d, 1);
    }
}

static void look_at_row(rows_of *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row) {
    w->q[r] = (const float *)prepared + (size_t)row * (size_t)w->dim;
    w->begin[r] = a->begin ? a->begin[row / a->group] : 0;
    w->end[r] = a->end[row / a->group];
}

ALWAYS_INLINE void attend(rows_of *w, const bool half, int32_t rows, const ftki_attn *a,
                          int32_t page_begin, int32_t page_end) {
    switch (rows) {
    case 1: attend_pages(w, 1, half, a, page_begin, page_end); break;
    case 2: attend_pages(w, 2, half, a, page_begin, page_end); break;
    case 3: attend_pages(w, 3, half, a, page_begin, page_end); break;
    default: attend_pages(w, MANY, half, a, page_begin, page_end); break;
    }
}

void ftki_attn_float_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                            int32_t page_begin, int32_t page_end, const ftki_attn_state *state) {
    for (int32_t at = row, left; (left = row + n - at) > 0; at += MANY) {
        rows_of w = {.dim = ftki_kv_dim(a->head_dim), .half = a->format == FTKI_KV_F16};
        int32_t rows = left < MANY ? left : MANY;
        for (int32_t r = 0; r < rows; r++) {
            look_at_row(&w, r, a, prepared, at + r);
            w.out[r] = state->out + (size_t)(at + r) * (size_t)w.dim;
            w.max[r] = -INFINITY;
            memset(w.out[r], 0, (size_t)w.dim * sizeof(float));
        }
        if (w.half) attend(&w, true, rows, a, page_begin, page_end);
        else attend(&w, false, rows, a, page_begin, page_end);
        for (int32_t r = 0; r < rows; r++) {
            state->max[at + r] = w.max[r];
            state->sum[at + r] = w.sum[r];
        }
    }
}

void ftki_attn_float_columns_avx512(const ftki_attn *a, const void *prepared,
                                    const ftki_attn_state *state, int32_t n_entries, float *columns) {
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        rows_of w = {.dim = ftki_kv_dim(a->head_dim), .half = a->format == FTKI_KV_F16};
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        __m512 max = _mm512_set1_ps(state->max[row]), inverse = _mm512_set1_ps(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            uint32_t seen = attn_seen(w.begin[0], end, first);
            __m512 s[1][2];
            score_rows(&w, 1, w.half, a->pages[first / FTKI_PAGE], a->bias ? a->bias[first / FTKI_PAGE] : NULL, s);
            for (int32_t i = 0; i < 2; i++, seen >>= 16) {
                __mmask16 here = (__mmask16)seen;
                float *to = columns + first + 16 * i;
                __m512 p = exp2_clamped_avx512(_mm512_sub_ps(s[0][i], max));
                _mm512_mask_storeu_ps(to, here, _mm512_fmadd_ps(p, inverse, _mm512_maskz_loadu_ps(here, to)));
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Attention over F16 and F32 pages on AVX2: 8 keys per vector for the scores, 8 value dimensions
 * per vector for the output, up to MANY rows together so that each load serves them all. */
#include "kernels/avx2/attn.h"

#include "kernels/avx2/exp.h"
#include "kernels/avx2/lanes.h"
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

/* 8 numbers from element i of k or v. */
ALWAYS_INLINE __m256 load8(const bool half, const unsigned char *data, size_t i) {
    if (half) return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)(data + 2 * i)));
    return _mm256_load_ps((const float *)(const void *)data + i);
}

/* s of all rows: products over d ascending, then the bias; 16 keys at a time. */
ALWAYS_INLINE void score_rows(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *page, const float *bias, __m256 (*s)[4]) {
    const unsigned char *k = page + FTKI_PAGE_FLOATS;
    for (int32_t i = 0; i < 4; i += 2) {
        __m256 acc[MANY][2];
        UNROLL for (int32_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
        for (int32_t d = 0; d < w->dim; d++) {
            __m256 k0 = load8(half, k, (size_t)(d * FTKI_PAGE + 8 * i)), k1 = load8(half, k, (size_t)(d * FTKI_PAGE + 8 * i + 8));
            UNROLL for (int32_t r = 0; r < rows; r++) {
                __m256 q = _mm256_set1_ps(w->q[r][d]);
                acc[r][0] = _mm256_fmadd_ps(q, k0, acc[r][0]);
                acc[r][1] = _mm256_fmadd_ps(q, k1, acc[r][1]);
            }
        }
        UNROLL for (int32_t r = 0; r < rows; r++) {
            s[r][i] = acc[r][0];
            s[r][i + 1] = acc[r][1];
        }
    }
    for (int32_t i = 0; bias && i < 4; i++) {
        __m256 b = _mm256_mul_ps(_mm256_loadu_ps(bias + 8 * i), _mm256_set1_ps(FTKI_LOG2E));
        UNROLL for (int32_t r = 0; r < rows; r++) s[r][i] = _mm256_add_ps(s[r][i], b);
    }
}

static void grow(rows_of *w, int32_t r, float top) {
    float factor = ftki_attn_rescale(w->max[r], top);
    __m256 by = _mm256_set1_ps(factor);
    for (int32_t d = 0; d < w->dim; d += 8)
        _mm256_storeu_ps(w->out[r] + d, _mm256_mul_ps(_mm256_loadu_ps(w->out[r] + d), by));
    w->sum[r] *= factor;
    w->max[r] = top;
}

/* The softmax of one row and page; its weights to p [32]. */
ALWAYS_INLINE void weigh_row(rows_of *w, int32_t r, __m256 *s, uint32_t seen, float *p) {
    __m256 highest = _mm256_set1_ps(-INFINITY), weight[4];
    UNROLL for (int32_t i = 0; i < 4; i++) {
        s[i] = attn_hide(s[i], seen >> (8 * i));
        highest = _mm256_max_ps(highest, s[i]);
    }
    float top = max8_avx2(highest);
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    UNROLL for (int32_t i = 0; i < 4; i++) {
        weight[i] = exp2_avx2(_mm256_sub_ps(s[i], _mm256_set1_ps(w->max[r])));
        _mm256_store_ps(p + 8 * i, weight[i]);
    }
    __m256 low = _mm256_add_ps(weight[0], weight[2]), high = _mm256_add_ps(weight[1], weight[3]);
    w->sum[r] += sum8_avx2(_mm256_add_ps(low, high));
}

/* out += p v for 16 dims from d, entries ascending. */
ALWAYS_INLINE void add_values(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *v, float (*p)[FTKI_PAGE], int32_t d) {
    __m256 out[MANY][2];
    UNROLL for (int32_t r = 0; r < rows; r++) {
        out[r][0] = _mm256_loadu_ps(w->out[r] + d);
        out[r][1] = _mm256_loadu_ps(w->out[r] + d + 8);
    }
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        __m256 v0 = load8(half, v, (size_t)(j * w->dim + d)), v1 = load8(half, v, (size_t)(j * w->dim + d + 8));
        UNROLL for (int32_t r = 0; r < rows; r++) {
            __m256 weight = _mm256_set1_ps(p[r][j]);
            out[r][0] = _mm256_fmadd_ps(weight, v0, out[r][0]);
            out[r][1] = _mm256_fmadd_ps(weight, v1, out[r][1]);
        }
    }
    UNROLL for (int32_t r = 0; r < rows; r++) {
        _mm256_storeu_ps(w->out[r] + d, out[r][0]);
        _mm256_storeu_ps(w->out[r] + d + 8, out[r][1]);
    }
}

ALWAYS_INLINE void attend_pages(rows_of *w, const int32_t rows, const bool half, const ftki_attn *a,
                                int32_t page_begin, int32_t page_end) {
    const size_t v_offset = ftki_kv_v_offset(a->format, a->head_dim);
    for (int32_t page = page_begin; page < page_end; page++) {
        float p[MANY][FTKI_PAGE] __attribute__((aligned(32)));
        uint32_t seen[MANY], any = 0;
        __m256 s[MANY][4];
        UNROLL for (int32_t r = 0; r < rows; r++) any |= seen[r] = attn_seen(w->begin[r], w->end[r], page * FTKI_PAGE);
        if (!any) continue;
        score_rows(w, rows, half, a->pages[page], a->bias ? a->bias[page] : NULL, s);
        UNROLL for (int32_t r = 0; r < rows; r++) weigh_row(w, r, s[r], seen[r], p[r]);
        for (int32_t d = 0; d < w->dim; d += 16) add_values(w, rows, half, a->pages[page] + v_offset, p, d);
    }
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

static void look_at_row(rows_of *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row) {
    w->q[r] = (const float *)prepared + (size_t)row * (size_t)w->dim;
    w->begin[r] = a->begin ? a->begin[row / a->group] : 0;
    w->end[r] = a->end[row / a->group];
}

void ftki_attn_float_avx2(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
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

void ftki_attn_float_columns_avx2(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns) {
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        rows_of w = {.dim = ftki_kv_dim(a->head_dim), .half = a->format == FTKI_KV_F16};
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        __m256 max = _mm256_set1_ps(state->max[row]), inverse = _mm256_set1_ps(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            uint32_t seen = attn_seen(w.begin[0], end, first);
            __m256 s[1][4];
            score_rows(&w, 1, w.half, a->pages[first / FTKI_PAGE], a->bias ? a->bias[first / FTKI_PAGE] : NULL, s);
            for (int32_t i = 0; i < 4; i++, seen >>= 8)
                attn_add_columns(columns + first + 8 * i, exp2_clamped_avx2(_mm256_sub_ps(s[0][i], max)), inverse, seen);
        }
    }
}

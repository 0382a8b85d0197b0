// SPDX-License-Identifier: Apache-2.0
/* INT8 attention of few query rows, as in decoding: 16 keys per vector for the scores, 16 value
 * dimensions per vector for the output, so that a page is read once, in order, by up to MANY rows
 * together. The unsigned side (queries, weight codes) is broadcast from small arrays, the signed
 * side (keys, values) comes from the page as it lies. */
#include "kernels/avx512/attn.h"

#include "kernels/avx512/exp.h"
#include "kernels/avx512/lanes.h"
#include "kernels/kv_layout.h"

enum { MANY = 4 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct few {
    int32_t dim;
    const uint8_t *q[MANY]; /* of each row: 4 codes every 64 bytes */
    float q_scale[MANY];
    int32_t begin[MANY], end[MANY];
    float *out[MANY];       /* [dim] */
    float max[MANY], sum[MANY];
} few;

ALWAYS_INLINE __m512i four_codes(const uint8_t *at) {
    int32_t codes;
    memcpy(&codes, at, 4);
    return _mm512_set1_epi32(codes);
}

/* Integer scores of all rows with the page's 2 x 16 keys. */
ALWAYS_INLINE void score_rows(const few *w, const int32_t rows, const unsigned char *page,
                              __m512i (*scores)[2]) {
    const int32_t groups = w->dim / 4;
    const unsigned char *k = page + FTKI_PAGE_INT8_CODES;
    UNROLL for (int32_t r = 0; r < rows; r++) {
        scores[r][0] = _mm512_load_si512(ftki_page_k_start(page));
        scores[r][1] = _mm512_load_si512(ftki_page_k_start(page) + 16);
    }
    for (int32_t g = 0; g < groups; g++) {
        __m512i k0 = _mm512_load_si512(k + g * 64), k1 = _mm512_load_si512(k + (groups + g) * 64);
        UNROLL for (int32_t r = 0; r < rows; r++) {
            __m512i q = four_codes(w->q[r] + g * 64);
            scores[r][0] = _mm512_dpbusd_epi32(scores[r][0], q, k0);
            scores[r][1] = _mm512_dpbusd_epi32(scores[r][1], q, k1);
        }
    }
}

static void grow(few *w, int32_t r, float top) {
    float factor = ftki_attn_rescale(w->max[r], top);
    __m512 by = _mm512_set1_ps(factor);
    for (int32_t d = 0; d < w->dim; d += 16)
        _mm512_storeu_ps(w->out[r] + d, _mm512_mul_ps(_mm512_loadu_ps(w->out[r] + d), by));
    w->sum[r] *= factor;
    w->max[r] = top;
}

ALWAYS_INLINE __m512 score_to_t(__m512i score, const float *k_scale, float q_scale, const float *log,
                                __mmask16 seen) {
    __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(score), _mm512_load_ps(k_scale));
    t = _mm512_fmadd_ps(t, _mm512_set1_ps(q_scale), _mm512_load_ps(log));
    return _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen, t);
}

ALWAYS_INLINE void store_codes(uint8_t *codes, __m512 e) {
    __m512 c = _mm512_fmadd_ps(e, _mm512_set1_ps(255.0f), _mm512_set1_ps(0x1p23f));
    _mm_store_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8(_mm512_castps_si512(c)));
}

/* The softmax of one row and page: its codes, its sum; returns the factor of the values' sums. */
ALWAYS_INLINE float weigh_row(few *w, int32_t r, const __m512i *scores, const unsigned char *page,
                              const float *log, const float *inverse, uint32_t seen, uint8_t *codes) {
    const float *k_scale = ftki_page_k_scale(page);
    __m512 t0 = score_to_t(scores[0], k_scale, w->q_scale[r], log, (__mmask16)seen);
    __m512 t1 = score_to_t(scores[1], k_scale + 16, w->q_scale[r], log + 16, (__mmask16)(seen >> 16));
    float top = max16_avx512(_mm512_max_ps(t0, t1));
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    float f = ftki_attn_rescale(top, w->max[r]);
    __m512 e0 = exp2_code_avx512(_mm512_sub_ps(t0, _mm512_set1_ps(top)));
    __m512 e1 = exp2_code_avx512(_mm512_sub_ps(t1, _mm512_set1_ps(top)));
    store_codes(codes, e0);
    store_codes(codes + 16, e1);
    __m512 x = _mm512_mul_ps(e0, _mm512_load_ps(inverse));
    x = _mm512_fmadd_ps(e1, _mm512_load_ps(inverse + 16), x);
    w->sum[r] = fmaf(sum16_avx512(x), f, w->sum[r]);
    return f * (1.0f / 255.0f);
}

ALWAYS_INLINE void add_values(const few *w, const int32_t rows, const unsigned char *page,
                              uint8_t (*codes)[FTKI_PAGE], const float *unit) {
    const unsigned char *v = page + FTKI_PAGE_INT8_CODES + FTKI_PAGE * w->dim;
    for (int32_t d = 0; d < w->dim; d += 16, v += 512) {
        __m512i acc[MANY];
        UNROLL for (int32_t r = 0; r < rows; r++) acc[r] = _mm512_setzero_si512();
        UNROLL for (int32_t g = 0; g < 8; g++) {
            __m512i values = _mm512_load_si512(v + g * 64);
            UNROLL for (int32_t r = 0; r < rows; r++)
                acc[r] = _mm512_dpbusd_epi32(acc[r], four_codes(codes[r] + 4 * g), values);
        }
        UNROLL for (int32_t r = 0; r < rows; r++) {
            float *out = w->out[r] + d;
            __m512 sum = _mm512_cvtepi32_ps(acc[r]);
            _mm512_storeu_ps(out, _mm512_fmadd_ps(sum, _mm512_set1_ps(unit[r]), _mm512_loadu_ps(out)));
        }
    }
}

ALWAYS_INLINE void attend_pages(few *w, const int32_t rows, const ftki_attn *a, int32_t page_begin,
                                int32_t page_end, const attn_sides *sides) {
    for (int32_t p = page_begin; p < page_end; p++) {
        uint8_t codes[MANY][FTKI_PAGE] __attribute__((aligned(64)));
        uint32_t seen[MANY], any = 0;
        float unit[MANY];
        __m512i scores[MANY][2];
        UNROLL for (int32_t r = 0; r < rows; r++) any |= seen[r] = attn_seen(w->begin[r], w->end[r], p * FTKI_PAGE);
        if (!any) continue;
        score_rows(w, rows, a->pages[p], scores);
        UNROLL for (int32_t r = 0; r < rows; r++)
            unit[r] = weigh_row(w, r, scores[r], a->pages[p], sides->log[p - page_begin],
                                sides->inverse[p - page_begin], seen[r], codes[r]);
        add_values(w, rows, a->pages[p], codes, unit);
    }
}

static void look_at_row(few *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row) {
    int32_t rows = a->n_tokens * a->group, token = row / a->group;
    w->q[r] = ftki_prepared_codes(prepared, rows) + (size_t)(row / 16) * (size_t)w->dim * 16 + 4 * (row % 16);
    w->q_scale[r] = ftki_prepared_scale(prepared)[row];
    w->begin[r] = a->begin ? a->begin[token] : 0;
    w->end[r] = a->end[token];
}

static void open_row(few *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row,
                     const ftki_attn_state *state) {
    look_at_row(w, r, a, prepared, row);
    w->out[r] = state->out + (size_t)row * (size_t)w->dim;
    w->max[r] = -INFINITY;
    w->sum[r] = 0.0f;
    memset(w->out[r], 0, (size_t)w->dim * sizeof(float));
}

void ftki_attn_few_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                          int32_t page_begin, int32_t page_end, const attn_sides *sides,
                          const ftki_attn_state *state) {
    for (int32_t at = row, left; (left = row + n - at) > 0; at += MANY) {
        few w = {.dim = ftki_kv_dim(a->head_dim)};
        int32_t rows = left < MANY ? left : MANY;
        for (int32_t r = 0; r < rows; r++) open_row(&w, r, a, prepared, at + r, state);
        switch (rows) {
        case 1: attend_pages(&w, 1, a, page_begin, page_end, sides); break;
        case 2: attend_pages(&w, 2, a, page_begin, page_end, sides); break;
        case 3: attend_pages(&w, 3, a, page_begin, page_end, sides); break;
        default: attend_pages(&w, MANY, a, page_begin, page_end, sides); break;
        }
        for (int32_t r = 0; r < rows; r++) {
            state->max[at + r] = w.max[r];
            state->sum[at + r] = w.sum[r];
        }
    }
}

void ftki_attn_few_columns_avx512(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns) {
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        few w = {.dim = ftki_kv_dim(a->head_dim)};
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        __m512 max = _mm512_set1_ps(state->max[row]), inverse = _mm512_set1_ps(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            const unsigned char *page = a->pages[first / FTKI_PAGE];
            const float *bias = a->bias ? a->bias[first / FTKI_PAGE] : NULL;
            uint32_t seen = attn_seen(w.begin[0], end, first);
            __m512i scores[1][2];
            score_rows(&w, 1, page, scores);
            for (int32_t half = 0; half < 2; half++, seen >>= 16) {
                __mmask16 here = (__mmask16)seen;
                __m512 b = bias ? _mm512_loadu_ps(bias + 16 * half) : _mm512_setzero_ps();
                b = _mm512_mul_ps(b, _mm512_set1_ps(FTKI_LOG2E));
                __m512 s = _mm512_mul_ps(_mm512_cvtepi32_ps(scores[0][half]),
                                         _mm512_load_ps(ftki_page_k_scale(page) + 16 * half));
                s = _mm512_fmadd_ps(s, _mm512_set1_ps(w.q_scale[0]), b);
                float *to = columns + first + 16 * half;
                __m512 p = exp2_clamped_avx512(_mm512_sub_ps(s, max));
                p = _mm512_fmadd_ps(p, inverse, _mm512_maskz_loadu_ps(here, to));
                _mm512_mask_storeu_ps(to, here, p);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/* INT8 attention on AVX2: 8 keys per vector for the scores, 8 value dimensions for the output, up
 * to MANY rows together. Codes are widened to 16 bits, once for all rows, because the 8-bit
 * multiply-add saturates; a multiply-add of pairs then gives, for 4 keys or dims, two halves that
 * are added at the end. A page is read once, in order. */
#include "kernels/avx2/attn.h"

#include "kernels/avx2/exp.h"
#include "kernels/avx2/lanes.h"
#include "kernels/kv_layout.h"

enum { MANY = 3 }; /* a fourth row's accumulators would leave no registers */

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct rows_of {
    int16_t q[MANY][FTKI_MAX_HEAD_DIM] __attribute__((aligned(32))); /* query codes */
    int32_t dim;
    float q_scale[MANY];
    int32_t begin[MANY], end[MANY];
    float *out[MANY];                   /* [dim] */
    float max[MANY], sum[MANY];
} rows_of;

/* Four 16-bit numbers in all four quarters. */
ALWAYS_INLINE __m256i four_words(const int16_t *at) {
    int64_t words;
    memcpy(&words, at, 8);
    return _mm256_set1_epi64x(words);
}

ALWAYS_INLINE __m256i widen(const int8_t *at) {
    return _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(const void *)at));
}

/* Of 4 + 4 pairs of halves the sums in order. */
ALWAYS_INLINE __m256i join(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);
}

/* acc[r] (low and high 4 keys or dims) += four codes of row r times four of each key or dim. */
ALWAYS_INLINE void multiply(const int32_t rows, __m256i (*acc)[2], const int8_t *codes,
                            const int16_t *const *four, int32_t at) {
    __m256i low = widen(codes), high = widen(codes + 16);
    UNROLL for (int32_t r = 0; r < rows; r++) {
        __m256i x = four_words(four[r] + at);
        acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(x, low));
        acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(x, high));
    }
}

ALWAYS_INLINE void clear(const int32_t rows, __m256i (*acc)[2]) {
    UNROLL for (int32_t r = 0; r < rows; r++) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
}

/* (float)(q . k) * k_scale of all rows with the page's 4 x 8 keys. */
ALWAYS_INLINE void score_rows(const rows_of *w, const int32_t rows, const unsigned char *page,
                              __m256 (*scores)[4]) {
    const int32_t groups = w->dim / 4;
    const int16_t *q[MANY];
    UNROLL for (int32_t r = 0; r < rows; r++) q[r] = w->q[r];
    for (int32_t block = 0; block < 4; block++) {
        const int8_t *k = (const int8_t *)page + FTKI_PAGE_INT8_CODES + block / 2 * groups * 64 + block % 2 * 32;
        __m256i acc[MANY][2];
        clear(rows, acc);
        for (int32_t g = 0; g < groups; g++) multiply(rows, acc, k + g * 64, q, 4 * g);
        __m256 k_scale = _mm256_load_ps(ftki_page_k_scale(page) + 8 * block);
        UNROLL for (int32_t r = 0; r < rows; r++)
            scores[r][block] = _mm256_mul_ps(_mm256_cvtepi32_ps(join(acc[r][0], acc[r][1])), k_scale);
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

/* fma(e, 255, 2^23) has the code in its low bits; 8 of them as words. */
ALWAYS_INLINE void store_codes(int16_t *codes, __m256 e) {
    __m256i c = _mm256_castps_si256(_mm256_fmadd_ps(e, _mm256_set1_ps(255.0f), _mm256_set1_ps(0x1p23f)));
    c = _mm256_and_si256(c, _mm256_set1_epi32(255));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
    _mm_store_si128((__m128i *)(void *)codes, words);
}

/* The softmax of one row and page: its codes, its sum; returns the factor of the values' sums. */
ALWAYS_INLINE float weigh_row(rows_of *w, int32_t r, const __m256 *scores, const float *log,
                              const float *inverse, uint32_t seen, int16_t *codes) {
    __m256 t[4], e[4], highest = _mm256_set1_ps(-INFINITY), q_scale = _mm256_set1_ps(w->q_scale[r]);
    UNROLL for (int32_t i = 0; i < 4; i++) {
        t[i] = _mm256_fmadd_ps(scores[i], q_scale, _mm256_load_ps(log + 8 * i));
        if (seen != UINT32_MAX) t[i] = attn_hide(t[i], seen >> (8 * i));
        highest = _mm256_max_ps(highest, t[i]);
    }
    float top = max8_avx2(highest);
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    float f = ftki_attn_rescale(top, w->max[r]);
    UNROLL for (int32_t i = 0; i < 4; i++) {
        e[i] = exp2_code_avx2(_mm256_sub_ps(t[i], _mm256_set1_ps(top)));
        store_codes(codes + 8 * i, e[i]);
    }
    __m256 x0 = _mm256_mul_ps(e[0], _mm256_load_ps(inverse)), x1 = _mm256_mul_ps(e[1], _mm256_load_ps(inverse + 8));
    x0 = _mm256_fmadd_ps(e[2], _mm256_load_ps(inverse + 16), x0);
    x1 = _mm256_fmadd_ps(e[3], _mm256_load_ps(inverse + 24), x1);
    w->sum[r] = fmaf(sum8_avx2(_mm256_add_ps(x0, x1)), f, w->sum[r]);
    return f * (1.0f / 255.0f);
}

ALWAYS_INLINE void add_values(const rows_of *w, const int32_t rows, const unsigned char *page,
                              int16_t (*codes)[FTKI_PAGE], const float *unit) {
    const int8_t *v = (const int8_t *)page + FTKI_PAGE_INT8_CODES + FTKI_PAGE * w->dim;
    const int16_t *c[MANY];
    UNROLL for (int32_t r = 0; r < rows; r++) c[r] = codes[r];
    for (int32_t d = 0; d < w->dim; d += 8) {
        __m256i acc[MANY][2];
        clear(rows, acc);
        /* Unrolled further the compiler sums as a tree and spills. */
        const int8_t *at = v + d / 16 * 512 + d % 16 * 4;
        _Pragma("GCC unroll 2") for (int32_t g = 0; g < 8; g++) multiply(rows, acc, at + g * 64, c, 4 * g);
        UNROLL for (int32_t r = 0; r < rows; r++) {
            float *out = w->out[r] + d;
            __m256 sum = _mm256_cvtepi32_ps(join(acc[r][0], acc[r][1]));
            _mm256_storeu_ps(out, _mm256_fmadd_ps(sum, _mm256_set1_ps(unit[r]), _mm256_loadu_ps(out)));
        }
    }
}

ALWAYS_INLINE void attend_pages(rows_of *w, const int32_t rows, const ftki_attn *a, int32_t page_begin,
                                int32_t page_end, const attn_sides *sides) {
    for (int32_t p = page_begin; p < page_end; p++) {
        int16_t codes[MANY][FTKI_PAGE] __attribute__((aligned(32)));
        uint32_t seen[MANY], any = 0;
        float unit[MANY];
        __m256 scores[MANY][4];
        UNROLL for (int32_t r = 0; r < rows; r++) any |= seen[r] = attn_seen(w->begin[r], w->end[r], p * FTKI_PAGE);
        if (!any) continue;
        score_rows(w, rows, a->pages[p], scores);
        UNROLL for (int32_t r = 0; r < rows; r++)
            unit[r] = weigh_row(w, r, scores[r], sides->log[p - page_begin], sides->inverse[p - page_begin],
                                seen[r], codes[r]);
        add_values(w, rows, a->pages[p], codes, unit);
    }
}

static void look_at_row(rows_of *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row) {
    int32_t rows = a->n_tokens * a->group, token = row / a->group;
    const uint8_t *q = ftki_prepared_codes(prepared, rows) + (size_t)(row / 16) * (size_t)w->dim * 16 + 4 * (row % 16);
    for (int32_t d = 0; d < w->dim; d++) w->q[r][d] = (int16_t)(q[d / 4 * 64 + d % 4] - 128);
    w->q_scale[r] = ftki_prepared_scale(prepared)[row];
    w->begin[r] = a->begin ? a->begin[token] : 0;
    w->end[r] = a->end[token];
}

static void open_row(rows_of *w, int32_t r, const ftki_attn *a, const void *prepared, int32_t row,
                     const ftki_attn_state *state) {
    look_at_row(w, r, a, prepared, row);
    w->out[r] = state->out + (size_t)row * (size_t)w->dim;
    w->max[r] = -INFINITY;
    w->sum[r] = 0.0f;
    memset(w->out[r], 0, (size_t)w->dim * sizeof(float));
}

void ftki_attn_int8_avx2(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                         int32_t page_begin, int32_t page_end, const attn_sides *sides,
                         const ftki_attn_state *state) {
    rows_of w;
    w.dim = ftki_kv_dim(a->head_dim);
    for (int32_t at = row, left; (left = row + n - at) > 0; at += MANY) {
        int32_t rows = left < MANY ? left : MANY;
        for (int32_t r = 0; r < rows; r++) open_row(&w, r, a, prepared, at + r, state);
        switch (rows) {
        case 1: attend_pages(&w, 1, a, page_begin, page_end, sides); break;
        case 2: attend_pages(&w, 2, a, page_begin, page_end, sides); break;
        default: attend_pages(&w, MANY, a, page_begin, page_end, sides); break;
        }
        for (int32_t r = 0; r < rows; r++) {
            state->max[at + r] = w.max[r];
            state->sum[at + r] = w.sum[r];
        }
    }
}

void ftki_attn_int8_columns_avx2(const ftki_attn *a, const void *prepared,
                                 const ftki_attn_state *state, int32_t n_entries, float *columns) {
    rows_of w;
    w.dim = ftki_kv_dim(a->head_dim);
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        __m256 max = _mm256_set1_ps(state->max[row]), inverse = _mm256_set1_ps(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            const float *bias = a->bias ? a->bias[first / FTKI_PAGE] : NULL;
            uint32_t seen = attn_seen(w.begin[0], end, first);
            __m256 scores[1][4];
            score_rows(&w, 1, a->pages[first / FTKI_PAGE], scores);
            for (int32_t i = 0; i < 4; i++, seen >>= 8) {
                __m256 b = bias ? _mm256_loadu_ps(bias + 8 * i) : _mm256_setzero_ps();
                b = _mm256_mul_ps(b, _mm256_set1_ps(FTKI_LOG2E));
                __m256 s = _mm256_fmadd_ps(scores[0][i], _mm256_set1_ps(w.q_scale[0]), b);
                attn_add_columns(columns + first + 8 * i, exp2_clamped_avx2(_mm256_sub_ps(s, max)), inverse, seen);
            }
        }
    }
}

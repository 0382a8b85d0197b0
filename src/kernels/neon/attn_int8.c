// SPDX-License-Identifier: Apache-2.0
/* INT8 attention on NEON with signed dot products: 4 keys per vector for the scores, 4 value
 * dimensions for the output, up to MANY rows together; a page is read once, in order. Weight codes
 * 0..255 enter as code - 128, and 128 times the sum of the values, which all rows share, is added. */
#include "kernels/neon/attn.h"

#include "kernels/kv_layout.h"
#include "kernels/neon/exp.h"
#include "kernels/neon/lanes.h"

enum { MANY = 4 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

typedef struct rows_of {
    int8_t q[MANY][FTKI_MAX_HEAD_DIM]; /* query codes */
    int32_t dim;
    float q_scale[MANY];
    int32_t begin[MANY], end[MANY];
    float *out[MANY];                  /* [dim] */
    float max[MANY], sum[MANY];
} rows_of;

/* acc[r][i] += four vectors of codes times word `lane` of x[r]; a macro for the constant lane. */
#define MULTIPLY(rows, acc, codes, x, lane)                                                     \
    do {                                                                                        \
        const int8x16_t c0_ = vld1q_s8(codes), c1_ = vld1q_s8((codes) + 16);                    \
        const int8x16_t c2_ = vld1q_s8((codes) + 32), c3_ = vld1q_s8((codes) + 48);             \
        UNROLL for (int32_t r_ = 0; r_ < (rows); r_++) {                                        \
            (acc)[r_][0] = vdotq_laneq_s32((acc)[r_][0], c0_, (x)[r_], lane);                   \
            (acc)[r_][1] = vdotq_laneq_s32((acc)[r_][1], c1_, (x)[r_], lane);                   \
            (acc)[r_][2] = vdotq_laneq_s32((acc)[r_][2], c2_, (x)[r_], lane);                   \
            (acc)[r_][3] = vdotq_laneq_s32((acc)[r_][3], c3_, (x)[r_], lane);                   \
        }                                                                                       \
    } while (0)

ALWAYS_INLINE void clear(const int32_t rows, int32x4_t (*acc)[4]) {
    UNROLL for (int32_t r = 0; r < rows; r++)
        UNROLL for (int32_t i = 0; i < 4; i++) acc[r][i] = vdupq_n_s32(0);
}

/* (float)(q . k) * k_scale of all rows with the page's 8 x 4 keys. */
ALWAYS_INLINE void score_rows(const rows_of *w, const int32_t rows, const unsigned char *page,
                              float32x4_t (*scores)[8]) {
    const int8_t *k = (const int8_t *)page + FTKI_PAGE_INT8_CODES;
    for (int32_t half = 0; half < 2; half++) {
        int32x4_t acc[MANY][4];
        clear(rows, acc);
        for (int32_t d = 0; d < w->dim; d += 16, k += 256) {
            int8x16_t q[MANY];
            UNROLL for (int32_t r = 0; r < rows; r++) q[r] = vld1q_s8(w->q[r] + d);
            MULTIPLY(rows, acc, k, q, 0);
            MULTIPLY(rows, acc, k + 64, q, 1);
            MULTIPLY(rows, acc, k + 128, q, 2);
            MULTIPLY(rows, acc, k + 192, q, 3);
        }
        UNROLL for (int32_t r = 0; r < rows; r++)
            UNROLL for (int32_t i = 0; i < 4; i++) {
                float32x4_t k_scale = vld1q_f32(ftki_page_k_scale(page) + 16 * half + 4 * i);
                scores[r][4 * half + i] = vmulq_f32(vcvtq_f32_s32(acc[r][i]), k_scale);
            }
    }
}

static void grow(rows_of *w, int32_t r, float top) {
    float factor = ftki_attn_rescale(w->max[r], top);
    for (int32_t d = 0; d < w->dim; d += 4)
        vst1q_f32(w->out[r] + d, vmulq_n_f32(vld1q_f32(w->out[r] + d), factor));
    w->sum[r] *= factor;
    w->max[r] = top;
}

/* Four codes less 128 as words; fma(e, 255, 2^23) has the code in its low bits. */
ALWAYS_INLINE int32x4_t code4(float32x4_t e) {
    float32x4_t c = vfmaq_f32(vdupq_n_f32(0x1p23f), e, vdupq_n_f32(255.0f));
    return vsubq_s32(vreinterpretq_s32_f32(c), vdupq_n_s32(0x4b000000 + 128));
}

/* The softmax of one row and page: its codes, its sum; returns the factor of the values' sums. */
ALWAYS_INLINE float weigh_row(rows_of *w, int32_t r, const float32x4_t *scores, const float *log,
                              const float *inverse, uint32_t seen, int8_t *codes) {
    float32x4_t t[8], e[8], x[4];
    for (int32_t i = 0; i < 8; i++) {
        t[i] = vfmaq_n_f32(vld1q_f32(log + 4 * i), scores[i], w->q_scale[r]);
        t[i] = attn_hide(t[i], seen >> (4 * i));
    }
    float top = attn_top(t);
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    float f = ftki_attn_rescale(top, w->max[r]);
    for (int32_t i = 0; i < 8; i++) e[i] = exp2_code_neon(vsubq_f32(t[i], vdupq_n_f32(top)));
    for (int32_t i = 0; i < 8; i += 4) {
        int16x8_t low = vcombine_s16(vmovn_s32(code4(e[i])), vmovn_s32(code4(e[i + 1])));
        int16x8_t high = vcombine_s16(vmovn_s32(code4(e[i + 2])), vmovn_s32(code4(e[i + 3])));
        vst1q_s8(codes + 4 * i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    }
    for (int32_t i = 0; i < 4; i++)
        x[i] = vfmaq_f32(vmulq_f32(e[i], vld1q_f32(inverse + 4 * i)), e[i + 4], vld1q_f32(inverse + 16 + 4 * i));
    float32x4_t sum = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
    w->sum[r] = fmaf(sum4_neon(sum), f, w->sum[r]);
    return f * (1.0f / 255.0f);
}

ALWAYS_INLINE void add_values(const rows_of *w, const int32_t rows, const unsigned char *page,
                              int8_t (*codes)[FTKI_PAGE], const float *unit) {
    const int8_t *v = (const int8_t *)page + FTKI_PAGE_INT8_CODES + FTKI_PAGE * w->dim;
    const int8x16_t ones[1] = {vdupq_n_s8(1)};
    for (int32_t d = 0; d < w->dim; d += 16) {
        int32x4_t acc[MANY][4], sums[1][4];
        clear(rows, acc);
        clear(1, sums);
        for (int32_t half = 0; half < 2; half++, v += 256) {
            int8x16_t c[MANY];
            UNROLL for (int32_t r = 0; r < rows; r++) c[r] = vld1q_s8(codes[r] + 16 * half);
            MULTIPLY(rows, acc, v, c, 0);
            MULTIPLY(1, sums, v, ones, 0);
            MULTIPLY(rows, acc, v + 64, c, 1);
            MULTIPLY(1, sums, v + 64, ones, 0);
            MULTIPLY(rows, acc, v + 128, c, 2);
            MULTIPLY(1, sums, v + 128, ones, 0);
            MULTIPLY(rows, acc, v + 192, c, 3);
            MULTIPLY(1, sums, v + 192, ones, 0);
        }
        UNROLL for (int32_t r = 0; r < rows; r++)
            UNROLL for (int32_t i = 0; i < 4; i++) {
                float *out = w->out[r] + d + 4 * i;
                float32x4_t sum = vcvtq_f32_s32(vaddq_s32(acc[r][i], vshlq_n_s32(sums[0][i], 7)));
                vst1q_f32(out, vfmaq_n_f32(vld1q_f32(out), sum, unit[r]));
            }
    }
}

ALWAYS_INLINE void attend_pages(rows_of *w, const int32_t rows, const ftki_attn *a, int32_t page_begin,
                                int32_t page_end, const attn_sides *sides) {
    for (int32_t p = page_begin; p < page_end; p++) {
        int8_t codes[MANY][FTKI_PAGE];
        uint32_t seen[MANY], any = 0;
        float unit[MANY];
        float32x4_t scores[MANY][8];
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
    for (int32_t d = 0; d < w->dim; d++) w->q[r][d] = (int8_t)(q[d / 4 * 64 + d % 4] - 128);
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

void ftki_attn_int8_neon(const ftki_attn *a, const void *prepared, int32_t page_begin,
                         int32_t page_end, const attn_sides *sides, const ftki_attn_state *state) {
    rows_of w;
    w.dim = ftki_kv_dim(a->head_dim);
    for (int32_t at = 0, left; (left = a->n_tokens * a->group - at) > 0; at += MANY) {
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

void ftki_attn_int8_columns_neon(const ftki_attn *a, const void *prepared,
                                 const ftki_attn_state *state, int32_t n_entries, float *columns) {
    rows_of w;
    w.dim = ftki_kv_dim(a->head_dim);
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        float32x4_t max = vdupq_n_f32(state->max[row]), inverse = vdupq_n_f32(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            const float *bias = a->bias ? a->bias[first / FTKI_PAGE] : NULL;
            uint32_t seen = attn_seen(w.begin[0], end, first);
            float32x4_t scores[1][8];
            score_rows(&w, 1, a->pages[first / FTKI_PAGE], scores);
            for (int32_t i = 0; i < 8; i++, seen >>= 4) {
                float32x4_t b = bias ? vld1q_f32(bias + 4 * i) : vdupq_n_f32(0.0f);
                float32x4_t s = vfmaq_n_f32(vmulq_n_f32(b, FTKI_LOG2E), scores[0][i], w.q_scale[0]);
                attn_add_columns(columns + first + 4 * i, exp2_clamped_neon(vsubq_f32(s, max)), inverse, seen);
            }
        }
    }
}

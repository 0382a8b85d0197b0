// SPDX-License-Identifier: Apache-2.0
/* Attention over F16 and F32 pages on NEON: 4 keys per vector for the scores, 4 value dimensions
 * for the output, up to MANY rows together so that each load serves them all. */
#include "kernels/neon/attn.h"

#include "kernels/kv_layout.h"
#include "kernels/neon/exp.h"
#include "kernels/neon/lanes.h"

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

/* 4 numbers from element i of k or v. */
ALWAYS_INLINE float32x4_t load4(const bool half, const unsigned char *data, size_t i) {
    if (half) return vcvt_f32_f16(vld1_f16((const float16_t *)(const void *)(data + 2 * i)));
    return vld1q_f32((const float *)(const void *)data + i);
}

/* s of all rows: products over d ascending, then the bias; 16 keys at a time. */
ALWAYS_INLINE void score_rows(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *page, const float *bias, float32x4_t (*s)[8]) {
    const unsigned char *k = page + FTKI_PAGE_FLOATS;
    for (int32_t at = 0; at < 8; at += 4) {
        float32x4_t acc[MANY][4];
        UNROLL for (int32_t r = 0; r < rows; r++)
            UNROLL for (int32_t i = 0; i < 4; i++) acc[r][i] = vdupq_n_f32(0.0f);
        for (int32_t d = 0; d < w->dim; d++) {
            float32x4_t keys[4];
            UNROLL for (int32_t i = 0; i < 4; i++) keys[i] = load4(half, k, (size_t)(d * FTKI_PAGE + 4 * (at + i)));
            UNROLL for (int32_t r = 0; r < rows; r++) {
                float q = w->q[r][d];
                UNROLL for (int32_t i = 0; i < 4; i++) acc[r][i] = vfmaq_n_f32(acc[r][i], keys[i], q);
            }
        }
        UNROLL for (int32_t r = 0; r < rows; r++)
            UNROLL for (int32_t i = 0; i < 4; i++) s[r][at + i] = acc[r][i];
    }
    for (int32_t i = 0; bias && i < 8; i++) {
        float32x4_t b = vmulq_n_f32(vld1q_f32(bias + 4 * i), FTKI_LOG2E);
        UNROLL for (int32_t r = 0; r < rows; r++) s[r][i] = vaddq_f32(s[r][i], b);
    }
}

static void grow(rows_of *w, int32_t r, float top) {
    float factor = ftki_attn_rescale(w->max[r], top);
    for (int32_t d = 0; d < w->dim; d += 4)
        vst1q_f32(w->out[r] + d, vmulq_n_f32(vld1q_f32(w->out[r] + d), factor));
    w->sum[r] *= factor;
    w->max[r] = top;
}

/* The softmax of one row and page; its weights to p [32]. */
ALWAYS_INLINE void weigh_row(rows_of *w, int32_t r, float32x4_t *s, uint32_t seen, float *p) {
    float32x4_t weight[8];
    for (int32_t i = 0; i < 8; i++) s[i] = attn_hide(s[i], seen >> (4 * i));
    float top = attn_top(s);
    if (top > w->max[r] + FTKI_ATTN_SLACK) grow(w, r, top);
    for (int32_t i = 0; i < 8; i++) {
        weight[i] = exp2_neon(vsubq_f32(s[i], vdupq_n_f32(w->max[r])));
        vst1q_f32(p + 4 * i, weight[i]);
    }
    for (int32_t half = 4; half > 0; half /= 2)
        for (int32_t i = 0; i < half; i++) weight[i] = vaddq_f32(weight[i], weight[i + half]);
    w->sum[r] += sum4_neon(weight[0]);
}

/* out += p v for 16 dims from d, entries ascending. */
ALWAYS_INLINE void add_values(const rows_of *w, const int32_t rows, const bool half,
                              const unsigned char *v, float (*p)[FTKI_PAGE], int32_t d) {
    float32x4_t out[MANY][4];
    UNROLL for (int32_t r = 0; r < rows; r++)
        UNROLL for (int32_t i = 0; i < 4; i++) out[r][i] = vld1q_f32(w->out[r] + d + 4 * i);
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        float32x4_t values[4];
        UNROLL for (int32_t i = 0; i < 4; i++) values[i] = load4(half, v, (size_t)(j * w->dim + d + 4 * i));
        UNROLL for (int32_t r = 0; r < rows; r++)
            UNROLL for (int32_t i = 0; i < 4; i++) out[r][i] = vfmaq_n_f32(out[r][i], values[i], p[r][j]);
    }
    UNROLL for (int32_t r = 0; r < rows; r++)
        UNROLL for (int32_t i = 0; i < 4; i++) vst1q_f32(w->out[r] + d + 4 * i, out[r][i]);
}

ALWAYS_INLINE void attend_pages(rows_of *w, const int32_t rows, const bool half, const ftki_attn *a,
                                int32_t page_begin, int32_t page_end) {
    const size_t v_offset = ftki_kv_v_offset(a->format, a->head_dim);
    for (int32_t page = page_begin; page < page_end; page++) {
        float p[MANY][FTKI_PAGE];
        uint32_t seen[MANY], any = 0;
        float32x4_t s[MANY][8];
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

void ftki_attn_float_neon(const ftki_attn *a, const void *prepared, int32_t page_begin,
                          int32_t page_end, const ftki_attn_state *state) {
    for (int32_t at = 0, left; (left = a->n_tokens * a->group - at) > 0; at += MANY) {
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

void ftki_attn_float_columns_neon(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns) {
    for (int32_t row = 0; row < a->n_tokens * a->group; row++) {
        if (!(state->sum[row] > 0.0f)) continue;
        rows_of w = {.dim = ftki_kv_dim(a->head_dim), .half = a->format == FTKI_KV_F16};
        look_at_row(&w, 0, a, prepared, row);
        int32_t end = w.end[0] < n_entries ? w.end[0] : n_entries;
        float32x4_t max = vdupq_n_f32(state->max[row]), inverse = vdupq_n_f32(1.0f / state->sum[row]);
        for (int32_t first = w.begin[0] / FTKI_PAGE * FTKI_PAGE; first < end; first += FTKI_PAGE) {
            uint32_t seen = attn_seen(w.begin[0], end, first);
            float32x4_t s[1][8];
            score_rows(&w, 1, w.half, a->pages[first / FTKI_PAGE], a->bias ? a->bias[first / FTKI_PAGE] : NULL, s);
            for (int32_t i = 0; i < 8; i++, seen >>= 4)
                attn_add_columns(columns + first + 4 * i, exp2_clamped_neon(vsubq_f32(s[0][i], max)), inverse, seen);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Attention over KV pages in plain C: the specification, one row and one page at a time. The
 * formulas and their order are those of kernels.h (flash attention's running softmax: Dao et al.
 * 2022; the page's weights as 8-bit codes are ours). */
#include "kernels/kv_layout.h"

#include <float.h>

#include "format/quants.h"
#include "kernels/exp.h"
#include "kernels/rotate.h"
#include "kernels/tables.h"

/* ---------------------------------------------------------------- queries */

static const float *query_of(const ftki_attn *a, int32_t row) {
    return a->q + (size_t)(row / a->group) * a->q_stride +
           (size_t)(row % a->group) * (size_t)a->head_dim;
}

/* q [head_dim] made finite, padded to [dim], rotated. */
static void rotated_query(const float *q, int32_t head_dim, float *x) {
    int32_t dim = ftki_kv_dim(head_dim);
    for (int32_t d = 0; d < dim; d++) x[d] = d < head_dim ? ftki_finite(q[d], FLT_MAX) : 0.0f;
    ftki_rotate(x, dim);
    for (int32_t d = 0; d < dim; d++) x[d] = ftki_finite(x[d], FLT_MAX);
}

static void prepare_int8(const ftki_attn *a, int32_t rows, void *prepared) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    float *scales = prepared, x[FTKI_MAX_HEAD_DIM] = {0};
    uint8_t *codes = (uint8_t *)prepared + (size_t)ftki_attn_rows16(rows) * 4;
    for (int32_t r = 0; r < ftki_attn_rows16(rows); r++) {
        if (r < rows) rotated_query(query_of(a, r), a->head_dim, x);
        float largest = 0.0f;
        for (int32_t d = 0; r < rows && d < dim; d++) largest = fabsf(x[d]) > largest ? fabsf(x[d]) : largest;
        bool zero = largest < FTKI_KV_TINY;
        float inverse = zero ? 0.0f : 127.0f / largest;
        scales[r] = zero ? 0.0f : largest / 127.0f * (a->scale * FTKI_LOG2E);
        uint8_t *row = codes + (size_t)(r / 16) * (size_t)dim * 16 + 4 * (r % 16);
        for (int32_t d = 0; d < dim; d++)
            row[d / 4 * 64 + d % 4] = (uint8_t)((int32_t)rintf(x[d] * inverse) + 128);
    }
}

void ftki_attn_prepare_scalar(const ftki_attn *a, void *prepared) {
    int32_t rows = a->n_tokens * a->group, dim = ftki_kv_dim(a->head_dim);
    if (a->format == FTKI_KV_INT8) {
        prepare_int8(a, rows, prepared);
        return;
    }
    float *to = prepared;
    for (int32_t r = 0; r < ftki_attn_rows16(rows); r++)
        for (int32_t d = 0; d < dim; d++)
            *to++ = r < rows && d < a->head_dim ? ftki_finite(query_of(a, r)[d], FLT_MAX) * (a->scale * FTKI_LOG2E) : 0.0f;
}

/* ----------------------------------------------------------------- scores */

/* What one row makes of one page. */
typedef struct row_page {
    float score[FTKI_PAGE]; /* s_j; INT8: (q . k_j) * k_scale_j */
    float bias[FTKI_PAGE];  /* b_j */
    bool seen[FTKI_PAGE];
    bool any;
} row_page;

static void product_int8(const ftki_attn *a, const void *prepared, int32_t row,
                         const unsigned char *page, row_page *x) {
    int32_t rows = a->n_tokens * a->group, dim = ftki_kv_dim(a->head_dim);
    const uint8_t *q = ftki_prepared_codes(prepared, rows) + (size_t)(row / 16) * (size_t)dim * 16 +
                       4 * (row % 16);
    const int8_t *k = (const int8_t *)page + ftki_kv_k_offset(a->format);
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        int32_t dot = 0;
        for (int32_t d = 0; d < dim; d++)
            dot += (q[d / 4 * 64 + d % 4] - 128) * k[ftki_k_code(dim, j, d)];
        x->score[j] = (float)dot * ftki_page_k_scale(page)[j];
    }
}

static float element(ftki_kv_format format, const unsigned char *data, size_t i) {
    return format == FTKI_KV_F32 ? ((const float *)(const void *)data)[i]
                                 : ftki_f16_to_f32(((const uint16_t *)(const void *)data)[i]);
}

static void product_floats(const ftki_attn *a, const void *prepared, int32_t row,
                           const unsigned char *page, row_page *x) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    const float *q = (const float *)prepared + (size_t)row * (size_t)dim;
    const unsigned char *k = page + ftki_kv_k_offset(a->format);
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        float sum = 0.0f;
        for (int32_t d = 0; d < dim; d++)
            sum = fmaf(q[d], element(a->format, k, (size_t)(d * FTKI_PAGE + j)), sum);
        x->score[j] = sum + x->bias[j];
    }
}

static void score_page(const ftki_attn *a, const void *prepared, int32_t row, int32_t page_index,
                       row_page *x) {
    int32_t token = row / a->group, first = page_index * FTKI_PAGE;
    int32_t begin = a->begin ? a->begin[token] : 0, end = a->end[token];
    const float *bias = a->bias ? a->bias[page_index] : NULL;
    x->any = false;
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        x->seen[j] = first + j >= begin && first + j < end;
        x->any |= x->seen[j];
        x->bias[j] = bias ? bias[j] * FTKI_LOG2E : 0.0f;
    }
    if (!x->any) return;
    const unsigned char *page = a->pages[page_index];
    if (a->format == FTKI_KV_INT8) product_int8(a, prepared, row, page, x);
    else product_floats(a, prepared, row, page, x);
}

/* ----------------------------------------------------------------- values */

/* x[0] + ... + x[n - 1] as a tree of halves; x is used up. */
static float tree_sum(float *x, int32_t n) {
    for (int32_t half = n / 2; half > 0; half /= 2)
        for (int32_t j = 0; j < half; j++) x[j] += x[j + half];
    return x[0];
}

/* Makes room for a page whose largest (seen) element of t is `top`; returns the new reference. */
static float grow(float top, int32_t dim, float *out, float *max, float *sum) {
    if (!(top > *max + FTKI_ATTN_SLACK)) return *max;
    float factor = ftki_attn_rescale(*max, top);
    for (int32_t d = 0; d < dim; d++) out[d] *= factor;
    *sum *= factor;
    *max = top;
    return top;
}

static float top_of(const row_page *x, const float *t) {
    float top = -INFINITY;
    for (int32_t j = 0; j < FTKI_PAGE; j++)
        if (x->seen[j] && t[j] > top) top = t[j];
    return top;
}

static void attend_int8(const ftki_attn *a, float q_scale, const unsigned char *page,
                        const row_page *x, float *out, float *max, float *sum) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    const int8_t *v = (const int8_t *)page + ftki_kv_v_offset(a->format, a->head_dim);
    const float *v_log = ftki_page_v_log(page);
    float t[FTKI_PAGE], e[FTKI_PAGE], weights[16];
    int32_t codes[FTKI_PAGE];
    for (int32_t j = 0; j < FTKI_PAGE; j++) t[j] = fmaf(x->score[j], q_scale, v_log[j] + x->bias[j]);
    float top = top_of(x, t), f = ftki_attn_rescale(top, grow(top, dim, out, max, sum));
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        e[j] = x->seen[j] ? ftki_exp2_code(t[j] - top) : 0.0f;
        codes[j] = (int32_t)(fmaf(e[j], 255.0f, 0x1p23f) - 0x1p23f);
    }
    for (int32_t j = 0; j < 16; j++)
        weights[j] = fmaf(e[j + 16], ftki_exp2(-v_log[j + 16]), e[j] * ftki_exp2(-v_log[j]));
    *sum = fmaf(tree_sum(weights, 16), f, *sum);
    for (int32_t d = 0; d < dim; d++) {
        int32_t dot = 0;
        for (int32_t j = 0; j < FTKI_PAGE; j++) dot += codes[j] * v[ftki_v_code(j, d)];
        out[d] = fmaf((float)dot, f * (1.0f / 255.0f), out[d]);
    }
}

static void attend_floats(const ftki_attn *a, const unsigned char *page, const row_page *x, float *out,
                          float *max, float *sum) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    const unsigned char *v = page + ftki_kv_v_offset(a->format, a->head_dim);
    float p[FTKI_PAGE], weights[FTKI_PAGE], new = grow(top_of(x, x->score), dim, out, max, sum);
    for (int32_t j = 0; j < FTKI_PAGE; j++)
        weights[j] = p[j] = x->seen[j] ? ftki_exp2(x->score[j] - new) : 0.0f;
    *sum += tree_sum(weights, FTKI_PAGE);
    for (int32_t j = 0; j < FTKI_PAGE; j++)
        for (int32_t d = 0; d < dim; d++)
            out[d] = fmaf(p[j], element(a->format, v, (size_t)(j * dim + d)), out[d]);
}

/* -------------------------------------------------------------- the slots */

static void row_segment(const ftki_attn *a, const void *prepared, int32_t row, int32_t page_begin,
                        int32_t page_end, float *out, float *max, float *sum) {
    row_page x;
    for (int32_t page = page_begin; page < page_end; page++) {
        score_page(a, prepared, row, page, &x);
        if (!x.any) continue;
        if (a->format == FTKI_KV_INT8)
            attend_int8(a, ftki_prepared_scale(prepared)[row], a->pages[page], &x, out, max, sum);
        else
            attend_floats(a, a->pages[page], &x, out, max, sum);
    }
}

void ftki_attn_segment_scalar(const ftki_attn *a, const void *prepared, int32_t page_begin,
                              int32_t page_end, const ftki_attn_state *state) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++) {
        float *out = state->out + (size_t)r * (size_t)dim;
        for (int32_t d = 0; d < dim; d++) out[d] = 0.0f;
        state->max[r] = -INFINITY;
        state->sum[r] = 0.0f;
        row_segment(a, prepared, r, page_begin, page_end, out, &state->max[r], &state->sum[r]);
    }
}

void ftki_attn_merge_scalar(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                            int32_t dim) {
    for (int32_t r = 0; r < rows; r++) {
        if (from->max[r] == -INFINITY) continue;
        float max = into->max[r] > from->max[r] ? into->max[r] : from->max[r];
        float f_into = ftki_attn_rescale(into->max[r], max), f_from = ftki_attn_rescale(from->max[r], max);
        float *to = into->out + (size_t)r * (size_t)dim;
        const float *add = from->out + (size_t)r * (size_t)dim;
        for (int32_t d = 0; d < dim; d++) to[d] = fmaf(add[d], f_from, to[d] * f_into);
        into->sum[r] = fmaf(from->sum[r], f_from, into->sum[r] * f_into);
        into->max[r] = max;
    }
}

void ftki_attn_finish_scalar(const ftki_attn *a, const ftki_attn_state *state, float *y,
                             size_t y_stride) {
    int32_t dim = ftki_kv_dim(a->head_dim);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++) {
        const float *out = state->out + (size_t)r * (size_t)dim;
        float *to = y + (size_t)(r / a->group) * y_stride + (size_t)(r % a->group) * (size_t)a->head_dim;
        float inverse = state->sum[r] > 0.0f ? 1.0f / state->sum[r] : 0.0f;
        for (int32_t d = 0; d < a->head_dim; d++) to[d] = out[d] * inverse;
    }
}

void ftki_attn_columns_scalar(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                              int32_t n_entries, float *columns) {
    row_page x;
    for (int32_t page = 0; page * FTKI_PAGE < n_entries; page++)
        for (int32_t r = 0; r < a->n_tokens * a->group; r++) {
            score_page(a, prepared, r, page, &x);
            if (!x.any || !(state->sum[r] > 0.0f)) continue;
            float inverse = 1.0f / state->sum[r], *to = columns + page * FTKI_PAGE;
            for (int32_t j = 0; j < FTKI_PAGE && page * FTKI_PAGE + j < n_entries; j++) {
                if (!x.seen[j]) continue;
                float s = a->format == FTKI_KV_INT8
                              ? fmaf(x.score[j], ftki_prepared_scale(prepared)[r], x.bias[j])
                              : x.score[j];
                to[j] = fmaf(ftki_exp2_clamped(s - state->max[r]), inverse, to[j]);
            }
        }
}

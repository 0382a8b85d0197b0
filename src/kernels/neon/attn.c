// SPDX-License-Identifier: Apache-2.0
/* Attention on NEON: preparing queries, choosing the form of a segment, merging and finishing. */
#include "kernels/neon/attn.h"

#include "kernels/neon/exp.h"
#include "kernels/neon/quantise.h"

static void look_aside(const ftki_attn *a, int32_t page_begin, int32_t page_end, attn_sides *sides) {
    for (int32_t page = page_begin; page < page_end; page++) {
        const float *bias = a->bias ? a->bias[page] : NULL;
        float *log = sides->log[page - page_begin], *inverse = sides->inverse[page - page_begin];
        for (int32_t j = 0; j < FTKI_PAGE; j += 4) {
            float32x4_t v_log = vld1q_f32(ftki_page_v_log(a->pages[page]) + j);
            vst1q_f32(inverse + j, exp2_neon(vnegq_f32(v_log)));
            if (bias) v_log = vaddq_f32(v_log, vmulq_n_f32(vld1q_f32(bias + j), FTKI_LOG2E));
            vst1q_f32(log + j, v_log);
        }
    }
}

void ftki_attn_segment_neon(const ftki_attn *a, const void *prepared, int32_t page_begin,
                            int32_t page_end, const ftki_attn_state *state) {
    if (a->format == FTKI_KV_INT8) {
        attn_sides sides;
        look_aside(a, page_begin, page_end, &sides);
        ftki_attn_int8_neon(a, prepared, page_begin, page_end, &sides, state);
    } else {
        ftki_attn_float_neon(a, prepared, page_begin, page_end, state);
    }
}

/* ---------------------------------------------------------------- queries */

static const float *query_of(const ftki_attn *a, int32_t row) {
    return a->q + (size_t)(row / a->group) * a->q_stride +
           (size_t)(row % a->group) * (size_t)a->head_dim;
}

static void prepare_int8(const ftki_attn *a, int32_t rows, void *prepared) {
    const int32_t rows16 = ftki_attn_rows16(rows), dim = ftki_kv_dim(a->head_dim);
    float *scales = prepared;
    uint8_t *codes = (uint8_t *)prepared + (size_t)rows16 * 4;
    if (rows16 > rows) memset(codes + (size_t)(rows / 16) * (size_t)dim * 16, 128, (size_t)dim * 16);
    for (int32_t r = 0; r < rows16; r++) {
        scales[r] = 0.0f;
        if (r >= rows) continue;
        uint8_t *row = codes + (size_t)(r / 16) * (size_t)dim * 16 + 4 * (r % 16);
        quantised x;
        quantise_neon(&x, query_of(a, r), a->head_dim, true);
        for (int32_t d = 0; d < dim; d += 4) {
            uint32_t four;
            memcpy(&four, x.codes + d, 4);
            four ^= 0x80808080u;
            memcpy(row + d / 4 * 64, &four, 4);
        }
        scales[r] = x.largest / 127.0f * (a->scale * FTKI_LOG2E);
    }
}

void ftki_attn_prepare_neon(const ftki_attn *a, void *prepared) {
    const int32_t rows = a->n_tokens * a->group, dim = ftki_kv_dim(a->head_dim);
    if (a->format == FTKI_KV_INT8) {
        prepare_int8(a, rows, prepared);
        return;
    }
    float unit = a->scale * FTKI_LOG2E, *to = prepared;
    for (int32_t r = 0; r < rows; r++)
        for (int32_t d = 0; d < dim; d += 4, to += 4) {
            float32x4_t q = d < a->head_dim ? load_part(query_of(a, r) + d, a->head_dim - d) : vdupq_n_f32(0.0f);
            vst1q_f32(to, vmulq_n_f32(finite_neon(q), unit));
        }
}

/* -------------------------------------------------------- merge and finish */

void ftki_attn_merge_neon(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                          int32_t dim) {
    for (int32_t r = 0; r < rows; r++) {
        if (from->max[r] == -INFINITY) continue;
        float max = into->max[r] > from->max[r] ? into->max[r] : from->max[r];
        float f_into = ftki_attn_rescale(into->max[r], max), f_from = ftki_attn_rescale(from->max[r], max);
        float *to = into->out + (size_t)r * (size_t)dim;
        const float *add = from->out + (size_t)r * (size_t)dim;
        for (int32_t d = 0; d < dim; d += 4)
            vst1q_f32(to + d, vfmaq_n_f32(vmulq_n_f32(vld1q_f32(to + d), f_into), vld1q_f32(add + d), f_from));
        into->sum[r] = fmaf(from->sum[r], f_from, into->sum[r] * f_into);
        into->max[r] = max;
    }
}

void ftki_attn_finish_neon(const ftki_attn *a, const ftki_attn_state *state, float *y, size_t y_stride) {
    const int32_t dim = ftki_kv_dim(a->head_dim);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++) {
        const float *out = state->out + (size_t)r * (size_t)dim;
        float *to = y + (size_t)(r / a->group) * y_stride + (size_t)(r % a->group) * (size_t)a->head_dim;
        float inverse = state->sum[r] > 0.0f ? 1.0f / state->sum[r] : 0.0f;
        for (int32_t d = 0; d < a->head_dim; d += 4)
            store_part(to + d, a->head_dim - d, vmulq_n_f32(vld1q_f32(out + d), inverse));
    }
}

void ftki_attn_columns_neon(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                            int32_t n_entries, float *columns) {
    if (a->format == FTKI_KV_INT8) ftki_attn_int8_columns_neon(a, prepared, state, n_entries, columns);
    else ftki_attn_float_columns_neon(a, prepared, state, n_entries, columns);
}

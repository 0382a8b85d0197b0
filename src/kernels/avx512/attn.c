// SPDX-License-Identifier: Apache-2.0
/* Attention on AVX-512: preparing queries, choosing the form of a segment, merging and finishing.
 * The forms themselves are in attn_block.c, attn_few.c and attn_float.c. */
#include "kernels/avx512/attn.h"

#include "kernels/avx512/exp.h"
#include "kernels/avx512/quantise.h"

enum { FEW = 10 }; /* rows up to which keys in the lanes are faster than rows in the lanes */

static void look_aside(const ftki_attn *a, int32_t page_begin, int32_t page_end, attn_sides *sides) {
    for (int32_t page = page_begin; page < page_end; page++) {
        const float *bias = a->bias ? a->bias[page] : NULL;
        float *log = sides->log[page - page_begin], *inverse = sides->inverse[page - page_begin];
        for (int32_t j = 0; j < FTKI_PAGE; j += 16) {
            __m512 v_log = _mm512_load_ps(ftki_page_v_log(a->pages[page]) + j);
            _mm512_store_ps(inverse + j, exp2_avx512(_mm512_sub_ps(_mm512_setzero_ps(), v_log)));
            if (bias) {
                __m512 b = _mm512_mul_ps(_mm512_loadu_ps(bias + j), _mm512_set1_ps(FTKI_LOG2E));
                v_log = _mm512_add_ps(v_log, b);
            }
            _mm512_store_ps(log + j, v_log);
        }
    }
}

void ftki_attn_segment_avx512(const ftki_attn *a, const void *prepared, int32_t page_begin,
                              int32_t page_end, const ftki_attn_state *state) {
    attn_sides sides;
    if (a->format == FTKI_KV_INT8) look_aside(a, page_begin, page_end, &sides);
    const int32_t rows = a->n_tokens * a->group;
    for (int32_t row = 0; row < rows; row += 16) {
        int32_t n = rows - row < 16 ? rows - row : 16;
        if (a->format != FTKI_KV_INT8)
            ftki_attn_float_avx512(a, prepared, row, n, page_begin, page_end, state);
        else if (n <= FEW) ftki_attn_few_avx512(a, prepared, row, n, page_begin, page_end, &sides, state);
        else ftki_attn_block_avx512(a, prepared, row, n, page_begin, page_end, &sides, state);
    }
}

/* ---------------------------------------------------------------- queries */

static const float *query_of(const ftki_attn *a, int32_t row) {
    return a->q + (size_t)(row / a->group) * a->q_stride +
           (size_t)(row % a->group) * (size_t)a->head_dim;
}

static void prepare_int8(const ftki_attn *a, int32_t rows, void *prepared) {
    const int32_t rows16 = ftki_attn_rows16(rows), dim = ftki_kv_dim(a->head_dim);
    const __m128i to_unsigned = _mm_set1_epi8((char)128);
    float *scales = prepared;
    uint8_t *codes = (uint8_t *)prepared + (size_t)rows16 * 4;
    if (rows16 > rows) memset(codes + (size_t)(rows / 16) * (size_t)dim * 16, 128, (size_t)dim * 16);
    for (int32_t r = 0; r < rows16; r++) {
        scales[r] = 0.0f;
        if (r >= rows) continue;
        uint8_t *row = codes + (size_t)(r / 16) * (size_t)dim * 16 + 4 * (r % 16), four[16];
        quantised x;
        quantise_avx512(&x, query_of(a, r), a->head_dim, true);
        for (int32_t d = 0; d < dim; d += 16) {
            __m128i signed16 = _mm_load_si128((const __m128i *)(const void *)(x.codes + d));
            _mm_storeu_si128((__m128i *)(void *)four, _mm_xor_si128(signed16, to_unsigned));
            for (int32_t i = 0; i < 4; i++) memcpy(row + (d / 4 + i) * 64, four + 4 * i, 4);
        }
        scales[r] = x.largest / 127.0f * (a->scale * FTKI_LOG2E);
    }
}

void ftki_attn_prepare_avx512(const ftki_attn *a, void *prepared) {
    const int32_t rows = a->n_tokens * a->group, dim = ftki_kv_dim(a->head_dim);
    if (a->format == FTKI_KV_INT8) {
        prepare_int8(a, rows, prepared);
        return;
    }
    const __m512 unit = _mm512_set1_ps(a->scale * FTKI_LOG2E);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t d = 0; d < dim; d += 16) {
            __m512 q = _mm512_maskz_loadu_ps(lanes_left(a->head_dim - d), query_of(a, r) + d);
            _mm512_storeu_ps((float *)prepared + (size_t)r * (size_t)dim + d, _mm512_mul_ps(finite_avx512(q), unit));
        }
}

/* -------------------------------------------------------- merge and finish */

void ftki_attn_merge_avx512(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                            int32_t dim) {
    for (int32_t r = 0; r < rows; r++) {
        if (from->max[r] == -INFINITY) continue;
        float max = into->max[r] > from->max[r] ? into->max[r] : from->max[r];
        float f_into = ftki_attn_rescale(into->max[r], max), f_from = ftki_attn_rescale(from->max[r], max);
        float *to = into->out + (size_t)r * (size_t)dim;
        const float *add = from->out + (size_t)r * (size_t)dim;
        for (int32_t d = 0; d < dim; d += 16) {
            __m512 old = _mm512_mul_ps(_mm512_loadu_ps(to + d), _mm512_set1_ps(f_into));
            _mm512_storeu_ps(to + d, _mm512_fmadd_ps(_mm512_loadu_ps(add + d), _mm512_set1_ps(f_from), old));
        }
        into->sum[r] = fmaf(from->sum[r], f_from, into->sum[r] * f_into);
        into->max[r] = max;
    }
}

void ftki_attn_finish_avx512(const ftki_attn *a, const ftki_attn_state *state, float *y,
                             size_t y_stride) {
    const int32_t dim = ftki_kv_dim(a->head_dim);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++) {
        const float *out = state->out + (size_t)r * (size_t)dim;
        float *to = y + (size_t)(r / a->group) * y_stride + (size_t)(r % a->group) * (size_t)a->head_dim;
        __m512 inverse = _mm512_set1_ps(state->sum[r] > 0.0f ? 1.0f / state->sum[r] : 0.0f);
        for (int32_t d = 0; d < a->head_dim; d += 16)
            _mm512_mask_storeu_ps(to + d, lanes_left(a->head_dim - d),
                                  _mm512_mul_ps(_mm512_loadu_ps(out + d), inverse));
    }
}

void ftki_attn_columns_avx512(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                              int32_t n_entries, float *columns) {
    if (a->format == FTKI_KV_INT8) ftki_attn_few_columns_avx512(a, prepared, state, n_entries, columns);
    else ftki_attn_float_columns_avx512(a, prepared, state, n_entries, columns);
}

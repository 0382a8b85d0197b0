// SPDX-License-Identifier: Apache-2.0
/* The matrix product with float weights for AVX2. Each output is one chain of fused multiply-adds
 * over ascending inputs, so speed comes from many chains at once: rows by panels. */
#include "kernels/avx2/tile.h"

/* 8 weights at index `at` as floats. */
INLINE __m256 weights(const ftki_wkind kind, const uint8_t *data, size_t at) {
    if (kind == FTKI_W_F32) return _mm256_loadu_ps((const float *)(const void *)(data + at * 4));
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(data + at * 2));
    if (kind == FTKI_W_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Rows [0, rows) at f times `panels` panels from `panel` on. */
INLINE void tile(const ftki_wkind kind, const int rows, const int panels, const ftki_matrix *w,
                 int32_t panel, const float *f, size_t f_stride, float *y, size_t y_stride, bool add) {
    size_t panel_weights = (size_t)w->cols * FTKI_PANEL;
    const uint8_t *data = w->data + (size_t)panel * panel_weights * (kind == FTKI_W_F32 ? 4 : 2);
    __m256 acc[6][8];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < 2 * panels; c++) acc[r][c] = _mm256_setzero_ps();
    for (size_t i = 0; i < (size_t)w->cols; i++) {
        if (panels == 1) { /* 12 accumulators, 2 vectors of weights, 1 input: no register to spare */
            __m256 left = weights(kind, data, i * FTKI_PANEL);
            __m256 right = weights(kind, data, i * FTKI_PANEL + 8);
            UNROLL for (int r = 0; r < rows; r++) {
                __m256 v = _mm256_set1_ps(f[(size_t)r * f_stride + i]);
                acc[r][0] = _mm256_fmadd_ps(left, v, acc[r][0]);
                acc[r][1] = _mm256_fmadd_ps(right, v, acc[r][1]);
            }
            continue;
        }
        UNROLL for (int c = 0; c < 2 * panels; c++) {
            size_t at = (size_t)(c / 2) * panel_weights + i * FTKI_PANEL + (size_t)(c % 2) * 8;
            __m256 v = weights(kind, data, at);
            UNROLL for (int r = 0; r < rows; r++)
                acc[r][c] = _mm256_fmadd_ps(v, _mm256_set1_ps(f[(size_t)r * f_stride + i]), acc[r][c]);
        }
    }
    UNROLL for (int p = 0; p < panels; p++) {
        target t = target_at(w, panel + p, y, y_stride, add);
        UNROLL for (int r = 0; r < rows; r++) {
            store8(&t, r, 0, acc[r][2 * p]);
            store8(&t, r, 1, acc[r][2 * p + 1]);
        }
    }
}

/* `rows` rows from `row` on over panels [begin, end), `panels` at a time and then singly. */
INLINE void sweep(const ftki_wkind kind, const int rows, const int panels, const ftki_matrix *w,
                  const ftki_acts *x, int32_t row, int32_t begin, int32_t end, float *y,
                  size_t y_stride, bool add) {
    const float *f = x->f + (size_t)(x->first + row) * x->f_stride;
    float *out = y + (size_t)row * y_stride;
    int32_t p = begin;
    for (; p + panels <= end; p += panels)
        tile(kind, rows, panels, w, p, f, x->f_stride, out, y_stride, add);
    for (; p < end; p++) tile(kind, rows, 1, w, p, f, x->f_stride, out, y_stride, add);
}

/* Six rows at a time by one panel, then three, then single ones by four. */
INLINE void product(const ftki_wkind kind, const ftki_matrix *w, const ftki_acts *x, int32_t begin,
                    int32_t end, float *y, size_t y_stride, bool add) {
    int32_t whole = x->rows / 6 * 6, row = whole;
    for (int32_t p = begin; p < end; p++)
        for (int32_t r = 0; r < whole; r += 6) sweep(kind, 6, 1, w, x, r, p, p + 1, y, y_stride, add);
    for (; row + 3 <= x->rows; row += 3) sweep(kind, 3, 2, w, x, row, begin, end, y, y_stride, add);
    for (; row < x->rows; row++) sweep(kind, 1, 4, w, x, row, begin, end, y, y_stride, add);
}

void ftki_matmul_floats_avx2(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add) {
    switch (w->kind) {
    case FTKI_W_F32: product(FTKI_W_F32, w, x, panel_begin, panel_end, y, y_stride, add); break;
    case FTKI_W_F16: product(FTKI_W_F16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    default: product(FTKI_W_BF16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    }
}

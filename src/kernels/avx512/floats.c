// SPDX-License-Identifier: Apache-2.0
/* The matrix product with float weights for AVX-512. Each output is one chain of fused
 * multiply-adds over ascending inputs, so speed comes from many chains at once: rows by panels. */
#include "kernels/avx512/tile.h"

/* 16 weights at index `at` as floats. */
INLINE __m512 weights(const ftki_wkind kind, const uint8_t *data, size_t at) {
    if (kind == FTKI_W_F32) return _mm512_loadu_ps(data + at * 4);
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(data + at * 2));
    if (kind == FTKI_W_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Rows [0, rows) at f times `panels` panels from `panel` on. */
INLINE void tile(const ftki_wkind kind, const int rows, const int panels, const ftki_matrix *w,
                 int32_t panel, const float *f, size_t f_stride, float *y, size_t y_stride, bool add) {
    size_t panel_weights = (size_t)w->cols * FTKI_PANEL;
    const uint8_t *data = w->data + (size_t)panel * panel_weights * (kind == FTKI_W_F32 ? 4 : 2);
    __m512 acc[4][12];
    UNROLL for (int p = 0; p < panels; p++)
        UNROLL for (int r = 0; r < rows; r++) acc[p][r] = _mm512_setzero_ps();
    for (size_t i = 0; i < (size_t)w->cols; i++) {
        UNROLL for (int p = 0; p < panels; p++) {
            __m512 v = weights(kind, data, (size_t)p * panel_weights + i * FTKI_PANEL);
            UNROLL for (int r = 0; r < rows; r++)
                acc[p][r] = _mm512_fmadd_ps(v, _mm512_set1_ps(f[(size_t)r * f_stride + i]), acc[p][r]);
        }
    }
    UNROLL for (int p = 0; p < panels; p++) {
        target t = target_at(w, panel + p, y, y_stride, add);
        store(&t, rows, acc[p]);
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

/* Twelve rows at a time by one panel, then four by two, then single ones by four. */
INLINE void product(const ftki_wkind kind, const ftki_matrix *w, const ftki_acts *x, int32_t begin,
                    int32_t end, float *y, size_t y_stride, bool add) {
    int32_t whole = x->rows / 12 * 12, row = whole;
    for (int32_t p = begin; p < end; p++)
        for (int32_t r = 0; r < whole; r += 12) sweep(kind, 12, 1, w, x, r, p, p + 1, y, y_stride, add);
    for (; row + 4 <= x->rows; row += 4) sweep(kind, 4, 2, w, x, row, begin, end, y, y_stride, add);
    for (; row < x->rows; row++) sweep(kind, 1, 4, w, x, row, begin, end, y, y_stride, add);
}

void ftki_matmul_floats_avx512(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                               int32_t panel_end, float *y, size_t y_stride, bool add) {
    switch (w->kind) {
    case FTKI_W_F32: product(FTKI_W_F32, w, x, panel_begin, panel_end, y, y_stride, add); break;
    case FTKI_W_F16: product(FTKI_W_F16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    default: product(FTKI_W_BF16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    }
}

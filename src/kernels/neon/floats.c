// SPDX-License-Identifier: Apache-2.0
/* The matrix product with float weights for ARM. Each output is one chain of fused multiply-adds
 * over ascending inputs, so speed comes from many chains at once: rows by a panel. */
#include "kernels/neon/tile.h"

/* 4 weights at index `at` as floats. */
INLINE float32x4_t weights(const ftki_wkind kind, const uint8_t *data, size_t at) {
    if (kind == FTKI_W_F32) return vld1q_f32((const float *)(const void *)data + at);
    const uint16_t *half = (const uint16_t *)(const void *)data + at;
    if (kind == FTKI_W_F16) return load_f16(half);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(half), 16));
}

INLINE void tile(const ftki_wkind kind, const int rows, const ftki_matrix *w, int32_t panel_index,
                 const float *f, size_t f_stride, const target *t) {
    size_t size = kind == FTKI_W_F32 ? 4 : 2;
    const uint8_t *data = w->data + (size_t)panel_index * (size_t)w->cols * FTKI_PANEL * size;
    float32x4_t acc[4][4];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < 4; c++) acc[r][c] = vdupq_n_f32(0.0f);
    for (size_t i = 0; i < (size_t)w->cols; i++) {
        UNROLL for (int c = 0; c < 4; c++) {
            float32x4_t v = weights(kind, data, i * FTKI_PANEL + (size_t)c * 4);
            UNROLL for (int r = 0; r < rows; r++)
                acc[r][c] = vfmaq_f32(acc[r][c], v, vdupq_n_f32(f[(size_t)r * f_stride + i]));
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < 4; c++) store4(t, r, c, acc[r][c]);
}

INLINE void product(const ftki_wkind kind, const ftki_matrix *w, const ftki_acts *x, int32_t begin,
                    int32_t end, float *y, size_t y_stride, bool add) {
    for (int32_t p = begin; p < end; p++) {
        for (int32_t r = 0, n; r < x->rows; r += n) {
            const float *f = x->f + (size_t)(x->first + r) * x->f_stride;
            target t = target_at(w, p, y + (size_t)r * y_stride, y_stride, add);
            n = x->rows - r >= 4 ? 4 : 1;
            if (n == 4) tile(kind, 4, w, p, f, x->f_stride, &t);
            else tile(kind, 1, w, p, f, x->f_stride, &t);
        }
    }
}

void ftki_matmul_floats_neon(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add) {
    switch (w->kind) {
    case FTKI_W_F32: product(FTKI_W_F32, w, x, panel_begin, panel_end, y, y_stride, add); break;
    case FTKI_W_F16: product(FTKI_W_F16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    default: product(FTKI_W_BF16, w, x, panel_begin, panel_end, y, y_stride, add); break;
    }
}

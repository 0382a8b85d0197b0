// SPDX-License-Identifier: Apache-2.0
/* What the matrix products of this level share. A panel of 16 outputs is four vectors of 4, its
 * columns. All weight codes fit a signed byte once their zero is subtracted. */
#ifndef FTKI_KERNELS_NEON_TILE_H
#define FTKI_KERNELS_NEON_TILE_H

#include <arm_neon.h>

#include "kernels/tables.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* How the codes of a matrix are kept; constant wherever it is used, so each becomes its own loop. */
typedef struct form {
    bool u4;
    bool mins;
    bool halves; /* a scale per 16 inputs instead of 32 */
    int zero;
} form;

typedef struct panel {
    const uint8_t *data;
    const uint16_t *scales, *mins;
    size_t n_blocks;
} panel;

INLINE panel panel_at(const ftki_matrix *w, int32_t i) {
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK, at = (size_t)i * n_blocks;
    size_t block_scales = (size_t)(FTKI_BLOCK / w->block) * FTKI_PANEL;
    return (panel){w->data + at * (w->kind == FTKI_W_U8 ? 512 : 256), w->scales + at * block_scales,
                   w->mins ? w->mins + at * block_scales : NULL, n_blocks};
}

/* Signed codes of dot product `group` (0..7) of a block for the 4 outputs of `column`. */
INLINE int8x16_t signed_codes(form f, const uint8_t *data, int group, int column) {
    uint8x16_t u = vld1q_u8(data + (f.u4 ? group % 4 : group) * 64 + column * 16);
    if (f.u4) u = group < 4 ? vandq_u8(u, vdupq_n_u8(15)) : vshrq_n_u8(u, 4);
    if (f.zero) u = vsubq_u8(u, vdupq_n_u8((uint8_t)f.zero));
    return vreinterpretq_s8_u8(u);
}

INLINE float32x4_t load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/* y [rows][stride] at the panel's first output, of which `outputs` exist. */
typedef struct target {
    float *y;
    size_t stride;
    int32_t outputs;
    bool add;
} target;

INLINE target target_at(const ftki_matrix *w, int32_t panel_index, float *y, size_t y_stride, bool add) {
    int32_t outputs = w->rows - panel_index * FTKI_PANEL;
    if (outputs > FTKI_PANEL) outputs = FTKI_PANEL;
    return (target){y + (size_t)panel_index * FTKI_PANEL, y_stride, outputs, add};
}

/* Outputs [4 * column, 4 * column + 4) of row `row`. */
INLINE void store4(const target *t, int row, int column, float32x4_t v) {
    int32_t left = t->outputs - column * 4;
    float *y = t->y + (size_t)row * t->stride + column * 4;
    if (left >= 4) {
        vst1q_f32(y, t->add ? vaddq_f32(vld1q_f32(y), v) : v);
        return;
    }
    float part[4];
    vst1q_f32(part, v);
    for (int32_t i = 0; i < left; i++) y[i] = t->add ? y[i] + part[i] : part[i];
}

/* The product with float weights, floats.c. */
void ftki_matmul_floats_neon(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add);

#endif

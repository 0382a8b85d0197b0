// SPDX-License-Identifier: Apache-2.0
/* The matrix product for ARM with the dot product: sdot multiplies 4 outputs' four codes with one
 * lane of a row's activation codes. A tile is 4 activation rows times 8 outputs, or 1 to 3 rows
 * times a panel of 16. */
#include "kernels/neon/tile.h"

INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t w, int8x16_t q, int lane) {
    switch (lane) {
    case 0: return vdotq_laneq_s32(sum, w, q, 0);
    case 1: return vdotq_laneq_s32(sum, w, q, 1);
    case 2: return vdotq_laneq_s32(sum, w, q, 2);
    default: return vdotq_laneq_s32(sum, w, q, 3);
    }
}

/* Rows skip, skip + 1, ... of a group of activations times `columns` vectors of outputs from
 * `column` on. */
INLINE void tile(const form f, const int rows, const int columns, const panel *p,
                 const ftki_act_block *a, int skip, int column, const target *t) {
    const int n_halves = f.halves ? 2 : 1, n_dots = f.halves ? 4 : 8;
    const uint8_t *data = p->data;
    const uint16_t *scales = p->scales + column * 4, *mins = p->mins ? p->mins + column * 4 : NULL;
    float32x4_t acc[4][4];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < columns; c++) acc[r][c] = vdupq_n_f32(0.0f);

    for (size_t b = 0; b < p->n_blocks; b++, a++) {
        UNROLL for (int half = 0; half < n_halves; half++) {
            int32x4_t sum[4][4];
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int c = 0; c < columns; c++) sum[r][c] = vdupq_n_s32(0);
            UNROLL for (int d = 0; d < n_dots; d++) {
                int group = half * 4 + d;
                UNROLL for (int c = 0; c < columns; c++) {
                    int8x16_t w = signed_codes(f, data, group, column + c);
                    UNROLL for (int r = 0; r < rows; r++)
                        sum[r][c] = dot_lane(sum[r][c], w, vld1q_s8(a->q[r + skip] + group / 4 * 16), group % 4);
                }
            }
            UNROLL for (int c = 0; c < columns; c++) {
                float32x4_t scale = load_f16(scales + c * 4);
                UNROLL for (int r = 0; r < rows; r++)
                    acc[r][c] = vfmaq_f32(acc[r][c], vcvtq_f32_s32(sum[r][c]),
                                          vmulq_n_f32(scale, a->scale[r + skip]));
            }
            scales += FTKI_PANEL;
        }
        if (f.mins) {
            UNROLL for (int c = 0; c < columns; c++) {
                float32x4_t min = load_f16(mins + c * 4);
                UNROLL for (int r = 0; r < rows; r++)
                    acc[r][c] = vfmaq_f32(acc[r][c], min, vdupq_n_f32(a->scaled_sum[r + skip]));
            }
            mins += FTKI_PANEL;
        }
        data += f.u4 ? 256 : 512;
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < columns; c++) store4(t, r, column + c, acc[r][c]);
}

INLINE void any_tile(const form f, int rows, const panel *p, const ftki_act_block *a, int skip,
                     const target *t) {
    switch (rows) {
    case 4:
        tile(f, 4, 2, p, a, 0, 0, t);
        tile(f, 4, 2, p, a, 0, 2, t);
        break;
    case 3:
        tile(f, 3, 2, p, a, skip, 0, t);
        tile(f, 3, 2, p, a, skip, 2, t);
        break;
    case 2:
        tile(f, 2, 2, p, a, skip, 0, t);
        tile(f, 2, 2, p, a, skip, 2, t);
        break;
    default: tile(f, 1, 4, p, a, skip, 0, t); break;
    }
}

typedef void tile_fn(int rows, const panel *p, const ftki_act_block *a, int skip, const target *t);
#define TILE_FN(name, ...)                                                     \
    static void name(int rows, const panel *p, const ftki_act_block *a, int skip, \
                     const target *t) {                                        \
        any_tile((form){__VA_ARGS__}, rows, p, a, skip, t);                    \
    }
TILE_FN(tile_u8_zero128, .zero = 128)
TILE_FN(tile_u8_zero32_halves, .zero = 32, .halves = true)
TILE_FN(tile_u8_zero16, .zero = 16)
TILE_FN(tile_u8_mins, .mins = true)
TILE_FN(tile_u4_zero8, .u4 = true, .zero = 8)
TILE_FN(tile_u4_mins, .u4 = true, .mins = true)

static tile_fn *tile_for(const ftki_matrix *w) {
    if (w->kind == FTKI_W_U4) return w->mins ? tile_u4_mins : tile_u4_zero8;
    if (w->mins) return tile_u8_mins;
    return w->block == 16 ? tile_u8_zero32_halves : w->zero == 128 ? tile_u8_zero128 : tile_u8_zero16;
}

void ftki_matmul_neon(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                      int32_t panel_end, float *y, size_t y_stride, bool add) {
    if (w->kind != FTKI_W_U8 && w->kind != FTKI_W_U4) {
        ftki_matmul_floats_neon(w, x, panel_begin, panel_end, y, y_stride, add);
        return;
    }
    tile_fn *run = tile_for(w);
    for (int32_t i = panel_begin; i < panel_end; i++) {
        panel p = panel_at(w, i);
        for (int32_t r = 0, n; r < x->rows; r += n) {
            int32_t row = x->first + r, skip = row % FTKI_ACT_ROWS;
            n = FTKI_ACT_ROWS - skip < x->rows - r ? FTKI_ACT_ROWS - skip : x->rows - r;
            target t = target_at(w, i, y + (size_t)r * y_stride, y_stride, add);
            run(n, &p, x->blocks + (size_t)(row / FTKI_ACT_ROWS) * p.n_blocks, skip, &t);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/* The matrix product for ARM with the INT8 matrix product: smmla multiplies two outputs' eight
 * codes with two rows' eight codes. A tile is a whole group of 4 activation rows times 8 outputs;
 * other rows go to the dot product. */
#include "kernels/neon/tile.h"

/* Codes of 2 outputs x 8 inputs: the pair-th two outputs of `column`, groups 2n and 2n + 1. */
typedef struct eights {
    int8x16_t pair[2];
} eights;

INLINE eights weight_eights(form f, const uint8_t *data, int n, int column) {
    int32x4_t even = vreinterpretq_s32_s8(signed_codes(f, data, 2 * n, column));
    int32x4_t odd = vreinterpretq_s32_s8(signed_codes(f, data, 2 * n + 1, column));
    return (eights){{vreinterpretq_s8_s32(vzip1q_s32(even, odd)), vreinterpretq_s8_s32(vzip2q_s32(even, odd))}};
}

/* Inputs [8n, 8n + 8) of rows r and r + 1. */
INLINE int8x16_t act_eights(const ftki_act_block *a, int r, int n) {
    return vcombine_s8(vld1_s8(a->q[r] + n * 8), vld1_s8(a->q[r + 1] + n * 8));
}

/* The group at `a` times the two vectors of outputs from `column` on. */
INLINE void tile(const form f, const panel *p, const ftki_act_block *a, int column, const target *t) {
    const int n_halves = f.halves ? 2 : 1, n_eights = f.halves ? 2 : 4;
    const uint8_t *data = p->data;
    const uint16_t *scales = p->scales + column * 4, *mins = p->mins ? p->mins + column * 4 : NULL;
    float32x4_t acc[4][2];
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int c = 0; c < 2; c++) acc[r][c] = vdupq_n_f32(0.0f);

    for (size_t b = 0; b < p->n_blocks; b++, a++) {
        UNROLL for (int half = 0; half < n_halves; half++) {
            int32x4_t sum[2][2][2]; /* [row pair][column][output pair]: o0r0 o0r1 o1r0 o1r1 */
            UNROLL for (int r = 0; r < 2; r++)
                UNROLL for (int c = 0; c < 2; c++) sum[r][c][0] = sum[r][c][1] = vdupq_n_s32(0);
            UNROLL for (int d = 0; d < n_eights; d++) {
                int n = half * 2 + d;
                int8x16_t q[2] = {act_eights(a, 0, n), act_eights(a, 2, n)};
                UNROLL for (int c = 0; c < 2; c++) {
                    eights w = weight_eights(f, data, n, column + c);
                    UNROLL for (int r = 0; r < 2; r++) {
                        sum[r][c][0] = vmmlaq_s32(sum[r][c][0], w.pair[0], q[r]);
                        sum[r][c][1] = vmmlaq_s32(sum[r][c][1], w.pair[1], q[r]);
                    }
                }
            }
            UNROLL for (int c = 0; c < 2; c++) {
                float32x4_t scale = load_f16(scales + c * 4);
                UNROLL for (int r = 0; r < 4; r++) {
                    const int32x4_t *s = sum[r / 2][c];
                    int32x4_t row = r % 2 ? vuzp2q_s32(s[0], s[1]) : vuzp1q_s32(s[0], s[1]);
                    acc[r][c] = vfmaq_f32(acc[r][c], vcvtq_f32_s32(row), vmulq_n_f32(scale, a->scale[r]));
                }
            }
            scales += FTKI_PANEL;
        }
        if (f.mins) {
            UNROLL for (int c = 0; c < 2; c++) {
                float32x4_t min = load_f16(mins + c * 4);
                UNROLL for (int r = 0; r < 4; r++)
                    acc[r][c] = vfmaq_f32(acc[r][c], min, vdupq_n_f32(a->scaled_sum[r]));
            }
            mins += FTKI_PANEL;
        }
        data += f.u4 ? 256 : 512;
    }
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int c = 0; c < 2; c++) store4(t, r, column + c, acc[r][c]);
}

typedef void tile_fn(const panel *p, const ftki_act_block *a, const target *t);
#define TILE_FN(name, ...)                                                      \
    static void name(const panel *p, const ftki_act_block *a, const target *t) { \
        tile((form){__VA_ARGS__}, p, a, 0, t);                                  \
        tile((form){__VA_ARGS__}, p, a, 2, t);                                  \
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

/* Rows [begin, end) of the product by the dot product. */
static void by_dots(const ftki_matrix *w, const ftki_acts *x, int32_t begin, int32_t end,
                    int32_t panel_begin, int32_t panel_end, float *y, size_t y_stride, bool add) {
    ftki_acts part = *x;
    part.first += begin;
    part.rows = end - begin;
    if (begin < end)
        ftki_matmul_neon(w, &part, panel_begin, panel_end, y + (size_t)begin * y_stride, y_stride, add);
}

void ftki_matmul_i8mm(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                      int32_t panel_end, float *y, size_t y_stride, bool add) {
    int32_t begin = (FTKI_ACT_ROWS - x->first % FTKI_ACT_ROWS) % FTKI_ACT_ROWS;
    if (begin > x->rows) begin = x->rows;
    int32_t end = begin + (x->rows - begin) / FTKI_ACT_ROWS * FTKI_ACT_ROWS;
    if (w->kind != FTKI_W_U8 && w->kind != FTKI_W_U4) begin = end = x->rows;
    by_dots(w, x, 0, begin, panel_begin, panel_end, y, y_stride, add);
    for (int32_t i = panel_begin; i < panel_end && begin < end; i++) {
        panel p = panel_at(w, i);
        for (int32_t r = begin; r < end; r += FTKI_ACT_ROWS) {
            target t = target_at(w, i, y + (size_t)r * y_stride, y_stride, add);
            tile_for(w)(&p, x->blocks + (size_t)((x->first + r) / FTKI_ACT_ROWS) * p.n_blocks, &t);
        }
    }
    by_dots(w, x, end, x->rows, panel_begin, panel_end, y, y_stride, add);
}

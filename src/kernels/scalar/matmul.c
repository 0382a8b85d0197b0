// SPDX-License-Identifier: Apache-2.0
/* The matrix product in plain C: the specification of the matmul slot. */
#include <math.h>

#include "format/quants.h"
#include "kernels/tables.h"

static float bf16_to_f32(uint16_t h) {
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)h << 16};
    return v.f;
}

/* Code of input i (0..31) of output o (0..15) in the 32-input block at `data`. */
static int32_t code_at(ftki_wkind kind, const uint8_t *data, int32_t i, int32_t o) {
    if (kind == FTKI_W_U8) return data[(i / 4) * 64 + o * 4 + i % 4];
    uint8_t byte = data[(i % 16 / 4) * 64 + o * 4 + i % 4];
    return i < 16 ? byte & 15 : byte >> 4;
}

/* acc [16] of one activation row and one panel of quantised weights. */
static void row_quantised(const ftki_matrix *w, const ftki_acts *x, int32_t panel, int32_t row,
                          float *acc) {
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK, bytes = w->kind == FTKI_W_U8 ? 512 : 256;
    const uint8_t *data = w->data + (size_t)panel * n_blocks * bytes;
    const ftki_act_block *a = x->blocks + (size_t)(row / FTKI_ACT_ROWS) * n_blocks;
    int32_t r = row % FTKI_ACT_ROWS, per_block = FTKI_BLOCK / w->block;
    size_t at = (size_t)panel * n_blocks * (size_t)per_block * FTKI_PANEL;

    for (size_t b = 0; b < n_blocks; b++, data += bytes, a++) {
        for (int32_t part = 0; part < per_block; part++, at += FTKI_PANEL) {
            for (int32_t o = 0; o < FTKI_PANEL; o++) {
                int32_t s = 0;
                for (int32_t i = part * w->block; i < (part + 1) * w->block; i++)
                    s += (code_at(w->kind, data, i, o) - w->zero) * a->q[r][i];
                float scale = ftki_f16_to_f32(w->scales[at + (size_t)o]);
                acc[o] = fmaf((float)s, scale * a->scale[r], acc[o]);
                if (w->mins)
                    acc[o] = fmaf(ftki_f16_to_f32(w->mins[at + (size_t)o]), a->scaled_sum[r], acc[o]);
            }
        }
    }
}

static float weight_at(const ftki_matrix *w, size_t at) {
    switch (w->kind) {
    case FTKI_W_F16: return ftki_f16_to_f32(((const uint16_t *)(const void *)w->data)[at]);
    case FTKI_W_BF16: return bf16_to_f32(((const uint16_t *)(const void *)w->data)[at]);
    default: return ((const float *)(const void *)w->data)[at];
    }
}

static void row_floats(const ftki_matrix *w, const ftki_acts *x, int32_t panel, int32_t row,
                       float *acc) {
    size_t at = (size_t)panel * (size_t)w->cols * FTKI_PANEL;
    const float *f = x->f + (size_t)row * x->f_stride;
    for (int32_t i = 0; i < w->cols; i++, at += FTKI_PANEL)
        for (size_t o = 0; o < FTKI_PANEL; o++) acc[o] = fmaf(weight_at(w, at + o), f[i], acc[o]);
}

void ftki_matmul_scalar(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                        int32_t panel_end, float *y, size_t y_stride, bool add) {
    bool floats = w->kind != FTKI_W_U8 && w->kind != FTKI_W_U4;
    for (int32_t p = panel_begin; p < panel_end; p++) {
        int32_t first = p * FTKI_PANEL;
        int32_t n = w->rows - first < FTKI_PANEL ? w->rows - first : FTKI_PANEL;
        for (int32_t r = 0; r < x->rows; r++) {
            float acc[FTKI_PANEL] = {0};
            if (floats) row_floats(w, x, p, x->first + r, acc);
            else row_quantised(w, x, p, x->first + r, acc);
            float *out = y + (size_t)r * y_stride + first;
            for (int32_t o = 0; o < n; o++) out[o] = add ? out[o] + acc[o] : acc[o];
        }
    }
}

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

enum { ROWS = 8 }; /* activation rows that share the unpacking of a block */

/* Codes of a 32-input block of a panel less the zero, [input][output]. */
static void unpack(const ftki_matrix *w, const uint8_t *data, int16_t codes[FTKI_BLOCK][FTKI_PANEL]) {
    for (int32_t i = 0; i < FTKI_BLOCK; i++) {
        const uint8_t *bytes = data + (w->kind == FTKI_W_U8 ? i / 4 : i % 16 / 4) * 64 + i % 4;
        for (int32_t o = 0; o < FTKI_PANEL; o++) {
            int32_t u = bytes[o * 4];
            if (w->kind == FTKI_W_U4) u = i < 16 ? u & 15 : u >> 4;
            codes[i][o] = (int16_t)(u - w->zero);
        }
    }
}

/* acc [output] += the part of one row's product that inputs [begin, begin + n) of a block give. */
static void add_part(const int16_t codes[FTKI_BLOCK][FTKI_PANEL], const int8_t *q, int32_t begin,
                     int32_t n, const float *w_scale, float x_scale, float *acc) {
    int32_t s[FTKI_PANEL] = {0};
    for (int32_t i = begin; i < begin + n; i++)
        for (int32_t o = 0; o < FTKI_PANEL; o++) s[o] += codes[i][o] * q[i];
    for (int32_t o = 0; o < FTKI_PANEL; o++) acc[o] = fmaf((float)s[o], w_scale[o] * x_scale, acc[o]);
}

static void load_f16(const uint16_t *src, float *dst) {
    for (int32_t o = 0; o < FTKI_PANEL; o++) dst[o] = ftki_f16_to_f32(src[o]);
}

/* acc [n_rows][output] of rows from `row` on (at most ROWS) and one panel of quantised weights. */
static void rows_quantised(const ftki_matrix *w, const ftki_acts *x, int32_t panel, int32_t row,
                           int32_t n_rows, float acc[ROWS][FTKI_PANEL]) {
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK, bytes = w->kind == FTKI_W_U8 ? 512 : 256;
    int32_t parts = FTKI_BLOCK / w->block;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t block = (size_t)panel * n_blocks + b, scales = block * (size_t)parts * FTKI_PANEL;
        int16_t codes[FTKI_BLOCK][FTKI_PANEL];
        float scale[2][FTKI_PANEL], min[FTKI_PANEL];
        unpack(w, w->data + block * bytes, codes);
        for (int32_t part = 0; part < parts; part++) load_f16(w->scales + scales + part * FTKI_PANEL, scale[part]);
        if (w->mins) load_f16(w->mins + scales, min);
        for (int32_t r = 0; r < n_rows; r++) {
            int32_t lane = (row + r) % FTKI_ACT_ROWS;
            const ftki_act_block *a = x->blocks + (size_t)((row + r) / FTKI_ACT_ROWS) * n_blocks + b;
            for (int32_t part = 0; part < parts; part++)
                add_part((const int16_t(*)[FTKI_PANEL])codes, a->q[lane], part * w->block, w->block,
                         scale[part], a->scale[lane], acc[r]);
            if (w->mins)
                for (int32_t o = 0; o < FTKI_PANEL; o++) acc[r][o] = fmaf(min[o], a->scaled_sum[lane], acc[r][o]);
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
        int32_t outputs = w->rows - first < FTKI_PANEL ? w->rows - first : FTKI_PANEL;
        for (int32_t r = 0; r < x->rows; r += ROWS) {
            int32_t n_rows = x->rows - r < ROWS ? x->rows - r : ROWS;
            float acc[ROWS][FTKI_PANEL] = {{0}};
            if (!floats) rows_quantised(w, x, p, x->first + r, n_rows, acc);
            for (int32_t i = 0; i < n_rows; i++) {
                if (floats) row_floats(w, x, p, x->first + r + i, acc[i]);
                float *out = y + (size_t)(r + i) * y_stride + first;
                for (int32_t o = 0; o < outputs; o++) out[o] = add ? out[o] + acc[i][o] : acc[i][o];
            }
        }
    }
}

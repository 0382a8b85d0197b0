// SPDX-License-Identifier: Apache-2.0
/* Activations to INT8 in plain C: the specification of the quantize slot. */
#include <float.h>
#include <math.h>

#include "kernels/tables.h"

/* 2^-100: below it a block counts as zeros, so that 1 / scale stays a normal number. */
static const float smallest_max = 0x1p-100f;

static float cleaned(float x) {
    if (isnan(x)) return 0.0f;
    return fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

static void quantize_block(const float *src, ftki_act_block *out, int32_t row) {
    float max = 0.0f;
    for (int i = 0; i < FTKI_BLOCK; i++) max = fmaxf(max, fabsf(cleaned(src[i])));
    float scale = max < smallest_max ? 0.0f : max / 127.0f;
    float inverse = max < smallest_max ? 0.0f : 1.0f / scale;
    int32_t first = 0, sum = 0;
    for (int i = 0; i < FTKI_BLOCK; i++) {
        int8_t q = (int8_t)rintf(cleaned(src[i]) * inverse);
        out->q[row][i] = q;
        sum += q;
        if (i == FTKI_BLOCK / 2 - 1) first = sum;
    }
    out->scale[row] = scale;
    out->scaled_sum[row] = scale * (float)sum;
    out->minus_sum[row] = -sum;
    out->minus_first[row] = -first;
}

void ftki_quantize_scalar(const ftki_acts *x, const float *src, size_t src_stride, int32_t begin,
                          int32_t end) {
    int32_t n_blocks = x->cols / FTKI_BLOCK;
    for (int32_t r = begin; r < end; r++) {
        ftki_act_block *out = x->blocks + (size_t)(r / FTKI_ACT_ROWS) * (size_t)n_blocks;
        for (int32_t b = 0; b < n_blocks; b++)
            quantize_block(src + (size_t)r * src_stride + (size_t)b * FTKI_BLOCK, out + b,
                           r % FTKI_ACT_ROWS);
    }
}

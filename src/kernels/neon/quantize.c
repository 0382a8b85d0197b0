// SPDX-License-Identifier: Apache-2.0
/* Activations to INT8 for ARM: a block of 32 inputs is eight vectors. */
#include <arm_neon.h>
#include <float.h>

#include "kernels/tables.h"

static const float smallest_max = 0x1p-100f;

static inline float32x4_t cleaned(float32x4_t x) {
    uint32x4_t number = vceqq_f32(x, x);
    x = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), number));
    return vminq_f32(vmaxq_f32(x, vdupq_n_f32(-FLT_MAX)), vdupq_n_f32(FLT_MAX));
}

/* Codes of 16 inputs; vcvtn rounds to nearest even. */
static inline int8x16_t codes(const float32x4_t *x, float inverse) {
    int32x4_t v[4];
    for (int i = 0; i < 4; i++) v[i] = vcvtnq_s32_f32(vmulq_n_f32(x[i], inverse));
    int16x8_t low = vcombine_s16(vqmovn_s32(v[0]), vqmovn_s32(v[1]));
    int16x8_t high = vcombine_s16(vqmovn_s32(v[2]), vqmovn_s32(v[3]));
    return vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
}

static inline void quantize_block(const float *src, ftki_act_block *out, int32_t row) {
    float32x4_t x[8], largest = vdupq_n_f32(0.0f);
    for (int i = 0; i < 8; i++) {
        x[i] = cleaned(vld1q_f32(src + 4 * i));
        largest = vmaxq_f32(largest, vabsq_f32(x[i]));
    }
    float max = vmaxvq_f32(largest);
    float scale = max < smallest_max ? 0.0f : max / 127.0f;
    float inverse = max < smallest_max ? 0.0f : 1.0f / scale;
    int8x16_t low = codes(x, inverse), high = codes(x + 4, inverse);
    vst1q_s8(out->q[row], low);
    vst1q_s8(out->q[row] + 16, high);
    int32_t first = vaddlvq_s8(low), sum = first + vaddlvq_s8(high);
    out->scale[row] = scale;
    out->scaled_sum[row] = scale * (float)sum;
    out->minus_sum[row] = -sum;
    out->minus_first[row] = -first;
}

void ftki_quantize_neon(const ftki_acts *x, const float *src, size_t src_stride, int32_t begin,
                        int32_t end) {
    int32_t n_blocks = x->cols / FTKI_BLOCK;
    for (int32_t r = begin; r < end; r++) {
        ftki_act_block *out = x->blocks + (size_t)(r / FTKI_ACT_ROWS) * (size_t)n_blocks;
        const float *row = src + (size_t)r * src_stride;
        for (int32_t b = 0; b < n_blocks; b++)
            quantize_block(row + (size_t)b * FTKI_BLOCK, out + b, r % FTKI_ACT_ROWS);
    }
}

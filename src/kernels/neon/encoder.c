// SPDX-License-Identifier: Apache-2.0
/* Layer norm and the exact gelu on NEON. */
#include "kernels/erf.h"
#include "kernels/neon/exp.h"
#include "kernels/neon/lanes.h"
#include "kernels/tables.h"

/* The tree of halves over 16 partial sums. */
static float sum16(const float32x4_t sum[4]) {
    return sum4_neon(vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3])));
}

/* d with the lanes past the first n at 0. */
static float32x4_t only_part(float32x4_t d, int32_t n) {
    if (n >= 4) return d;
    float part[4];
    vst1q_f32(part, d);
    return load_part(part, n);
}

void ftki_layer_norm_neon(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    float32x4_t sum[4], squares[4];
    for (int32_t i = 0; i < 4; i++) sum[i] = squares[i] = vdupq_n_f32(0.0f);
    for (int32_t i = 0; i < n; i += 4) sum[i / 4 % 4] = vaddq_f32(sum[i / 4 % 4], load_part(x + i, n - i));
    float32x4_t mean = vdupq_n_f32(sum16(sum) / (float)n);
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t d = only_part(vsubq_f32(load_part(x + i, n - i), mean), n - i);
        squares[i / 4 % 4] = vfmaq_f32(squares[i / 4 % 4], d, d);
    }
    float factor = 1.0f / sqrtf(sum16(squares) / (float)n + eps);
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t d = vmulq_n_f32(vsubq_f32(load_part(x + i, n - i), mean), factor);
        store_part(y + i, n - i, vfmaq_f32(load_part(bias + i, n - i), d, load_part(weight + i, n - i)));
    }
}

static float32x4_t gelu4(float32x4_t v) {
    const float32x4_t one = vdupq_n_f32(1.0f), zero = vdupq_n_f32(0.0f);
    float32x4_t z = vminnmq_f32(vabsq_f32(v), vdupq_n_f32(FTKI_ERF_FAR)); /* of NaN the number */
    float32x4_t t = vdivq_f32(one, vfmaq_f32(one, z, vdupq_n_f32(FTKI_ERF_P)));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(FTKI_ERF_A4), t, vdupq_n_f32(FTKI_ERF_A5));
    p = vfmaq_f32(vdupq_n_f32(FTKI_ERF_A3), p, t);
    p = vfmaq_f32(vdupq_n_f32(FTKI_ERF_A2), p, t);
    p = vmulq_f32(vfmaq_f32(vdupq_n_f32(FTKI_ERF_A1), p, t), t);
    float32x4_t e = exp2_neon(vmulq_f32(vmulq_f32(z, z), vdupq_n_f32(FTKI_ERF_EXPONENT)));
    float32x4_t above = vbslq_f32(vcgtq_f32(zero, v), zero, v);
    return vsubq_f32(above, vmulq_f32(vmulq_f32(z, p), e));
}

void ftki_gelu_neon(const float *x, const float *bias, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t v = load_part(x + i, n - i);
        if (bias) v = vaddq_f32(v, load_part(bias + i, n - i));
        store_part(y + i, n - i, gelu4(v));
    }
}

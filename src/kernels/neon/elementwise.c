// SPDX-License-Identifier: Apache-2.0
/* Norm, rotation, activations and residual sums on NEON. */
#include "kernels/neon/exp.h"
#include "kernels/neon/lanes.h"
#include "kernels/tables.h"

void ftki_rms_norm_neon(const float *x, const float *weight, float eps, int32_t n, float *y) {
    float32x4_t sum[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t v = load_part(x + i, n - i);
        sum[i / 4 % 4] = vfmaq_f32(sum[i / 4 % 4], v, v);
    }
    float total = sum4_neon(vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3])));
    float factor = 1.0f / sqrtf(total / (float)n + eps);
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t v = vmulq_n_f32(load_part(x + i, n - i), factor);
        if (weight) v = vmulq_f32(v, load_part(weight + i, n - i));
        store_part(y + i, n - i, v);
    }
}

/* Four pairs: a c - b s and a s + b c. */
static void turn(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s) {
    float32x4_t first = vfmaq_f32(vnegq_f32(vmulq_f32(*b, s)), *a, c);
    *b = vfmaq_f32(vmulq_f32(*b, c), *a, s);
    *a = first;
}

static void rope_interleaved(float *x, const float *cos, const float *sin, int32_t half) {
    int32_t p = 0;
    for (; p + 4 <= half; p += 4) {
        float32x4x2_t pairs = vld2q_f32(x + 2 * p);
        turn(&pairs.val[0], &pairs.val[1], vld1q_f32(cos + p), vld1q_f32(sin + p));
        vst2q_f32(x + 2 * p, pairs);
    }
    for (; p < half; p++) {
        float32x4_t a = vdupq_n_f32(x[2 * p]), b = vdupq_n_f32(x[2 * p + 1]);
        turn(&a, &b, vdupq_n_f32(cos[p]), vdupq_n_f32(sin[p]));
        x[2 * p] = vgetq_lane_f32(a, 0);
        x[2 * p + 1] = vgetq_lane_f32(b, 0);
    }
}

static void rope_halves(float *x, const float *cos, const float *sin, int32_t half) {
    for (int32_t p = 0; p < half; p += 4) {
        float32x4_t a = load_part(x + p, half - p), b = load_part(x + half + p, half - p);
        turn(&a, &b, load_part(cos + p, half - p), load_part(sin + p, half - p));
        store_part(x + p, half - p, a);
        store_part(x + half + p, half - p, b);
    }
}

void ftki_rope_neon(float *x, const float *cos, const float *sin, int32_t head_dim, bool interleaved) {
    if (interleaved) rope_interleaved(x, cos, sin, head_dim / 2);
    else rope_halves(x, cos, sin, head_dim / 2);
}

/* gate / (1 + 2^exponent) * up */
static float32x4_t gated(float32x4_t gate, float32x4_t exponent, float32x4_t up) {
    float32x4_t below = vaddq_f32(vdupq_n_f32(1.0f), exp2_clamped_neon(exponent));
    return vmulq_f32(vdivq_f32(gate, below), up);
}

void ftki_silu_mul_neon(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t g = load_part(gate + i, n - i), exponent = vmulq_n_f32(g, -FTKI_LOG2E);
        store_part(y + i, n - i, gated(g, exponent, load_part(up + i, n - i)));
    }
}

void ftki_gelu_mul_neon(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t g = load_part(gate + i, n - i);
        float32x4_t inner = vfmaq_f32(vdupq_n_f32(FTKI_GELU_LINEAR), vmulq_f32(g, g), vdupq_n_f32(FTKI_GELU_CUBIC));
        store_part(y + i, n - i, gated(g, vmulq_f32(g, inner), load_part(up + i, n - i)));
    }
}

void ftki_add_neon(const float *x, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 4)
        store_part(y + i, n - i, vaddq_f32(load_part(y + i, n - i), load_part(x + i, n - i)));
}

// SPDX-License-Identifier: Apache-2.0
/* Vectors of 4 floats: parts of vectors, cleaning, across lanes. */
#ifndef FTKI_KERNELS_NEON_LANES_H
#define FTKI_KERNELS_NEON_LANES_H

#include <arm_neon.h>
#include <float.h>
#include <stdint.h>
#include <string.h>

/* The first n elements, 0 in lanes past them. */
static inline float32x4_t load_part(const float *x, int32_t n) {
    if (n >= 4) return vld1q_f32(x);
    float part[4] = {0};
    for (int32_t i = 0; i < n; i++) part[i] = x[i];
    return vld1q_f32(part);
}
static inline void store_part(float *x, int32_t n, float32x4_t v) {
    if (n >= 4) {
        vst1q_f32(x, v);
        return;
    }
    float part[4];
    vst1q_f32(part, v);
    for (int32_t i = 0; i < n; i++) x[i] = part[i];
}

/* NaN as 0, infinities as the largest finite value. */
static inline float32x4_t finite_neon(float32x4_t x) {
    x = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vceqq_f32(x, x)));
    return vmaxq_f32(vminq_f32(x, vdupq_n_f32(FLT_MAX)), vdupq_n_f32(-FLT_MAX));
}

/* Lanes added: i + (i + 2), then 1. */
static inline float sum4_neon(float32x4_t x) {
    float32x2_t a = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(a, 0) + vget_lane_f32(a, 1);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* exp.h on 4 lanes. */
#ifndef FTKI_KERNELS_NEON_EXP_H
#define FTKI_KERNELS_NEON_EXP_H

#include <arm_neon.h>

#include "kernels/exp.h"

static inline float32x4_t exp2_scaled_neon(float32x4_t p, float32x4_t t) {
    int32x4_t shift = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), shift));
}

static inline float32x4_t exp2_neon(float32x4_t d) {
    const float32x4_t round = vdupq_n_f32(FTKI_EXP_ROUND);
    d = vmaxnmq_f32(d, vdupq_n_f32(-127.0f)); /* NaN gives the number */
    float32x4_t t = vaddq_f32(d, round), f = vsubq_f32(d, vsubq_f32(t, round));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_C4), f, vdupq_n_f32(FTKI_EXP_C5));
    p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_C3), p, f);
    p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_C2), p, f);
    p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_C1), p, f);
    return exp2_scaled_neon(vfmaq_f32(vdupq_n_f32(1.0f), p, f), t);
}

static inline float32x4_t exp2_code_neon(float32x4_t d) {
    const float32x4_t round = vdupq_n_f32(FTKI_EXP_ROUND);
    d = vmaxnmq_f32(d, vdupq_n_f32(-127.0f));
    float32x4_t t = vaddq_f32(d, round), f = vsubq_f32(d, vsubq_f32(t, round));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_CODE_C2), f, vdupq_n_f32(FTKI_EXP_CODE_C3));
    p = vfmaq_f32(vdupq_n_f32(FTKI_EXP_CODE_C1), p, f);
    return exp2_scaled_neon(vfmaq_f32(vdupq_n_f32(1.0f), p, f), t);
}

static inline float32x4_t exp2_clamped_neon(float32x4_t d) {
    return exp2_neon(vminnmq_f32(d, vdupq_n_f32(128.0f)));
}

#endif

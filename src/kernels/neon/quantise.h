// SPDX-License-Identifier: Apache-2.0
/* One vector [head_dim] of a query, key or value to codes, as kernels.h states for INT8 pages. */
#ifndef FTKI_KERNELS_NEON_QUANTISE_H
#define FTKI_KERNELS_NEON_QUANTISE_H

#include "kernels/kv_layout.h"
#include "kernels/neon/lanes.h"
#include "kernels/neon/rotate.h"

typedef struct quantised {
    int8_t codes[FTKI_MAX_HEAD_DIM]; /* [dim] */
    float largest; /* max|x|, 0 when it counts as zero */
    int32_t sum;   /* of the codes */
} quantised;

static inline void quantise_neon(quantised *to, const float *x, int32_t head_dim, bool rotate) {
    const int32_t n = ftki_kv_dim(head_dim) / 4;
    float32x4_t v[FTKI_MAX_HEAD_DIM / 4], top = vdupq_n_f32(0.0f);
    for (int32_t i = 0; i < n; i++)
        v[i] = head_dim > 4 * i ? finite_neon(load_part(x + 4 * i, head_dim - 4 * i)) : vdupq_n_f32(0.0f);
    if (rotate) {
        rotate_neon(v, n);
        for (int32_t i = 0; i < n; i++) v[i] = finite_neon(v[i]);
    }
    for (int32_t i = 0; i < n; i++) top = vmaxq_f32(top, vabsq_f32(v[i]));
    to->largest = vmaxvq_f32(top);
    if (to->largest < FTKI_KV_TINY) to->largest = 0.0f;
    float inverse = to->largest > 0.0f ? 127.0f / to->largest : 0.0f;
    int32x4_t sum = vdupq_n_s32(0);
    for (int32_t i = 0; i < n; i += 2) {
        int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse)), b = vcvtnq_s32_f32(vmulq_n_f32(v[i + 1], inverse));
        sum = vaddq_s32(sum, vaddq_s32(a, b));
        vst1_s8(to->codes + 4 * i, vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b))));
    }
    to->sum = vaddvq_s32(sum);
}

#endif

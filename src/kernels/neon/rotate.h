// SPDX-License-Identifier: Apache-2.0
/* rotate.h on vectors of 4 elements: x [4 * n] holds dim = 16 * n elements. */
#ifndef FTKI_KERNELS_NEON_ROTATE_H
#define FTKI_KERNELS_NEON_ROTATE_H

#include <arm_neon.h>

#include "kernels/rotate.h"

/* a + b in lanes where bit h of the lane is 0, a - b in the others. */
static inline float32x4_t rotate_lanes_neon(float32x4_t x) {
    const uint32x4_t odd = {0, UINT32_MAX, 0, UINT32_MAX}, high = {0, 0, UINT32_MAX, UINT32_MAX};
    float32x4_t swapped = vrev64q_f32(x);
    x = vbslq_f32(odd, vsubq_f32(swapped, x), vaddq_f32(x, swapped));
    swapped = vextq_f32(x, x, 2);
    return vbslq_f32(high, vsubq_f32(swapped, x), vaddq_f32(x, swapped));
}

static inline void rotate_neon(float32x4_t *x, int32_t n_vectors) {
    while (n_vectors > 0) {
        int32_t n = ftki_rotate_piece(n_vectors);
        for (int32_t i = 0; i < n; i++) x[i] = rotate_lanes_neon(x[i]);
        for (int32_t h = 1; h < n; h *= 2)
            for (int32_t i = 0; i < n; i++) {
                if (i & h) continue;
                float32x4_t a = x[i], b = x[i + h];
                x[i] = vaddq_f32(a, b);
                x[i + h] = vsubq_f32(a, b);
            }
        float factor = 1.0f / sqrtf((float)(4 * n));
        for (int32_t i = 0; i < n; i++) x[i] = vmulq_n_f32(x[i], factor);
        x += n;
        n_vectors -= n;
    }
}

#endif

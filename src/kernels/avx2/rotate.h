// SPDX-License-Identifier: Apache-2.0
/* rotate.h on vectors of 8 elements: x [2 * n] holds dim = 16 * n elements. */
#ifndef FTKI_KERNELS_AVX2_ROTATE_H
#define FTKI_KERNELS_AVX2_ROTATE_H

#include <immintrin.h>

#include "kernels/rotate.h"

/* a + b in lanes where bit h of the lane is 0, a - b in the others; swapped holds lane ^ h. */
#define ROTATE_STAGE(x, swapped, lanes) \
    _mm256_blend_ps(_mm256_add_ps(x, swapped), _mm256_sub_ps(swapped, x), lanes)

static inline __m256 rotate_lanes_avx2(__m256 x) {
    x = ROTATE_STAGE(x, _mm256_permute_ps(x, 0xb1), 0xaa);
    x = ROTATE_STAGE(x, _mm256_permute_ps(x, 0x4e), 0xcc);
    return ROTATE_STAGE(x, _mm256_permute2f128_ps(x, x, 0x01), 0xf0);
}

static inline void rotate_avx2(__m256 *x, int32_t n_vectors) {
    while (n_vectors > 0) {
        int32_t n = ftki_rotate_piece(n_vectors);
        for (int32_t i = 0; i < n; i++) x[i] = rotate_lanes_avx2(x[i]);
        for (int32_t h = 1; h < n; h *= 2)
            for (int32_t i = 0; i < n; i++) {
                if (i & h) continue;
                __m256 a = x[i], b = x[i + h];
                x[i] = _mm256_add_ps(a, b);
                x[i + h] = _mm256_sub_ps(a, b);
            }
        __m256 factor = _mm256_set1_ps(1.0f / sqrtf((float)(8 * n)));
        for (int32_t i = 0; i < n; i++) x[i] = _mm256_mul_ps(x[i], factor);
        x += n;
        n_vectors -= n;
    }
}

#endif

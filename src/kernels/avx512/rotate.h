// SPDX-License-Identifier: Apache-2.0
/* rotate.h on vectors of 16 elements: x [n_vectors] holds dim = 16 * n_vectors elements. */
#ifndef FTKI_KERNELS_AVX512_ROTATE_H
#define FTKI_KERNELS_AVX512_ROTATE_H

#include <immintrin.h>

#include "kernels/rotate.h"

/* a + b in lanes where bit h of the lane is 0, a - b in the others; swapped holds lane ^ h. */
#define ROTATE_STAGE(x, swapped, lanes) \
    _mm512_mask_sub_ps(_mm512_add_ps(x, swapped), lanes, swapped, x)

static inline __m512 rotate_lanes_avx512(__m512 x) {
    x = ROTATE_STAGE(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
    x = ROTATE_STAGE(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
    x = ROTATE_STAGE(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
    return ROTATE_STAGE(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

static inline void rotate_avx512(__m512 *x, int32_t n_vectors) {
    while (n_vectors > 0) {
        int32_t n = ftki_rotate_piece(n_vectors);
        for (int32_t i = 0; i < n; i++) x[i] = rotate_lanes_avx512(x[i]);
        for (int32_t h = 1; h < n; h *= 2)
            for (int32_t i = 0; i < n; i++) {
                if (i & h) continue;
                __m512 a = x[i], b = x[i + h];
                x[i] = _mm512_add_ps(a, b);
                x[i + h] = _mm512_sub_ps(a, b);
            }
        __m512 factor = _mm512_set1_ps(1.0f / sqrtf((float)(16 * n)));
        for (int32_t i = 0; i < n; i++) x[i] = _mm512_mul_ps(x[i], factor);
        x += n;
        n_vectors -= n;
    }
}

#endif

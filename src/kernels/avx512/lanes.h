// SPDX-License-Identifier: Apache-2.0
/* Vectors of 16 floats: parts of vectors, cleaning, across lanes. */
#ifndef FTKI_KERNELS_AVX512_LANES_H
#define FTKI_KERNELS_AVX512_LANES_H

#include <float.h>
#include <immintrin.h>
#include <stdint.h>

/* The first n lanes, none below 0, at most 16. */
static inline __mmask16 lanes_left(int32_t n) {
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* NaN as 0, infinities as the largest finite value. */
static inline __m512 finite_avx512(__m512 x) {
    const __m512 largest = _mm512_set1_ps(FLT_MAX), smallest = _mm512_set1_ps(-FLT_MAX);
    x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    return _mm512_max_ps(_mm512_min_ps(x, largest), smallest);
}

/* Columns of 16 rows: lane c of row r goes to lane r of row c. */
static inline void transpose16_avx512(__m512 *x) {
    __m512 y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int half = 0; half < 2; half++) {
            __m512d low = _mm512_castps_pd(y[i + half]), high = _mm512_castps_pd(y[i + 2 + half]);
            x[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    /* x[4b + c] holds columns c, c + 4, c + 8, c + 12 of rows 4b .. 4b + 3. */
    for (int c = 0; c < 4; c++) {
        __m512 a = _mm512_shuffle_f32x4(x[c], x[c + 4], 0x88), b = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0x88);
        y[c] = _mm512_shuffle_f32x4(a, b, 0x88);
        y[c + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
        a = _mm512_shuffle_f32x4(x[c], x[c + 4], 0xdd);
        b = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0xdd);
        y[c + 4] = _mm512_shuffle_f32x4(a, b, 0x88);
        y[c + 12] = _mm512_shuffle_f32x4(a, b, 0xdd);
    }
    for (int i = 0; i < 16; i++) x[i] = y[i];
}

/* Lanes added, or the largest, as a tree of halves: i + (i + 8), then 4, 2, 1. */
static inline float sum16_avx512(__m512 x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

static inline float max16_avx512(__m512 x) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* Vectors of 8 floats: parts of vectors, cleaning, across lanes. */
#ifndef FTKI_KERNELS_AVX2_LANES_H
#define FTKI_KERNELS_AVX2_LANES_H

#include <float.h>
#include <immintrin.h>
#include <stdint.h>

/* All bits set in the first n lanes. */
static inline __m256i lanes_left(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}
static inline __m256 load_part(const float *x, int32_t n) {
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes_left(n));
}
static inline void store_part(float *x, int32_t n, __m256 v) {
    if (n >= 8) _mm256_storeu_ps(x, v);
    else _mm256_maskstore_ps(x, lanes_left(n), v);
}

/* NaN as 0, infinities as the largest finite value. */
static inline __m256 finite_avx2(__m256 x) {
    const __m256 largest = _mm256_set1_ps(FLT_MAX), smallest = _mm256_set1_ps(-FLT_MAX);
    x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return _mm256_max_ps(_mm256_min_ps(x, largest), smallest);
}

static inline __m256 abs_avx2(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

/* Lanes added, or the largest, as a tree of halves: i + (i + 4), then 2, 1. */
static inline float sum8_avx2(__m256 x) {
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
static inline float max8_avx2(__m256 x) {
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

#endif

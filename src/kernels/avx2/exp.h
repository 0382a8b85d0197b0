// SPDX-License-Identifier: Apache-2.0
/* exp.h on 8 lanes. */
#ifndef FTKI_KERNELS_AVX2_EXP_H
#define FTKI_KERNELS_AVX2_EXP_H

#include <immintrin.h>

#include "kernels/exp.h"

static inline __m256 exp2_scaled_avx2(__m256 p, __m256 t) {
    __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
}

static inline __m256 exp2_avx2(__m256 d) {
    const __m256 round = _mm256_set1_ps(FTKI_EXP_ROUND);
    d = _mm256_max_ps(d, _mm256_set1_ps(-127.0f)); /* NaN gives the second operand */
    __m256 t = _mm256_add_ps(d, round);
    __m256 f = _mm256_sub_ps(d, _mm256_sub_ps(t, round));
    __m256 p = _mm256_fmadd_ps(f, _mm256_set1_ps(FTKI_EXP_C5), _mm256_set1_ps(FTKI_EXP_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(FTKI_EXP_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(FTKI_EXP_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(FTKI_EXP_C1));
    return exp2_scaled_avx2(_mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f)), t);
}

static inline __m256 exp2_code_avx2(__m256 d) {
    const __m256 round = _mm256_set1_ps(FTKI_EXP_ROUND);
    d = _mm256_max_ps(d, _mm256_set1_ps(-127.0f));
    __m256 t = _mm256_add_ps(d, round);
    __m256 f = _mm256_sub_ps(d, _mm256_sub_ps(t, round));
    __m256 p = _mm256_fmadd_ps(f, _mm256_set1_ps(FTKI_EXP_CODE_C3), _mm256_set1_ps(FTKI_EXP_CODE_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(FTKI_EXP_CODE_C1));
    return exp2_scaled_avx2(_mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f)), t);
}

static inline __m256 exp2_clamped_avx2(__m256 d) {
    return exp2_avx2(_mm256_min_ps(d, _mm256_set1_ps(128.0f)));
}

#endif

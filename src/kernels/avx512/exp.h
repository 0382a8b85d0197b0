// SPDX-License-Identifier: Apache-2.0
/* exp.h on 16 lanes. */
#ifndef FTKI_KERNELS_AVX512_EXP_H
#define FTKI_KERNELS_AVX512_EXP_H

#include <immintrin.h>

#include "kernels/exp.h"

static inline __m512 exp2_avx512(__m512 d) {
    const __m512 round = _mm512_set1_ps(FTKI_EXP_ROUND);
    d = _mm512_max_ps(d, _mm512_set1_ps(-127.0f)); /* NaN gives the second operand */
    __m512 t = _mm512_add_ps(d, round);
    __m512 f = _mm512_sub_ps(d, _mm512_sub_ps(t, round));
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(FTKI_EXP_C5), _mm512_set1_ps(FTKI_EXP_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(FTKI_EXP_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(FTKI_EXP_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(FTKI_EXP_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), shift));
}

/* d <= 0, -infinity or NaN from infinities (whose sign is set): the clamp compares bits. */
static inline __m512 exp2_code_avx512(__m512 d) {
    const __m512 round = _mm512_set1_ps(FTKI_EXP_ROUND);
    d = _mm512_castsi512_ps(_mm512_min_epu32(_mm512_castps_si512(d), _mm512_castps_si512(_mm512_set1_ps(-127.0f))));
    __m512 t = _mm512_add_ps(d, round);
    __m512 f = _mm512_sub_ps(d, _mm512_sub_ps(t, round));
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(FTKI_EXP_CODE_C3), _mm512_set1_ps(FTKI_EXP_CODE_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(FTKI_EXP_CODE_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), shift));
}

static inline __m512 exp2_clamped_avx512(__m512 d) {
    return exp2_avx512(_mm512_min_ps(d, _mm512_set1_ps(127.0f)));
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

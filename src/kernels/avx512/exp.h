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
    return exp2_avx512(_mm512_min_ps(d, _mm512_set1_ps(128.0f)));
}

#endif

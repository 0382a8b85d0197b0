// SPDX-License-Identifier: Apache-2.0
/* Layer norm and the exact gelu on AVX2. */
#include "kernels/avx2/exp.h"
#include "kernels/avx2/lanes.h"
#include "kernels/erf.h"
#include "kernels/tables.h"

void ftki_layer_norm_avx2(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                          float *y) {
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t i = 0; i < n; i += 8)
        sum[i / 8 % 2] = _mm256_add_ps(sum[i / 8 % 2], load_part(x + i, n - i));
    __m256 mean = _mm256_set1_ps(sum8_avx2(_mm256_add_ps(sum[0], sum[1])) / (float)n);
    sum[0] = sum[1] = _mm256_setzero_ps();
    for (int32_t i = 0; i < n; i += 8) {
        __m256 d = _mm256_sub_ps(load_part(x + i, n - i), mean);
        if (n - i < 8) d = _mm256_and_ps(d, _mm256_castsi256_ps(lanes_left(n - i)));
        sum[i / 8 % 2] = _mm256_fmadd_ps(d, d, sum[i / 8 % 2]);
    }
    float squares = sum8_avx2(_mm256_add_ps(sum[0], sum[1]));
    __m256 factor = _mm256_set1_ps(1.0f / sqrtf(squares / (float)n + eps));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 d = _mm256_mul_ps(_mm256_sub_ps(load_part(x + i, n - i), mean), factor);
        store_part(y + i, n - i, _mm256_fmadd_ps(d, load_part(weight + i, n - i), load_part(bias + i, n - i)));
    }
}

static __m256 gelu8(__m256 v) {
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 z = _mm256_min_ps(abs_avx2(v), _mm256_set1_ps(FTKI_ERF_FAR));
    __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(z, _mm256_set1_ps(FTKI_ERF_P), one));
    __m256 p = _mm256_fmadd_ps(t, _mm256_set1_ps(FTKI_ERF_A5), _mm256_set1_ps(FTKI_ERF_A4));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(FTKI_ERF_A3));
    p = _mm256_fmadd_ps(p, t, _mm256_set1_ps(FTKI_ERF_A2));
    p = _mm256_mul_ps(_mm256_fmadd_ps(p, t, _mm256_set1_ps(FTKI_ERF_A1)), t);
    __m256 e = exp2_avx2(_mm256_mul_ps(_mm256_mul_ps(z, z), _mm256_set1_ps(FTKI_ERF_EXPONENT)));
    __m256 below = _mm256_mul_ps(_mm256_mul_ps(z, p), e);
    return _mm256_sub_ps(_mm256_max_ps(_mm256_setzero_ps(), v), below); /* of NaN the second operand */
}

void ftki_gelu_avx2(const float *x, const float *bias, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        if (bias) v = _mm256_add_ps(v, load_part(bias + i, n - i));
        store_part(y + i, n - i, gelu8(v));
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Norm, rotation, activations and residual sums on AVX2. */
#include "kernels/avx2/exp.h"
#include "kernels/avx2/lanes.h"
#include "kernels/tables.h"

void ftki_rms_norm_avx2(const float *x, const float *weight, float eps, int32_t n, float *y) {
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        sum[i / 8 % 2] = _mm256_fmadd_ps(v, v, sum[i / 8 % 2]);
    }
    float total = sum8_avx2(_mm256_add_ps(sum[0], sum[1]));
    __m256 factor = _mm256_set1_ps(1.0f / sqrtf(total / (float)n + eps));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_part(x + i, n - i), factor);
        if (weight) v = _mm256_mul_ps(v, load_part(weight + i, n - i));
        store_part(y + i, n - i, v);
    }
}

/* Pairs (2p, 2p + 1) in neighbouring lanes: even lanes fma(a, c, -(b s)), odd ones fma(a, s, b c). */
static void rope_interleaved(float *x, const float *cos, const float *sin, int32_t half) {
    for (int32_t p = 0; p < half; p += 4) {
        __m256 c = load_part(cos + p, half - p < 4 ? half - p : 4), s = load_part(sin + p, half - p < 4 ? half - p : 4);
        const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
        c = _mm256_permutevar8x32_ps(c, twice);
        s = _mm256_permutevar8x32_ps(s, twice);
        __m256 v = load_part(x + 2 * p, 2 * (half - p));
        __m256 a = _mm256_moveldup_ps(v), b = _mm256_movehdup_ps(v);
        __m256 first = _mm256_blend_ps(c, s, 0xaa), second = _mm256_blend_ps(s, c, 0xaa);
        store_part(x + 2 * p, 2 * (half - p), _mm256_fmaddsub_ps(a, first, _mm256_mul_ps(b, second)));
    }
}

static void rope_halves(float *x, const float *cos, const float *sin, int32_t half) {
    for (int32_t p = 0; p < half; p += 8) {
        __m256 c = load_part(cos + p, half - p), s = load_part(sin + p, half - p);
        __m256 a = load_part(x + p, half - p), b = load_part(x + half + p, half - p);
        store_part(x + p, half - p, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        store_part(x + half + p, half - p, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
    }
}

void ftki_rope_avx2(float *x, const float *cos, const float *sin, int32_t head_dim, bool interleaved) {
    if (interleaved) rope_interleaved(x, cos, sin, head_dim / 2);
    else rope_halves(x, cos, sin, head_dim / 2);
}

/* gate / (1 + 2^exponent) * up */
static __m256 gated(__m256 gate, __m256 exponent, __m256 up) {
    __m256 below = _mm256_add_ps(_mm256_set1_ps(1.0f), exp2_clamped_avx2(exponent));
    return _mm256_mul_ps(_mm256_div_ps(gate, below), up);
}

void ftki_silu_mul_avx2(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 8) {
        __m256 g = load_part(gate + i, n - i), exponent = _mm256_mul_ps(g, _mm256_set1_ps(-FTKI_LOG2E));
        store_part(y + i, n - i, gated(g, exponent, load_part(up + i, n - i)));
    }
}

void ftki_gelu_mul_avx2(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 8) {
        __m256 g = load_part(gate + i, n - i);
        __m256 inner = _mm256_fmadd_ps(_mm256_mul_ps(g, g), _mm256_set1_ps(FTKI_GELU_CUBIC),
                                       _mm256_set1_ps(FTKI_GELU_LINEAR));
        store_part(y + i, n - i, gated(g, _mm256_mul_ps(g, inner), load_part(up + i, n - i)));
    }
}

void ftki_add_avx2(const float *x, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 8)
        store_part(y + i, n - i, _mm256_add_ps(load_part(y + i, n - i), load_part(x + i, n - i)));
}

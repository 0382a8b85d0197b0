// SPDX-License-Identifier: Apache-2.0
/* Norm, rotation, activations and residual sums on AVX-512. */
#include "kernels/avx512/exp.h"
#include "kernels/avx512/lanes.h"
#include "kernels/tables.h"

void ftki_rms_norm_avx512(const float *x, const float *weight, float eps, int32_t n, float *y) {
    __m512 sum = _mm512_setzero_ps();
    for (int32_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_maskz_loadu_ps(lanes_left(n - i), x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    __m512 factor = _mm512_set1_ps(1.0f / sqrtf(sum16_avx512(sum) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_left(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(here, x + i), factor);
        if (weight) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(here, weight + i));
        _mm512_mask_storeu_ps(y + i, here, v);
    }
}

/* Pairs (2p, 2p + 1) in neighbouring lanes: a*c - b*s in even lanes, b*c + a*s in odd ones, the
 * product b*(-+s) rounded first as in a*c - (b*s), a*s + (b*c). */
static void rope_interleaved(float *x, const float *cos, const float *sin, int32_t half) {
    const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (int32_t p = 0; p < half; p += 8) {
        __mmask16 pairs = lanes_left(half - p) & 0xff, here = lanes_left(2 * (half - p));
        __m512 c = _mm512_permutexvar_ps(low, _mm512_maskz_loadu_ps(pairs, cos + p));
        __m512 s = _mm512_permutexvar_ps(low, _mm512_maskz_loadu_ps(pairs, sin + p));
        __m512 v = _mm512_maskz_loadu_ps(here, x + 2 * p);
        __m512 a = _mm512_moveldup_ps(v), b = _mm512_movehdup_ps(v);
        /* even: fma(a, c, -(b s)); odd: fma(a, s, b c) */
        __m512 first = _mm512_mask_mov_ps(c, 0xaaaa, s), second = _mm512_mask_mov_ps(s, 0xaaaa, c);
        _mm512_mask_storeu_ps(x + 2 * p, here, _mm512_fmaddsub_ps(a, first, _mm512_mul_ps(b, second)));
    }
}

static void rope_halves(float *x, const float *cos, const float *sin, int32_t half) {
    for (int32_t p = 0; p < half; p += 16) {
        __mmask16 here = lanes_left(half - p);
        __m512 c = _mm512_maskz_loadu_ps(here, cos + p), s = _mm512_maskz_loadu_ps(here, sin + p);
        __m512 a = _mm512_maskz_loadu_ps(here, x + p), b = _mm512_maskz_loadu_ps(here, x + half + p);
        _mm512_mask_storeu_ps(x + p, here, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + half + p, here, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
    }
}

void ftki_rope_avx512(float *x, const float *cos, const float *sin, int32_t head_dim,
                      bool interleaved) {
    if (interleaved) rope_interleaved(x, cos, sin, head_dim / 2);
    else rope_halves(x, cos, sin, head_dim / 2);
}

/* gate / (1 + 2^exponent) * up */
static __m512 gated(__m512 gate, __m512 exponent, __m512 up) {
    __m512 below = _mm512_add_ps(_mm512_set1_ps(1.0f), exp2_clamped_avx512(exponent));
    return _mm512_mul_ps(_mm512_div_ps(gate, below), up);
}

void ftki_silu_mul_avx512(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_left(n - i);
        __m512 g = _mm512_maskz_loadu_ps(here, gate + i);
        __m512 exponent = _mm512_mul_ps(g, _mm512_set1_ps(-FTKI_LOG2E));
        _mm512_mask_storeu_ps(y + i, here, gated(g, exponent, _mm512_maskz_loadu_ps(here, up + i)));
    }
}

void ftki_gelu_mul_avx512(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_left(n - i);
        __m512 g = _mm512_maskz_loadu_ps(here, gate + i);
        __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(g, g), _mm512_set1_ps(FTKI_GELU_CUBIC),
                                       _mm512_set1_ps(FTKI_GELU_LINEAR));
        __m512 exponent = _mm512_mul_ps(g, inner);
        _mm512_mask_storeu_ps(y + i, here, gated(g, exponent, _mm512_maskz_loadu_ps(here, up + i)));
    }
}

void ftki_add_avx512(const float *x, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 here = lanes_left(n - i);
        _mm512_mask_storeu_ps(y + i, here, _mm512_add_ps(_mm512_maskz_loadu_ps(here, y + i), _mm512_maskz_loadu_ps(here, x + i)));
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Activations to INT8 for AVX-512: a block of 32 inputs is two vectors; the sums of the codes
 * come from a dot product with ones. */
#include <float.h>
#include <immintrin.h>

#include "kernels/tables.h"

static const float smallest_max = 0x1p-100f;

static inline __m512 cleaned(__m512 x) {
    x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-FLT_MAX)), _mm512_set1_ps(FLT_MAX));
}

/* Magnitudes order alike as floats and as the integers of their bits; infinities and NaN are at or
 * above the bits of infinity. */
static inline int32_t largest_bits(__m512 low, __m512 high) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i a = _mm512_and_si512(_mm512_castps_si512(low), magnitude);
    __m512i b = _mm512_and_si512(_mm512_castps_si512(high), magnitude);
    return _mm512_reduce_max_epi32(_mm512_max_epi32(a, b));
}

static inline void quantize_block(const float *src, ftki_act_block *out, int32_t row) {
    __m512 low = _mm512_loadu_ps(src), high = _mm512_loadu_ps(src + 16);
    int32_t bits = largest_bits(low, high);
    if (__builtin_expect(bits >= 0x7f800000, 0)) {
        low = cleaned(low);
        high = cleaned(high);
        bits = largest_bits(low, high);
    }
    float max = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    float scale = max < smallest_max ? 0.0f : max / 127.0f;
    float inverse = max < smallest_max ? 0.0f : 1.0f / scale;

    __m512 factor = _mm512_set1_ps(inverse);
    __m128i q_low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(low, factor)));
    __m128i q_high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(high, factor)));
    __m256i q = _mm256_set_m128i(q_high, q_low);
    _mm256_storeu_si256((__m256i *)(void *)out->q[row], q);

    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    int32_t first = _mm256_cvtsi256_si32(sums);
    int32_t sum = first + _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    out->scale[row] = scale;
    out->scaled_sum[row] = scale * (float)sum;
    out->minus_sum[row] = -sum;
    out->minus_first[row] = -first;
}

void ftki_quantize_avx512(const ftki_acts *x, const float *src, size_t src_stride, int32_t begin,
                          int32_t end) {
    int32_t n_blocks = x->cols / FTKI_BLOCK;
    for (int32_t r = begin; r < end; r++) {
        ftki_act_block *out = x->blocks + (size_t)(r / FTKI_ACT_ROWS) * (size_t)n_blocks;
        const float *row = src + (size_t)r * src_stride;
        for (int32_t b = 0; b < n_blocks; b++)
            quantize_block(row + (size_t)b * FTKI_BLOCK, out + b, r % FTKI_ACT_ROWS);
    }
}

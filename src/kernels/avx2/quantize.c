// SPDX-License-Identifier: Apache-2.0
/* Activations to INT8 for AVX2: a block of 32 inputs is four vectors. */
#include <float.h>
#include <immintrin.h>

#include "kernels/tables.h"

static const float smallest_max = 0x1p-100f;

static inline __m256 cleaned(__m256 x) {
    x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    return _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-FLT_MAX)), _mm256_set1_ps(FLT_MAX));
}

static inline float reduce_max(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

static inline void quantize_block(const float *src, ftki_act_block *out, int32_t row) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 x[4], largest = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        x[i] = cleaned(_mm256_loadu_ps(src + 8 * i));
        largest = _mm256_max_ps(largest, _mm256_and_ps(x[i], magnitude));
    }
    float max = reduce_max(largest);
    float scale = max < smallest_max ? 0.0f : max / 127.0f;
    float inverse = max < smallest_max ? 0.0f : 1.0f / scale;

    __m256 factor = _mm256_set1_ps(inverse);
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], factor));
    /* Packing works within 128-bit lanes; the permutation puts groups of four back in order. */
    __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out->q[row], q);

    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    sums = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    int32_t first = _mm256_cvtsi256_si32(sums);
    int32_t sum = first + _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    out->scale[row] = scale;
    out->scaled_sum[row] = scale * (float)sum;
    out->minus_sum[row] = -sum;
    out->minus_first[row] = -first;
}

void ftki_quantize_avx2(const ftki_acts *x, const float *src, size_t src_stride, int32_t begin,
                        int32_t end) {
    int32_t n_blocks = x->cols / FTKI_BLOCK;
    for (int32_t r = begin; r < end; r++) {
        ftki_act_block *out = x->blocks + (size_t)(r / FTKI_ACT_ROWS) * (size_t)n_blocks;
        const float *row = src + (size_t)r * src_stride;
        for (int32_t b = 0; b < n_blocks; b++)
            quantize_block(row + (size_t)b * FTKI_BLOCK, out + b, r % FTKI_ACT_ROWS);
    }
}

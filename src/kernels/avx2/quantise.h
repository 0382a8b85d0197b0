// SPDX-License-Identifier: Apache-2.0
/* One vector [head_dim] of a query, key or value to codes, as kernels.h states for INT8 pages. */
#ifndef FTKI_KERNELS_AVX2_QUANTISE_H
#define FTKI_KERNELS_AVX2_QUANTISE_H

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/rotate.h"
#include "kernels/kv_layout.h"

typedef struct quantised {
    int8_t codes[FTKI_MAX_HEAD_DIM]; /* [dim] */
    float largest; /* max|x|, 0 when it counts as zero */
    int32_t sum;   /* of the codes */
} quantised;

static inline void quantise_avx2(quantised *to, const float *x, int32_t head_dim, bool rotate) {
    const int32_t n = ftki_kv_dim(head_dim) / 8;
    __m256 v[FTKI_MAX_HEAD_DIM / 8], top = _mm256_setzero_ps();
    for (int32_t i = 0; i < n; i++)
        v[i] = head_dim > 8 * i ? finite_avx2(load_part(x + 8 * i, head_dim - 8 * i)) : _mm256_setzero_ps();
    if (rotate) {
        rotate_avx2(v, n);
        for (int32_t i = 0; i < n; i++) v[i] = finite_avx2(v[i]);
    }
    for (int32_t i = 0; i < n; i++) top = _mm256_max_ps(top, abs_avx2(v[i]));
    to->largest = max8_avx2(top);
    if (to->largest < FTKI_KV_TINY) to->largest = 0.0f;
    __m256 inverse = _mm256_set1_ps(to->largest > 0.0f ? 127.0f / to->largest : 0.0f);
    to->sum = 0;
    for (int32_t i = 0; i < n; i++) {
        __m256i wide = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
        _mm_storel_epi64((__m128i *)(void *)(to->codes + 8 * i), _mm_packs_epi16(words, words));
        for (int32_t k = 0; k < 8; k++) to->sum += to->codes[8 * i + k];
    }
}

#endif

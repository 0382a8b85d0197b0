// SPDX-License-Identifier: Apache-2.0
/* One vector [head_dim] of a query, key or value to codes, as kernels.h states for INT8 pages. */
#ifndef FTKI_KERNELS_AVX512_QUANTISE_H
#define FTKI_KERNELS_AVX512_QUANTISE_H

#include "kernels/avx512/lanes.h"
#include "kernels/avx512/rotate.h"
#include "kernels/kv_layout.h"

typedef struct quantised {
    int8_t codes[FTKI_MAX_HEAD_DIM] __attribute__((aligned(64))); /* [dim] */
    float largest; /* max|x|, 0 when it counts as zero */
    int32_t sum;   /* of the codes */
} quantised;

static inline void quantise_avx512(quantised *to, const float *x, int32_t head_dim, bool rotate) {
    const int32_t n = ftki_kv_dim(head_dim) / 16;
    __m512 v[FTKI_MAX_HEAD_DIM / 16], top = _mm512_setzero_ps();
    for (int32_t i = 0; i < n; i++)
        v[i] = finite_avx512(_mm512_maskz_loadu_ps(lanes_left(head_dim - 16 * i), x + 16 * i));
    if (rotate) {
        rotate_avx512(v, n);
        for (int32_t i = 0; i < n; i++) v[i] = finite_avx512(v[i]);
    }
    for (int32_t i = 0; i < n; i++) top = _mm512_max_ps(top, _mm512_abs_ps(v[i]));
    to->largest = max16_avx512(top);
    if (to->largest < FTKI_KV_TINY) to->largest = 0.0f;
    __m512 inverse = _mm512_set1_ps(to->largest > 0.0f ? 127.0f / to->largest : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int32_t i = 0; i < n; i++) {
        __m512i codes = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
        sum = _mm512_add_epi32(sum, codes);
        _mm_store_si128((__m128i *)(void *)(to->codes + 16 * i), _mm512_cvtepi32_epi8(codes));
    }
    to->sum = _mm512_reduce_add_epi32(sum);
}

#endif

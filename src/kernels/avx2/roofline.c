// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with AVX2. */
#include <immintrin.h>

#include "kernels/tables.h"

/* The chains stay in registers only if every loop over them is unrolled; each is named to the
 * compiler by itself, or it would see that all are equal and compute one. */
#define UNROLL _Pragma("GCC unroll 16")
enum { CHAINS = 8 };

/* A dot product of 8 x 4 bytes is vpmaddubsw, vpmaddwd and an addition. */
uint64_t ftki_dot_peak_avx2(int64_t iterations) {
    __m256i sum[CHAINS], w = _mm256_set1_epi8(3), q = _mm256_set1_epi8(-5);
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int c = 0; c < CHAINS; c++) sum[c] = _mm256_set1_epi32(c);
    for (int64_t i = 0; i < iterations; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            __asm__ volatile("" : "+x"(w)); /* each product anew */
            sum[c] = _mm256_add_epi32(sum[c], _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), ones));
        }
    }
    UNROLL for (int c = 0; c < CHAINS; c++) __asm__ volatile("" : : "x"(sum[c]));
    return (uint64_t)iterations * CHAINS * 64;
}

uint64_t ftki_sum_words_avx2(const uint64_t *words, size_t n) {
    __m256i sum[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 4; k++)
            sum[k] = _mm256_add_epi64(sum[k], _mm256_load_si256((const __m256i *)(const void *)(words + i + 4 * k)));
    __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
    uint64_t part[4], rest = 0;
    _mm256_storeu_si256((__m256i *)(void *)part, all);
    for (; i < n; i++) rest += words[i];
    return rest + part[0] + part[1] + part[2] + part[3];
}

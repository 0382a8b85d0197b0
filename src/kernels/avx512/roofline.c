// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with AVX-512 and VNNI. */
#include <immintrin.h>

#include "kernels/tables.h"

/* The chains stay in registers only if every loop over them is unrolled; each is named to the
 * compiler by itself, or it would see that all are equal and compute one. */
#define UNROLL _Pragma("GCC unroll 16")
enum { CHAINS = 12 };

uint64_t ftki_dot_peak_avx512(int64_t iterations) {
    __m512i sum[CHAINS], w = _mm512_set1_epi8(3), q = _mm512_set1_epi8(-5);
    UNROLL for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_set1_epi32(c);
    for (int64_t i = 0; i < iterations; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm512_dpbusd_epi32(sum[c], w, q);
            __asm__ volatile("" : "+v"(sum[c]));
        }
    }
    UNROLL for (int c = 0; c < CHAINS; c++) __asm__ volatile("" : : "v"(sum[c]));
    return (uint64_t)iterations * CHAINS * 128;
}

uint64_t ftki_sum_words_avx512(const uint64_t *words, size_t n) {
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                      _mm512_setzero_si512()};
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 4; k++)
            sum[k] = _mm512_add_epi64(sum[k], _mm512_load_si512(words + i + 8 * k));
    __m512i all = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    uint64_t part[8], rest = 0; /* by hand: the compiler's own reduction adds as signed numbers */
    _mm512_storeu_si512(part, all);
    for (size_t k = 0; k < 8; k++) rest += part[k];
    for (; i < n; i++) rest += words[i];
    return rest;
}

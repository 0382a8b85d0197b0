// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with AVX2. */
#include <immintrin.h>

#include "kernels/tables.h"

enum { CHAINS = 8 };

/* A dot product of 8 x 4 bytes is vpmaddubsw, vpmaddwd and an addition. Eight chains hide their
 * latency; variables, not an array: GCC keeps an array that an asm statement names in memory. */
uint64_t ftki_dot_peak_avx2(int64_t iterations) {
    const __m256i q = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);
    __m256i w = _mm256_set1_epi8(3), a = w, b = w, c = w, d = w, e = w, f = w, g = w, h = w;
#define DOT(x)                                               \
    __asm__ volatile("" : "+x"(w)); /* each product anew */     \
    x = _mm256_add_epi32(x, _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), ones))
    for (int64_t n = 0; n < iterations; n++) {
        DOT(a); DOT(b); DOT(c); DOT(d); DOT(e); DOT(f); DOT(g); DOT(h);
    }
#undef DOT
    __asm__ volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d), "x"(e), "x"(f), "x"(g), "x"(h));
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

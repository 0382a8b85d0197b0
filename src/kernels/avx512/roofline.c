// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with AVX-512 and VNNI. */
#include <immintrin.h>

#include "kernels/tables.h"

enum { CHAINS = 12 };

/* Twelve chains hide the instruction's latency. Variables, not an array: GCC keeps an array that an
 * asm statement names in memory, and the loop then measures the store buffer. */
uint64_t ftki_dot_peak_avx512(int64_t iterations) {
    __m512i w = _mm512_set1_epi8(3), q = _mm512_set1_epi8(-5), a = w, b = w, c = w, d = w, e = w, f = w, g = w,
            h = w, i = w, j = w, k = w, l = w;
#define DOT(x) x = _mm512_dpbusd_epi32(x, w, q)
    for (int64_t n = 0; n < iterations; n++) {
        DOT(a); DOT(b); DOT(c); DOT(d); DOT(e); DOT(f); DOT(g); DOT(h); DOT(i); DOT(j); DOT(k); DOT(l);
        __asm__ volatile("" : "+v"(w)); /* the next round may not be foreseen */
    }
#undef DOT
    __asm__ volatile("" : : "v"(a), "v"(b), "v"(c), "v"(d), "v"(e), "v"(f));
    __asm__ volatile("" : : "v"(g), "v"(h), "v"(i), "v"(j), "v"(k), "v"(l));
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
    for (; i < n; i++) rest += words[i];
    for (size_t k = 0; k < 8; k++) rest += part[k];
    return rest;
}

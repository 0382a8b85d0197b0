// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine in plain C. */
#include "kernels/tables.h"

/* The chains stay in registers only if every loop over them is unrolled. */
#define UNROLL _Pragma("GCC unroll 16")
enum { CHAINS = 8 };

uint64_t ftki_dot_peak_scalar(int64_t iterations) {
    uint32_t sum[CHAINS] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t factor = 3;
    for (int64_t i = 0; i < iterations; i++) {
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * factor + 1;
        __asm__ volatile("" : "+r"(factor)); /* the compiler may not foresee the next round */
    }
    uint32_t all = 0;
    UNROLL for (int c = 0; c < CHAINS; c++) all ^= sum[c];
    __asm__ volatile("" : : "r"(all));
    return (uint64_t)iterations * CHAINS * 2;
}

uint64_t ftki_sum_words_scalar(const uint64_t *words, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += words[i];
    return sum;
}

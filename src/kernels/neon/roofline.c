// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with the dot product of ARM. */
#include <arm_neon.h>

#include "kernels/tables.h"

/* The chains stay in registers only if every loop over them is unrolled. */
#define UNROLL _Pragma("GCC unroll 16")
enum { CHAINS = 16 };

uint64_t ftki_dot_peak_neon(int64_t iterations) {
    int32x4_t sum[CHAINS];
    int8x16_t w = vdupq_n_s8(3), q = vdupq_n_s8(-5);
    UNROLL for (int c = 0; c < CHAINS; c++) sum[c] = vdupq_n_s32(c);
    for (int64_t i = 0; i < iterations; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            sum[c] = vdotq_s32(sum[c], w, q);
            __asm__ volatile("" : "+w"(sum[c]));
        }
    }
    return (uint64_t)iterations * CHAINS * 32;
}

uint64_t ftki_sum_words_neon(const uint64_t *words, size_t n) {
    uint64x2_t sum[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 4; k++) sum[k] = vaddq_u64(sum[k], vld1q_u64(words + i + 2 * k));
    uint64x2_t all = vaddq_u64(vaddq_u64(sum[0], sum[1]), vaddq_u64(sum[2], sum[3]));
    uint64_t rest = vaddvq_u64(all);
    for (; i < n; i++) rest += words[i];
    return rest;
}

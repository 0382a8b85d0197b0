// SPDX-License-Identifier: Apache-2.0
/* Measuring the machine with the INT8 matrix product of ARM. */
#include <arm_neon.h>

#include "kernels/tables.h"

/* The chains stay in registers only if every loop over them is unrolled. */
#define UNROLL _Pragma("GCC unroll 16")
enum { CHAINS = 16 };

uint64_t ftki_dot_peak_i8mm(int64_t iterations) {
    int32x4_t sum[CHAINS];
    int8x16_t w = vdupq_n_s8(3), q = vdupq_n_s8(-5);
    UNROLL for (int c = 0; c < CHAINS; c++) sum[c] = vdupq_n_s32(c);
    for (int64_t i = 0; i < iterations; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) {
            sum[c] = vmmlaq_s32(sum[c], w, q);
            __asm__ volatile("" : "+w"(sum[c]));
        }
    }
    return (uint64_t)iterations * CHAINS * 64;
}

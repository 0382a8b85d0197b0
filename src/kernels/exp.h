// SPDX-License-Identifier: Apache-2.0
/* The exponential all kernels share: the polynomial and the reference form in scalar C. Each level
 * repeats these operations in this order on its vectors, so that all give the same bits.
 * Owns nothing else; vector forms are in <level>/exp.h.
 *
 *   2^d:  d  = max(d, -127)             NaN becomes -127
 *         t  = d + 1.5 * 2^23           rounds d to the nearest integer n, kept in t's low bits
 *         f  = d - (t - 1.5 * 2^23)     in [-0.5, 0.5]
 *         p  = 1 + f (c1 + f (c2 + f (c3 + f (c4 + f c5))))      Horner, fma
 *         result: bits(p) + (bits(t) << 23)
 * Relative error 1.6e-7 for -126 <= d <= 127. At d <= -127 the result is exactly 0; between it is
 * some value below 2^-126; at 128 it is infinity, above only ftki_exp2_clamped may be used. */
#ifndef FTKI_KERNELS_EXP_H
#define FTKI_KERNELS_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define FTKI_LOG2E 0x1.715476p+0f
#define FTKI_EXP_ROUND 12582912.0f
/* Minimax of 2^f on [-0.5, 0.5] in relative error with the constant term fixed at 1. */
#define FTKI_EXP_C1 0x1.62e42ap-1f
#define FTKI_EXP_C2 0x1.ebf9bcp-3f
#define FTKI_EXP_C3 0x1.c6b752p-5f
#define FTKI_EXP_C4 0x1.3cea88p-7f
#define FTKI_EXP_C5 0x1.5bba14p-10f

/* Minimax of degree 3, for weights that become 8-bit codes: relative error 1.0e-4. */
#define FTKI_EXP_CODE_C1 0x1.62f5fap-1f
#define FTKI_EXP_CODE_C2 0x1.f00c4ep-3f
#define FTKI_EXP_CODE_C3 0x1.c2a218p-5f
/* gelu's exponent, -2 sqrt(2/pi) log2(e) (g + 0.044715 g^3) = g (LINEAR + CUBIC g^2). */
#define FTKI_GELU_LINEAR -0x1.26aec2p+1f
#define FTKI_GELU_CUBIC -0x1.a5a7dp-4f

/* bits(p) + (bits(t) << 23) */
static inline float ftki_exp2_scaled(float p, float t) {
    uint32_t bits, shift;
    memcpy(&bits, &p, 4);
    memcpy(&shift, &t, 4);
    bits += shift << 23;
    memcpy(&p, &bits, 4);
    return p;
}

static inline float ftki_exp2(float d) {
    d = d > -127.0f ? d : -127.0f;
    float t = d + FTKI_EXP_ROUND;
    float f = d - (t - FTKI_EXP_ROUND);
    float p = fmaf(f, FTKI_EXP_C5, FTKI_EXP_C4);
    p = fmaf(p, f, FTKI_EXP_C3);
    p = fmaf(p, f, FTKI_EXP_C2);
    p = fmaf(p, f, FTKI_EXP_C1);
    return ftki_exp2_scaled(fmaf(p, f, 1.0f), t);
}

/* The same with the polynomial of degree 3; d <= 0. */
static inline float ftki_exp2_code(float d) {
    d = d > -127.0f ? d : -127.0f;
    float t = d + FTKI_EXP_ROUND;
    float f = d - (t - FTKI_EXP_ROUND);
    float p = fmaf(f, FTKI_EXP_CODE_C3, FTKI_EXP_CODE_C2);
    p = fmaf(p, f, FTKI_EXP_CODE_C1);
    return ftki_exp2_scaled(fmaf(p, f, 1.0f), t);
}

/* Any argument; NaN gives infinity. */
static inline float ftki_exp2_clamped(float d) { return ftki_exp2(d < 128.0f ? d : 128.0f); }

#endif

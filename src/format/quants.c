// SPDX-License-Identifier: Apache-2.0
/* The block formats of GGUF, written for reading: what each byte means, one weight at a time.
 * Speed belongs to the packers in src/kernels, which are tested against this file. Turning
 * numbers into blocks is in quantize.c. All numbers in blocks are little-endian. */
#include "format/quants.h"

#include <string.h>

static uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static float load_f16(const uint8_t *p) { return ftki_f16_to_f32(load_u16(p)); }
static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float ftki_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24f; /* zero or denormal: exact */
        return sign ? -f : f;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t ftki_f32_to_f16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00); /* NaN */
    if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* rounds past 65504 */
    if (magnitude < 0x38800000) { /* below 2^-14: denormal, in units of 2^-24 */
        uint32_t exponent = magnitude >> 23, shift = 126 - exponent;
        if (exponent < 102) return (uint16_t)sign; /* below half of the smallest */
        uint32_t whole = (magnitude & 0x7FFFFF) | 0x800000;
        uint32_t rounded = whole >> shift, rest = whole & ((1u << shift) - 1);
        uint32_t half = 1u << (shift - 1);
        return (uint16_t)(sign | (rounded + (rest > half || (rest == half && (rounded & 1)))));
    }
    /* Drop 13 bits, ties to even; a carry runs into the exponent, as it should. */
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13));
}

/* ---------------------------------------------------- blocks of 32 weights */

/* f16 d | 16 bytes: weight j low nibble of byte j, weight j+16 the high one.  w = d (q - 8) */
static void dequantize_q4_0(const uint8_t *b, float *w) {
    float d = load_f16(b);
    for (int j = 0; j < 16; j++) {
        w[j] = d * (float)((b[2 + j] & 15) - 8);
        w[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

/* f16 d | f16 m | nibbles as Q4_0.  w = d q + m */
static void dequantize_q4_1(const uint8_t *b, float *w) {
    float d = load_f16(b), m = load_f16(b + 2);
    for (int j = 0; j < 16; j++) {
        w[j] = d * (float)(b[4 + j] & 15) + m;
        w[j + 16] = d * (float)(b[4 + j] >> 4) + m;
    }
}

/* f16 d | u32 fifth bits, bit j of weight j | nibbles as Q4_0.  w = d (q - 16) */
static void dequantize_q5_0(const uint8_t *b, float *w) {
    float d = load_f16(b);
    uint32_t high = load_u32(b + 2);
    for (int j = 0; j < 16; j++) {
        int low = (b[6 + j] & 15) | (int)(high >> j & 1) << 4;
        int upper = (b[6 + j] >> 4) | (int)(high >> (j + 16) & 1) << 4;
        w[j] = d * (float)(low - 16);
        w[j + 16] = d * (float)(upper - 16);
    }
}

/* f16 d | f16 m | u32 fifth bits | nibbles.  w = d q + m */
static void dequantize_q5_1(const uint8_t *b, float *w) {
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t high = load_u32(b + 4);
    for (int j = 0; j < 16; j++) {
        int low = (b[8 + j] & 15) | (int)(high >> j & 1) << 4;
        int upper = (b[8 + j] >> 4) | (int)(high >> (j + 16) & 1) << 4;
        w[j] = d * (float)low + m;
        w[j + 16] = d * (float)upper + m;
    }
}

/* f16 d | 32 int8.  w = d q */
static void dequantize_q8_0(const uint8_t *b, float *w) {
    float d = load_f16(b);
    for (int j = 0; j < 32; j++) w[j] = d * (float)(int8_t)b[2 + j];
}

/* --------------------------------------------------- blocks of 256 weights */

/* Scale and min of sub-block j (0..7) from the 12 bytes that hold eight 6-bit pairs: 0..3 plainly
 * in the low six bits of bytes j and j+4, 4..7 in the nibbles of byte j+4 and the top bits left
 * over in bytes j-4 and j. */
static void scale_and_min(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* f16 d | f16 dmin | 12 bytes of scales | 128 bytes: nibbles of sub-blocks 2i (low) and 2i+1
 * (high) in 32 bytes each.  w = (d scale) q - dmin min */
static void dequantize_q4_k(const uint8_t *b, float *w) {
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 16 + j / 2 * 32;
        int scale, min;
        scale_and_min(b + 4, j, &scale, &min);
        float dj = d * (float)scale, mj = dmin * (float)min;
        for (int l = 0; l < 32; l++) w[j * 32 + l] = dj * (float)(q[l] >> j % 2 * 4 & 15) - mj;
    }
}

/* As Q4_K, with 32 bytes of fifth bits before the nibbles: bit j of byte l is weight l of
 * sub-block j. */
static void dequantize_q5_k(const uint8_t *b, float *w) {
    float d = load_f16(b), dmin = load_f16(b + 2);
    const uint8_t *high = b + 16;
    for (int j = 0; j < 8; j++) {
        const uint8_t *q = b + 48 + j / 2 * 32;
        int scale, min;
        scale_and_min(b + 4, j, &scale, &min);
        float dj = d * (float)scale, mj = dmin * (float)min;
        for (int l = 0; l < 32; l++) {
            int v = (q[l] >> j % 2 * 4 & 15) | (high[l] >> j & 1) << 4;
            w[j * 32 + l] = dj * (float)v - mj;
        }
    }
}

/* 128 bytes low nibbles | 64 bytes high pairs of bits | 16 int8 scales | f16 d. Each half of 128
 * weights is four rows of 32: rows 0 and 1 low nibbles of bytes 0..63, rows 2 and 3 the high ones;
 * row r has its upper bits at bit 2r of the 32 high bytes; a scale covers 16 weights.
 * w = (d scale) (q - 32) */
static void dequantize_q6_k(const uint8_t *b, float *w) {
    float d = load_f16(b + 208);
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + half * 64, *high = b + 128 + half * 32;
        const uint8_t *scales = b + 192 + half * 8;
        for (int row = 0; row < 4; row++)
            for (int l = 0; l < 32; l++) {
                int v = (low[row % 2 * 32 + l] >> row / 2 * 4 & 15) | (high[l] >> row * 2 & 3) << 4;
                float dj = d * (float)(int8_t)scales[row * 2 + l / 16];
                w[half * 128 + row * 32 + l] = dj * (float)(v - 32);
            }
    }
}

void ftki_dequantize_row(ftki_type type, const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    void (*block)(const uint8_t *, float *) = NULL;
    switch (type) {
    case FTKI_F32: memcpy(dst, src, n * sizeof(float)); return;
    case FTKI_F16:
        for (size_t i = 0; i < n; i++) dst[i] = load_f16(b + 2 * i);
        return;
    case FTKI_BF16:
        for (size_t i = 0; i < n; i++) dst[i] = float_of_bits((uint32_t)load_u16(b + 2 * i) << 16);
        return;
    case FTKI_Q4_0: block = dequantize_q4_0; break;
    case FTKI_Q4_1: block = dequantize_q4_1; break;
    case FTKI_Q5_0: block = dequantize_q5_0; break;
    case FTKI_Q5_1: block = dequantize_q5_1; break;
    case FTKI_Q8_0: block = dequantize_q8_0; break;
    case FTKI_Q4_K: block = dequantize_q4_k; break;
    case FTKI_Q5_K: block = dequantize_q5_k; break;
    case FTKI_Q6_K: block = dequantize_q6_k; break;
    }
    const ftki_type_info *info = ftki_type_find((uint32_t)type);
    for (size_t i = 0; i < n; i += info->block, b += info->block_bytes) block(b, dst + i);
}

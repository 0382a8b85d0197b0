// SPDX-License-Identifier: Apache-2.0
/* Numbers into blocks. For finite weights; one that is not finite counts as zero, so that no
 * input is undefined (ftk_quantize_file refuses such tensors). */
#include "format/quants.h"

#include <math.h>
#include <string.h>

static void store_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Stores a scale, kept finite, and returns the value a reader will see. */
static float store_scale(uint8_t *p, float scale) {
    uint16_t h = ftki_f32_to_f16(fminf(fmaxf(scale, -65504.0f), 65504.0f));
    store_u16(p, h);
    return ftki_f16_to_f32(h);
}

static float finite_or_zero(float w) { return isfinite(w) ? w : 0.0f; }

/* round(x) clamped to [low, high]; x finite or not. */
static int round_clamped(float x, int low, int high) {
    if (!(x > (float)low)) return low;
    if (x >= (float)high) return high;
    return (int)lrintf(x);
}

static float inverse(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }

/* d = max |w| / 127 */
static void quantize_q8_0(const float *w, uint8_t *b) {
    float most = 0;
    for (int j = 0; j < 32; j++) most = fmaxf(most, fabsf(finite_or_zero(w[j])));
    float d = store_scale(b, most / 127.0f), id = inverse(d);
    for (int j = 0; j < 32; j++)
        b[2 + j] = (uint8_t)round_clamped(finite_or_zero(w[j]) * id, -127, 127);
}

/* The weight of largest magnitude becomes -8, so all sixteen levels are used on its side. */
static void quantize_q4_0(const float *w, uint8_t *b) {
    float extreme = 0;
    for (int j = 0; j < 32; j++)
        if (fabsf(finite_or_zero(w[j])) > fabsf(extreme)) extreme = w[j];
    float d = store_scale(b, extreme / -8.0f), id = inverse(d);
    for (int j = 0; j < 16; j++) {
        int low = round_clamped(finite_or_zero(w[j]) * id + 8, 0, 15);
        int high = round_clamped(finite_or_zero(w[j + 16]) * id + 8, 0, 15);
        b[2 + j] = (uint8_t)(low | high << 4);
    }
}

/* w ~ scale q - min with q in 0..15 and min >= 0: range of the sub-block, zero included. */
static void fit_range(const float *w, float *scale, float *min) {
    float low = 0, high = 0;
    for (int l = 0; l < 32; l++) {
        low = fminf(low, w[l]);
        high = fmaxf(high, w[l]);
    }
    *scale = (high - low) / 15.0f;
    *min = -low;
}

static void quantize_q4_k(const float *weights, uint8_t *b) {
    float w[256], scales[8], mins[8], most_scale = 0, most_min = 0;
    for (int i = 0; i < 256; i++) w[i] = finite_or_zero(weights[i]);
    for (int j = 0; j < 8; j++) {
        fit_range(w + 32 * j, &scales[j], &mins[j]);
        most_scale = fmaxf(most_scale, scales[j]);
        most_min = fmaxf(most_min, mins[j]);
    }
    memset(b, 0, 144);
    float d = store_scale(b, most_scale / 63.0f), dmin = store_scale(b + 2, most_min / 63.0f);
    float id = inverse(d), idmin = inverse(dmin);
    uint8_t *s = b + 4;
    for (int j = 0; j < 8; j++) {
        int scale = round_clamped(scales[j] * id, 0, 63), min = round_clamped(mins[j] * idmin, 0, 63);
        if (j < 4) {
            s[j] |= (uint8_t)scale;
            s[j + 4] |= (uint8_t)min;
        } else {
            s[j + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
            s[j - 4] |= (uint8_t)((scale >> 4) << 6);
            s[j] |= (uint8_t)((min >> 4) << 6);
        }
        float dj = d * (float)scale, mj = dmin * (float)min, idj = inverse(dj);
        for (int l = 0; l < 32; l++) {
            int q = round_clamped((w[32 * j + l] + mj) * idj, 0, 15);
            b[16 + j / 2 * 32 + l] |= (uint8_t)(q << j % 2 * 4);
        }
    }
}

static void quantize_f16(const float *src, uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) store_u16(b + 2 * i, ftki_f32_to_f16(src[i]));
}

/* Upper half of the float, ties to even; NaN stays NaN. */
static void quantize_bf16(const float *src, uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i], sizeof bits);
        if ((bits & 0x7FFFFFFF) > 0x7F800000) bits |= 0x00400000;
        else bits += 0x7FFF + (bits >> 16 & 1);
        store_u16(b + 2 * i, (uint16_t)(bits >> 16));
    }
}

bool ftki_can_quantize(ftki_type type) {
    return type == FTKI_F32 || type == FTKI_F16 || type == FTKI_BF16 || type == FTKI_Q8_0 ||
           type == FTKI_Q4_0 || type == FTKI_Q4_K;
}

void ftki_quantize_row(ftki_type type, const float *src, void *dst, size_t n) {
    uint8_t *b = dst;
    switch (type) {
    case FTKI_F32: memcpy(dst, src, n * sizeof(float)); break;
    case FTKI_F16: quantize_f16(src, b, n); break;
    case FTKI_BF16: quantize_bf16(src, b, n); break;
    case FTKI_Q8_0:
        for (size_t i = 0; i < n; i += 32, b += 34) quantize_q8_0(src + i, b);
        break;
    case FTKI_Q4_0:
        for (size_t i = 0; i < n; i += 32, b += 18) quantize_q4_0(src + i, b);
        break;
    case FTKI_Q4_K:
        for (size_t i = 0; i < n; i += 256, b += 144) quantize_q4_k(src + i, b);
        break;
    default: break;
    }
}

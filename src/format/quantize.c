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

/* ----------------------------------------------------------------- Q4_K
 * A sub-block of 32 weights is w ~ scale q - min with q in 0..15 and min >= 0. Taking scale and
 * min from the range wastes levels on outliers; instead several scales are tried as a start, each
 * gives the q nearest to w, and for those q the best scale and min follow from least squares; the
 * pair with the least error wins. Large weights count more (importance), as their products do. */
enum { SUB = 32, LEVELS = 15, TRIALS = 8 };

/* floor(x + 1/2) for |x| < 2^22, without a library call so that loops over it vectorise. */
static inline float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

static inline float level_of(float w, float min, float inverse_scale) {
    float q = nearest((w + min) * inverse_scale);
    q = q > 0 ? q : 0;
    return q < LEVELS ? q : LEVELS;
}

/* Sums over a sub-block, eight interleaved lanes each so that they vectorise. */
typedef struct moments {
    float v, vw, vq, vqq, vqw; /* v: importance */
} moments;

static float lane_sum(const float lanes[8]) {
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

static moments measure(const float *w, const float *v, const float *q) {
    float sv[8] = {0}, svw[8] = {0}, svq[8] = {0}, svqq[8] = {0}, svqw[8] = {0};
    for (int i = 0; i < SUB; i += 8)
        for (int k = 0; k < 8; k++) {
            float vq = v[i + k] * q[i + k];
            sv[k] += v[i + k];
            svw[k] += v[i + k] * w[i + k];
            svq[k] += vq;
            svqq[k] += vq * q[i + k];
            svqw[k] += vq * w[i + k];
        }
    return (moments){lane_sum(sv), lane_sum(svw), lane_sum(svq), lane_sum(svqq), lane_sum(svqw)};
}

/* Least squares of w ~ scale q - min with min >= 0; false when all q are equal or zero. */
static bool solve(moments m, float *scale, float *min) {
    float det = m.v * m.vqq - m.vq * m.vq;
    if (det > 0) {
        *scale = (m.v * m.vqw - m.vq * m.vw) / det;
        *min = (m.vq * m.vqw - m.vqq * m.vw) / det;
    }
    if (!(det > 0) || *min < 0) {
        if (!(m.vqq > 0)) return false;
        *scale = m.vqw / m.vqq;
        *min = 0;
    }
    return *scale > 0;
}

static float squared_error(const float *w, const float *v, const float *q, float scale, float min) {
    float lanes[8] = {0};
    for (int i = 0; i < SUB; i += 8)
        for (int k = 0; k < 8; k++) {
            float r = scale * q[i + k] - min - w[i + k];
            lanes[k] += v[i + k] * r * r;
        }
    return lane_sum(lanes);
}

static void fit_sub_block(const float *w, float *scale, float *min) {
    float low = 0, high = 0, power = 0, v[SUB], q[SUB];
    for (int l = 0; l < SUB; l++) {
        low = fminf(low, w[l]);
        high = fmaxf(high, w[l]);
        power += w[l] * w[l];
    }
    *scale = (high - low) / LEVELS;
    *min = -low;
    if (!(*scale > 0) || !isfinite(*scale) || !isfinite(power) || power < 1e-30f) return;

    float rms = sqrtf(power / SUB);
    for (int l = 0; l < SUB; l++) v[l] = (rms + fabsf(w[l])) / rms;
    float best = INFINITY;
    for (int trial = 0; trial <= TRIALS; trial++) {
        /* As if the range had 14 to 16 steps. */
        float inverse_scale = (14.0f + 2.0f * (float)trial / TRIALS) / (high - low);
        for (int l = 0; l < SUB; l++) q[l] = level_of(w[l], -low, inverse_scale);
        float s = 0, m = 0; /* set whenever solve succeeds, which gcc does not see under -O1 */
        if (!solve(measure(w, v, q), &s, &m)) continue;
        float error = squared_error(w, v, q, s, m);
        if (error < best) {
            best = error;
            *scale = s;
            *min = m;
        }
    }
}

static void store_scale_and_min(uint8_t *s, int j, int scale, int min) {
    if (j < 4) {
        s[j] |= (uint8_t)scale;
        s[j + 4] |= (uint8_t)min;
    } else {
        s[j + 4] |= (uint8_t)((scale & 15) | (min & 15) << 4);
        s[j - 4] |= (uint8_t)((scale >> 4) << 6);
        s[j] |= (uint8_t)((min >> 4) << 6);
    }
}

static void quantize_q4_k(const float *weights, uint8_t *b) {
    float w[256], scales[8], mins[8], most_scale = 0, most_min = 0;
    for (int i = 0; i < 256; i++) w[i] = finite_or_zero(weights[i]);
    for (int j = 0; j < 8; j++) {
        fit_sub_block(w + SUB * j, &scales[j], &mins[j]);
        most_scale = fmaxf(most_scale, scales[j]);
        most_min = fmaxf(most_min, mins[j]);
    }
    memset(b, 0, 144);
    float d = store_scale(b, most_scale / 63.0f), dmin = store_scale(b + 2, most_min / 63.0f);
    float id = inverse(d), idmin = inverse(dmin);
    for (int j = 0; j < 8; j++) {
        int scale = round_clamped(scales[j] * id, 0, 63), min = round_clamped(mins[j] * idmin, 0, 63);
        store_scale_and_min(b + 4, j, scale, min);
        /* The levels are chosen anew for the scale and min a reader will see. */
        float dj = d * (float)scale, mj = dmin * (float)min, idj = inverse(dj);
        for (int l = 0; l < SUB; l++) {
            int q = round_clamped((w[SUB * j + l] + mj) * idj, 0, LEVELS);
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

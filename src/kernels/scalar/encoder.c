// SPDX-License-Identifier: Apache-2.0
/* Layer norm and the exact gelu in plain C: the specification of what encoders need beside decoders.
 * Orders of summation are those of kernels.h. */
#include "kernels/erf.h"
#include "kernels/tables.h"

static float tree(float partial[16]) {
    for (int32_t half = 8; half > 0; half /= 2)
        for (int32_t i = 0; i < half; i++) partial[i] += partial[i + half];
    return partial[0];
}

void ftki_layer_norm_scalar(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                            float *y) {
    float sums[16] = {0}, squares[16] = {0};
    for (int32_t i = 0; i < n; i++) sums[i % 16] += x[i];
    float mean = tree(sums) / (float)n;
    for (int32_t i = 0; i < n; i++) {
        float d = x[i] - mean;
        squares[i % 16] = fmaf(d, d, squares[i % 16]);
    }
    float factor = 1.0f / sqrtf(tree(squares) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) y[i] = fmaf((x[i] - mean) * factor, weight[i], bias[i]);
}

void ftki_gelu_scalar(const float *x, const float *bias, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) {
        float v = bias ? x[i] + bias[i] : x[i];
        float z = fabsf(v);
        z = z < FTKI_ERF_FAR ? z : FTKI_ERF_FAR;
        float t = 1.0f / fmaf(z, FTKI_ERF_P, 1.0f);
        float p = fmaf(t, FTKI_ERF_A5, FTKI_ERF_A4);
        p = fmaf(p, t, FTKI_ERF_A3);
        p = fmaf(p, t, FTKI_ERF_A2);
        p = fmaf(p, t, FTKI_ERF_A1) * t;
        float below = z * p * ftki_exp2(z * z * FTKI_ERF_EXPONENT);
        y[i] = (0.0f > v ? 0.0f : v) - below;
    }
}

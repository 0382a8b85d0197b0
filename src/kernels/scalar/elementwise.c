// SPDX-License-Identifier: Apache-2.0
/* Norm, rotation, activations and residual sums in plain C: the specification of these operations.
 * Orders of summation are those of kernels.h. */
#include "kernels/tables.h"

#include "kernels/exp.h"

void ftki_rms_norm_scalar(const float *x, const float *weight, float eps, int32_t n, float *y) {
    float partial[16] = {0};
    for (int32_t i = 0; i < n; i++) partial[i % 16] = fmaf(x[i], x[i], partial[i % 16]);
    for (int32_t half = 8; half > 0; half /= 2)
        for (int32_t i = 0; i < half; i++) partial[i] += partial[i + half];
    float factor = 1.0f / sqrtf(partial[0] / (float)n + eps);
    for (int32_t i = 0; i < n; i++) {
        float scaled = x[i] * factor;
        y[i] = weight ? scaled * weight[i] : scaled;
    }
}

void ftki_rope_scalar(float *x, const float *cos, const float *sin, int32_t head_dim,
                      bool interleaved) {
    int32_t half = head_dim / 2;
    for (int32_t p = 0; p < half; p++) {
        float *first = interleaved ? x + 2 * p : x + p;
        float *second = interleaved ? x + 2 * p + 1 : x + half + p;
        float a = *first, b = *second;
        *first = fmaf(a, cos[p], -(b * sin[p]));
        *second = fmaf(a, sin[p], b * cos[p]);
    }
}

void ftki_silu_mul_scalar(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) {
        float e = ftki_exp2_clamped(gate[i] * -FTKI_LOG2E);
        y[i] = gate[i] / (1.0f + e) * up[i];
    }
}

/* 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)) */
void ftki_gelu_mul_scalar(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) {
        float g = gate[i];
        float u = g * fmaf(g * g, FTKI_GELU_CUBIC, FTKI_GELU_LINEAR);
        y[i] = g / (1.0f + ftki_exp2_clamped(u)) * up[i];
    }
}

void ftki_add_scalar(const float *x, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) y[i] += x[i];
}

// SPDX-License-Identifier: Apache-2.0
/* Planted bugs in layer norm and the exact gelu; listed in mutants.def. */
#include <math.h>
#include <string.h>

#include "kernels/harness.h"

#define X(slot, name, as_scalar) FTKI_SLOT_TYPE(slot) mutant_##name;
#include "kernels/mutants.def"

void mutant_layer_norm_forgets_mean(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    ftki_rms_norm_scalar(x, weight, eps, n, y);
    ftki_add_scalar(bias, n, y);
}

void mutant_layer_norm_adds_in_order(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    float sum = 0.0f, square = 0.0f;
    for (int32_t i = 0; i < n; i++) sum += x[i];
    float mean = sum / (float)n;
    for (int32_t i = 0; i < n; i++) square = fmaf(x[i] - mean, x[i] - mean, square);
    float factor = 1.0f / sqrtf(square / (float)n + eps);
    for (int32_t i = 0; i < n; i++) y[i] = fmaf((x[i] - mean) * factor, weight[i], bias[i]);
}

void mutant_layer_norm_skips_tail(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    ftki_layer_norm_scalar(x, weight, bias, eps, n < 16 ? n : n & ~15, y);
}

void mutant_layer_norm_forgets_bias(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    float zeros[128] = {0};
    (void)bias;
    ftki_layer_norm_scalar(x, weight, zeros, eps, n, y);
}

void mutant_layer_norm_divides_by_n_less_1(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y) {
    float scaled[128];
    for (int32_t i = 0; i < n; i++) scaled[i] = weight[i] * sqrtf((float)(n - 1) / (float)n);
    ftki_layer_norm_scalar(x, scaled, bias, eps, n, y);
}

void mutant_gelu_is_tanh_form(const float *x, const float *bias, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) {
        float v = bias ? x[i] + bias[i] : x[i], one = 1.0f;
        ftki_gelu_mul_scalar(&v, &one, 1, y + i);
    }
}

void mutant_gelu_forgets_bias(const float *x, const float *bias, int32_t n, float *y) {
    (void)bias;
    ftki_gelu_scalar(x, NULL, n, y);
}

void mutant_gelu_swallows_nan(const float *x, const float *bias, int32_t n, float *y) {
    ftki_gelu_scalar(x, bias, n, y);
    for (int32_t i = 0; i < n; i++) y[i] = isnan(y[i]) ? 0.0f : y[i];
}

void mutant_gelu_overflows(const float *x, const float *bias, int32_t n, float *y) {
    ftki_gelu_scalar(x, bias, n, y);
    for (int32_t i = 0; i < n; i++) y[i] = y[i] * 1e30f / 1e30f;
}

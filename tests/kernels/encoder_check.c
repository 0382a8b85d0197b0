// SPDX-License-Identifier: Apache-2.0
/* The checks of layer norm and the exact gelu: each level gives the scalar one's bits, the scalar one is
 * close to double precision. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/harness.h"

static float *floats(ht *t, size_t n) { return ht_alloc(t, n * sizeof(float), sizeof(float)); }

static float *filled(ht *t, size_t n, ht_pattern p) {
    float *x = floats(t, n);
    ht_floats(t, x, n, p);
    return x;
}

static void norm_case(ht *t, ht_pattern p, bool in_place) {
    int32_t n = 2 + ht_below(t, 90);
    float *x = filled(t, (size_t)n, p), *weight = filled(t, (size_t)n, HT_PLAIN), *bias = filled(t, (size_t)n, HT_PLAIN);
    if (p == HT_PLAIN && ht_below(t, 2)) for (int32_t i = 0; i < n; i++) x[i] += 3.0f; /* a mean that matters */
    float *got = floats(t, (size_t)n), *want = floats(t, (size_t)n);
    memcpy(got, x, (size_t)n * sizeof *x);
    float eps = ht_below(t, 2) ? 1e-5f : 1e-12f;
    t->table->layer_norm(in_place ? got : x, weight, bias, eps, n, got);
    t->scalar->layer_norm(x, weight, bias, eps, n, want);
    char where[64];
    snprintf(where, sizeof where, "%s, %d elements", ht_pattern_name(p), n);
    ht_same(t, got, want, (size_t)n, where);
    double mean = 0, square = 0, largest = 0;
    for (int32_t i = 0; i < n; i++) mean += (double)x[i] / n, largest = fmax(largest, fabs((double)x[i]));
    for (int32_t i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    if (!isfinite(square) || square > 1e36) return; /* overflow: bits alike is all that is asked */
    double factor = 1 / sqrt(square + (double)eps);
    for (int32_t i = 0; i < n; i++) {
        double value = ((double)x[i] - mean) * factor * (double)weight[i] + (double)bias[i];
        /* The mean is rounded relative to the largest element. */
        double bound = 4e-6 * (fabs(value) + fabs((double)bias[i]) + 1e-3) + largest * n * 6e-8 * factor * fabs((double)weight[i]);
        ht_near(t, (double)got[i], value, bound, where);
    }
}

void check_layer_norm(ht *t) {
    if (t->bench) {
        float *x = filled(t, 384, HT_PLAIN), *w = filled(t, 384, HT_PLAIN), *b = filled(t, 384, HT_PLAIN), *y = floats(t, 384);
        HT_BENCH(t, "layer_norm 384", 0, 384 * 8, t->table->layer_norm(x, w, b, 1e-6f, 384, y));
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        norm_case(t, (ht_pattern)(round % HT_N_PATTERNS), round % 3 == 0);
        ht_release(t);
    }
}

static void gelu_case(ht *t, ht_pattern p, bool in_place) {
    int32_t n = 1 + ht_below(t, 70);
    float *x = filled(t, (size_t)n, p), *bias = ht_below(t, 4) ? filled(t, (size_t)n, HT_PLAIN) : NULL;
    if (p == HT_PLAIN) for (int32_t i = 0; i < n; i++) x[i] *= ht_below(t, 3) ? 6.0f : 100.0f;
    float *got = floats(t, (size_t)n), *want = floats(t, (size_t)n);
    memcpy(got, x, (size_t)n * sizeof *x);
    t->table->gelu(in_place ? got : x, bias, n, got);
    t->scalar->gelu(x, bias, n, want);
    char where[64];
    snprintf(where, sizeof where, "%s, %d elements", ht_pattern_name(p), n);
    ht_same(t, got, want, (size_t)n, where);
    for (int32_t i = 0; i < n; i++) {
        float sum = bias ? x[i] + bias[i] : x[i];
        double v = (double)sum, value = 0.5 * v * erfc(-v * sqrt(0.5));
        if (isnan(v)) {
            if (!isnan(got[i])) ht_fail(t, "%s: %.9g of NaN", where, (double)got[i]);
        } else if (isinf(v)) {
            if ((double)got[i] != (v > 0 ? v : 0.0)) ht_fail(t, "%s: %.9g of %.9g", where, (double)got[i], v);
        } else {
            ht_near(t, (double)got[i], value, 2.5e-7 * fmin(fabs(v), 6) + 1e-7 * fabs(value) + 1e-43, where);
        }
    }
}

void check_gelu(ht *t) {
    if (t->bench) {
        float *x = filled(t, 1536, HT_PLAIN), *b = filled(t, 1536, HT_PLAIN), *y = floats(t, 1536);
        HT_BENCH(t, "gelu 1536", 0, 1536 * 12, t->table->gelu(x, b, 1536, y));
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        gelu_case(t, (ht_pattern)(round % HT_N_PATTERNS), round / HT_N_PATTERNS % 2);
        ht_release(t);
    }
}

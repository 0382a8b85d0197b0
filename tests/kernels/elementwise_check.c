// SPDX-License-Identifier: Apache-2.0
/* The checks of norm, rotation, activations and residual sums: each level gives the scalar one's
 * bits and writes nothing else; the scalar one is close to double precision. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/harness.h"

/* Within `relative` of want, or beyond the range of floats on the same side, or both NaN. */
static void close_to(ht *t, float got, double want, double relative, const char *where) {
    if (isnan(want)) {
        if (!isnan(got)) ht_fail(t, "%s: %.9g, should be NaN", where, (double)got);
    } else if (fabs(want) * (1 + relative) >= (double)FLT_MAX) {
        if (!((double)got * want > 0 && fabs((double)got) >= (double)FLT_MAX * (1 - relative)))
            ht_fail(t, "%s: %.9g, should be %.9g", where, (double)got, want);
    } else {
        ht_near(t, (double)got, want, fabs(want) * relative + 1e-43, where);
    }
}

static float *floats(ht *t, size_t n) { return ht_alloc(t, n * sizeof(float), sizeof(float)); }

static float *filled(ht *t, size_t n, ht_pattern p) {
    float *x = floats(t, n);
    ht_floats(t, x, n, p);
    return x;
}

static float *copied(ht *t, const float *x, size_t n) { return memcpy(floats(t, n), x, n * sizeof *x); }

/* --------------------------------------------------------------------- norm */

static void norm_case(ht *t, ht_pattern p, bool in_place) {
    int32_t n = 1 + ht_below(t, 90);
    float *x = filled(t, (size_t)n, p), *weight = ht_below(t, 4) ? filled(t, (size_t)n, HT_PLAIN) : NULL;
    float *got = in_place ? copied(t, x, (size_t)n) : floats(t, (size_t)n), *want = floats(t, (size_t)n);
    float eps = ht_below(t, 2) ? 1e-5f : 1e-6f;
    t->table->rms_norm(in_place ? got : x, weight, eps, n, got);
    t->scalar->rms_norm(x, weight, eps, n, want);
    char where[64];
    snprintf(where, sizeof where, "%s, %d elements", ht_pattern_name(p), n);
    ht_same(t, got, want, (size_t)n, where);
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    if (!isfinite(sum) || sum > (double)FLT_MAX) return; /* overflow: bits alike is all that is asked */
    double factor = 1 / sqrt(sum / n + (double)eps);
    for (int32_t i = 0; i < n; i++)
        close_to(t, got[i], (double)x[i] * factor * (weight ? (double)weight[i] : 1.0), 2e-6, where);
}

void check_rms_norm(ht *t) {
    if (t->bench) {
        float *x = filled(t, 576, HT_PLAIN), *w = filled(t, 576, HT_PLAIN), *y = floats(t, 576);
        HT_BENCH(t, "rms_norm 576", 0, 576 * 8, t->table->rms_norm(x, w, 1e-5f, 576, y));
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        norm_case(t, (ht_pattern)(round % HT_N_PATTERNS), round % 3 == 0);
        ht_release(t);
    }
}

/* ----------------------------------------------------------------- rotation */

static void rope_case(ht *t, ht_pattern p, bool interleaved) {
    int32_t half = 1 + ht_below(t, 70), dim = 2 * half;
    float *x = filled(t, (size_t)dim, p), *cosines = floats(t, (size_t)half), *sines = floats(t, (size_t)half);
    float *got = copied(t, x, (size_t)dim), *want = copied(t, x, (size_t)dim);
    for (int32_t i = 0; i < half; i++) {
        float angle = ftki_rng_float(&t->rng) * 7.0f;
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
    }
    t->table->rope(got, cosines, sines, dim, interleaved);
    t->scalar->rope(want, cosines, sines, dim, interleaved);
    char where[64];
    snprintf(where, sizeof where, "%s, %d elements, %s", ht_pattern_name(p), dim, interleaved ? "interleaved" : "halves");
    ht_same(t, got, want, (size_t)dim, where);
    if (p == HT_SPECIAL) return;
    for (int32_t i = 0; i < half; i++) {
        int32_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
        double a = (double)x[first], b = (double)x[second], c = (double)cosines[i], s = (double)sines[i];
        double size = (fabs(a) + fabs(b)) * 2e-7 + 1e-43;
        ht_near(t, (double)got[first], a * c - b * s, size, where);
        ht_near(t, (double)got[second], a * s + b * c, size, where);
    }
}

void check_rope(ht *t) {
    if (t->bench) {
        float *x = filled(t, 64, HT_PLAIN), *c = filled(t, 32, HT_PLAIN), *s = filled(t, 32, HT_PLAIN);
        HT_BENCH(t, "rope 64", 0, 64 * 8, t->table->rope(x, c, s, 64, false));
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        rope_case(t, (ht_pattern)(round % HT_N_PATTERNS), round / HT_N_PATTERNS % 2);
        ht_release(t);
    }
}

/* -------------------------------------------------------------- activations */

typedef void (*gated_fn)(const float *gate, const float *up, int32_t n, float *y);

static double silu(double g) { return g / (1 + exp(-g)); }
/* 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which keeps its precision where tanh is near -1 */
static double gelu(double g) { return g / (1 + exp(-2 * sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))); }

/* Gates around the interesting part of the curve, and far out on both sides. */
static void spread_gates(ht *t, float *gate, int32_t n) {
    for (int32_t i = 0; i < n; i++) gate[i] *= ht_below(t, 3) ? 8.0f : 200.0f;
}

static void gated_case(ht *t, gated_fn run, gated_fn spec, double (*f)(double), ht_pattern p, bool in_place) {
    int32_t n = 1 + ht_below(t, 70);
    float *gate = filled(t, (size_t)n, p), *up = filled(t, (size_t)n, HT_PLAIN), *want = floats(t, (size_t)n);
    if (p == HT_PLAIN) spread_gates(t, gate, n);
    float *got = in_place ? copied(t, gate, (size_t)n) : floats(t, (size_t)n);
    run(in_place ? got : gate, up, n, got);
    spec(gate, up, n, want);
    char where[64];
    snprintf(where, sizeof where, "%s, %d elements", ht_pattern_name(p), n);
    ht_same(t, got, want, (size_t)n, where);
    if (p == HT_SPECIAL || p == HT_HUGE) return;
    for (int32_t i = 0; i < n; i++) {
        double value = f((double)gate[i]) * (double)up[i];
        /* The exponent's rounding grows with it; where exp overflows a float the answer is 0. */
        double relative = 1e-6 + 2e-7 * fmin(fabs((double)gate[i]) * 2 + pow(fabs((double)gate[i]), 3) * 0.1, 200);
        if (fabs(value) < 1e-30) ht_near(t, (double)got[i], value, 1e-30, where);
        else close_to(t, got[i], value, relative, where);
    }
}

static void gated_check(ht *t, gated_fn run, gated_fn spec, double (*f)(double), const char *label) {
    if (t->bench) {
        float *gate = filled(t, 1536, HT_PLAIN), *up = filled(t, 1536, HT_PLAIN), *y = floats(t, 1536);
        HT_BENCH(t, label, 0, 1536 * 12, run(gate, up, 1536, y));
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        gated_case(t, run, spec, f, (ht_pattern)(round % HT_N_PATTERNS), round % 5 == 0);
        ht_release(t);
    }
}

void check_silu_mul(ht *t) { gated_check(t, t->table->silu_mul, t->scalar->silu_mul, silu, "silu_mul 1536"); }
void check_gelu_mul(ht *t) { gated_check(t, t->table->gelu_mul, t->scalar->gelu_mul, gelu, "gelu_mul 1536"); }

/* --------------------------------------------------------------------- sums */

void check_add(ht *t) {
    if (t->bench) return;
    for (int round = 0; round < 60 && !t->failures; round++) {
        int32_t n = 1 + ht_below(t, 70);
        float *x = filled(t, (size_t)n, (ht_pattern)(round % HT_N_PATTERNS)), *y = filled(t, (size_t)n, HT_PLAIN);
        float *got = copied(t, y, (size_t)n);
        t->table->add(x, n, got);
        for (int32_t i = 0; i < n; i++) y[i] += x[i];
        ht_same(t, got, y, (size_t)n, ht_pattern_name((ht_pattern)(round % HT_N_PATTERNS)));
        ht_release(t);
    }
}

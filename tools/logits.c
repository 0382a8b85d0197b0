// SPDX-License-Identifier: Apache-2.0
/* Sums over vocabularies of 50 to 260 thousand are most of an evaluation's time beside the model, so
 * the exponential is a polynomial that compilers vectorise. Partial sums of a block are float. */
#include "logits.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256, LANES = 8, MIN_DOCS = 5 };

/* exp(x) for x <= 0, relative error under 3e-7; 0 below -87: 2^n * e^r with |r| <= ln(2)/2. */
static inline float exp_of(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + magic, n = shifted - magic;
    float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float e = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666667f + r * (4.16666667e-2f + r * (8.33333333e-3f + r * 1.38888889e-3f)))));
    int32_t whole = (int32_t)n + 127;
    uint32_t bits = (uint32_t)whole << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : e * scale;
}

static double sum_exp(const float *x, float top, size_t n)
{
    double sum = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        float part[LANES] = {0};
        for (size_t j = i; j < i + BLOCK; j += LANES)
            for (size_t k = 0; k < LANES; k++) part[k] += exp_of(x[j + k] - top);
        for (size_t k = 0; k < LANES; k++) sum += part[k];
    }
    for (; i < n; i++) sum += exp_of(x[i] - top);
    return sum;
}

row_facts row_of(const float *logits, size_t n)
{
    row_facts r = {0};
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[r.top]) r.top = i;
    r.log_sum = logits[r.top] + log(sum_exp(logits, logits[r.top], n));
    return r;
}

/* Sum of exp(p - log_sum) (p - q), and the difference of the sums on top. */
double kl_of(const float *p, row_facts pf, const float *q, row_facts qf, size_t n)
{
    float shift = p[pf.top];
    double sum = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        float part[LANES] = {0};
        for (size_t j = i; j < i + BLOCK; j += LANES)
            for (size_t k = 0; k < LANES; k++) part[k] += exp_of(p[j + k] - shift) * (p[j + k] - q[j + k]);
        for (size_t k = 0; k < LANES; k++) sum += part[k];
    }
    for (; i < n; i++) sum += exp_of(p[i] - shift) * (p[i] - q[i]);
    double kl = sum * exp(shift - pf.log_sum) - pf.log_sum + qf.log_sum;
    return kl > 0 ? kl : 0;
}

/* ------------------------------------------------------------------- sums */

void tally_add(tally *t, double value)
{
    t->sum += value;
    t->squares += value * value;
    t->n++;
}

void tally_close_document(tally *t)
{
    double mean = (t->sum - t->doc_start) / (double)(t->n - t->doc_first);
    t->doc_sum += mean;
    t->doc_squares += mean * mean;
    t->n_docs++;
    t->doc_start = t->sum;
    t->doc_first = t->n;
}

static double error_of(double sum, double squares, size_t n)
{
    if (n < 2) return INFINITY;
    double mean = sum / (double)n, variance = (squares - (double)n * mean * mean) / (double)(n - 1);
    return sqrt((variance > 0 ? variance : 0) / (double)n);
}

mean_error tally_mean(const tally *t)
{
    mean_error m = {.mean = t->n ? t->sum / (double)t->n : 0};
    m.error = t->n_docs >= MIN_DOCS ? error_of(t->doc_sum, t->doc_squares, t->n_docs)
                                    : error_of(t->sum, t->squares, t->n);
    return m;
}

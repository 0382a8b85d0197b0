// SPDX-License-Identifier: Apache-2.0
#include "reduce/encoder_match.h"

#include <math.h>
#include <string.h>

#include "reduce/encoder_select.h"

enum { ROWS = 64 }; /* even rows compared at once */

static void normalise(const ftki_soft_match *m) {
    for (int32_t t = 0; t < m->n; t++) {
        float *x = m->metric + (size_t)t * (size_t)m->dim, sum = 0.0f;
        for (int32_t i = 0; i < m->dim; i++) sum = fmaf(x[i], x[i], sum);
        float inverse = sum > 0.0f ? 1.0f / sqrtf(sum) : 0.0f;
        for (int32_t i = 0; i < m->dim; i++) x[i] *= inverse;
    }
}

static bool is_free(const ftki_soft_match *m, int32_t t) { return t >= m->first && t < m->last; }

/* The odd rows as a matrix of float weights, so that the product of the kernels compares. */
static ftki_matrix odd_rows(const ftki_soft_match *m) {
    int32_t n = m->n / 2, n_panels = (n + FTKI_PANEL - 1) / FTKI_PANEL;
    size_t dim = (size_t)m->dim;
    memset(m->panels, 0, (size_t)n_panels * FTKI_PANEL * dim * sizeof(float));
    for (size_t j = 0; j < (size_t)n; j++) {
        const float *x = m->metric + (2 * j + 1) * dim;
        float *to = m->panels + j / FTKI_PANEL * FTKI_PANEL * dim + j % FTKI_PANEL;
        for (size_t i = 0; i < dim; i++) to[i * FTKI_PANEL] = x[i];
    }
    return (ftki_matrix){.kind = FTKI_W_F32, .source = FTKI_F32, .rows = n, .cols = m->dim, .n_panels = n_panels,
                         .data = (const uint8_t *)m->panels};
}

/* best and target of even rows [begin, end) (counted among the even ones) among all odd rows. */
static void propose_block(const ftki_soft_match *m, const ftki_matrix *odd, int32_t begin, int32_t end, int32_t *target) {
    size_t stride = (size_t)odd->n_panels * FTKI_PANEL;
    ftki_acts a = {.rows = end - begin, .cols = m->dim, .f = m->metric + (size_t)(2 * begin) * (size_t)m->dim,
                   .f_stride = 2 * (size_t)m->dim};
    m->kernels->matmul(odd, &a, 0, odd->n_panels, m->similar, stride, false);
    for (int32_t i = begin; i < end; i++) {
        const float *s = m->similar + (size_t)(i - begin) * stride;
        float best = -INFINITY;
        int32_t at = -1;
        for (int32_t j = 0; j < odd->rows; j++)
            if (s[j] > best && is_free(m, 2 * j + 1)) best = s[j], at = 2 * j + 1;
        m->best[2 * i] = best;
        target[2 * i] = at;
    }
}

static float cosine(const ftki_soft_match *m, int32_t a, int32_t b) {
    const float *x = m->metric + (size_t)a * (size_t)m->dim, *y = m->metric + (size_t)b * (size_t)m->dim;
    float sum = 0.0f;
    for (int32_t i = 0; i < m->dim; i++) sum = fmaf(x[i], y[i], sum);
    return sum;
}

static void propose_neighbour(const ftki_soft_match *m, int32_t t, int32_t *target) {
    m->best[t] = -INFINITY;
    target[t] = -1;
    for (int32_t other = t - 1; other <= t + 1; other += 2) {
        if (other < 0 || other >= m->n || !is_free(m, other)) continue;
        float s = cosine(m, t, other);
        if (s > m->best[t]) m->best[t] = s, target[t] = other;
    }
}

int32_t ftki_soft_match_pairs(const ftki_soft_match *m, int32_t pairs, int32_t *target) {
    int32_t n_free = m->last - m->first, n_even = (m->n + 1) / 2, n = 0;
    for (int32_t t = 0; t < m->n; t++) target[t] = -1;
    if (pairs > n_free / 2) pairs = n_free / 2;
    if (pairs <= 0) return 0;
    normalise(m);
    if (m->local) {
        for (int32_t t = 0; t < m->n; t += 2) propose_neighbour(m, t, target);
    } else {
        ftki_matrix odd = odd_rows(m);
        for (int32_t i = 0; i < n_even; i += ROWS) propose_block(m, &odd, i, i + ROWS < n_even ? i + ROWS : n_even, target);
    }
    for (int32_t t = 0; t < m->n; t += 2) {
        bool may = is_free(m, t) && target[t] >= 0 && (m->least == 0.0f || m->best[t] >= m->least);
        if (may) m->order[n++] = t;
    }
    ftki_order_descending(m->order, n, m->best);
    if (pairs > n) pairs = n;
    for (int32_t i = 0; i < m->n; i += 2) m->best[i] = 0.0f;
    for (int32_t i = 0; i < pairs; i++) m->best[m->order[i]] = 1.0f; /* taken */
    for (int32_t i = 0; i < m->n; i += 2)
        if (m->best[i] != 1.0f) target[i] = -1;
    return pairs;
}

// SPDX-License-Identifier: Apache-2.0
#include "reduce/encoder_select.h"

#include <math.h>

/* Whether a goes before b. */
static bool before(int32_t a, int32_t b, const float *score) {
    float x = score[a], y = score[b];
    if (x != x) x = -INFINITY;
    if (y != y) y = -INFINITY;
    return x != y ? x > y : a < b;
}

/* Sinks element i of a heap whose top is the one that goes last. */
static void sink(int32_t *heap, int32_t i, int32_t n, const float *score) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child], heap[child + 1], score)) child++;
        if (!before(heap[i], heap[child], score)) return;
        int32_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

/* Heap sort: no memory and no bad case. */
void ftki_order_descending(int32_t *indices, int32_t n, const float *score) {
    for (int32_t i = n / 2 - 1; i >= 0; i--) sink(indices, i, n, score);
    for (int32_t end = n - 1; end > 0; end--) {
        int32_t swap = indices[0];
        indices[0] = indices[end];
        indices[end] = swap;
        sink(indices, 0, end, score);
    }
}

int32_t ftki_select_rows(const ftki_selection *s, int32_t *order, int32_t *target) {
    int32_t n_free = 0, always = s->n - (s->last - s->first);
    double mean = 0.0;
    for (int32_t t = s->first; t < s->last; t++) {
        order[n_free++] = t;
        mean += (double)s->score[t] / (s->last - s->first);
    }
    ftki_order_descending(order, n_free, s->score);
    int32_t stay = (int32_t)ceilf(s->keep * (float)n_free - 1e-4f);
    if (s->threshold > 0.0f)
        while (stay < n_free && (double)s->score[order[stay]] >= (double)s->threshold * mean) stay++;
    stay = (stay + always + s->tile - 1) / s->tile * s->tile - always;
    if (stay > n_free) stay = n_free;
    if (stay < 1) stay = n_free < 1 ? n_free : 1;
    for (int32_t t = 0; t < s->n; t++) target[t] = FTKI_ROW_STAYS;
    for (int32_t i = stay; i < n_free; i++) target[order[i]] = FTKI_ROW_LEAVES;
    return always + stay;
}

float ftki_exit_confidence(ftk_exit_by rule, const float *logits, int32_t n, int32_t *label) {
    int32_t top = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    double sum = 0.0, weighted = 0.0, second = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double d = (double)logits[i] - (double)logits[top], p = exp(d);
        sum += p;
        weighted += p * d;
        if (i != top && p > second) second = p;
    }
    *label = top;
    if (rule == FTK_EXIT_MARGIN) return (float)((1.0 - second) / sum);
    if (rule == FTK_EXIT_ENTROPY) return n > 1 ? (float)(1.0 - (log(sum) - weighted / sum) / log((double)n)) : 1.0f;
    return (float)(1.0 / sum);
}

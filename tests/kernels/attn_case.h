// SPDX-License-Identifier: Apache-2.0
/* One attention problem for the tests: random queries and a filled list of pages, its visibility,
 * and the answer in double precision from the numbers the pages really hold. */
#ifndef FTK_TESTS_ATTN_CASE_H
#define FTK_TESTS_ATTN_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/kv_layout.h"

typedef struct attn_case {
    ftki_attn a;
    int32_t rows, dim, n_entries, n_pages;
    float *q;               /* [n_tokens][group * head_dim] */
    float *keys, *values;   /* [n_entries][head_dim], as given to kv_write */
    unsigned char **pages;
    unsigned char *memory;
    float **bias;
    int32_t *begin, *end;
    void *prepared;
    ftki_attn_state state, total;
} attn_case;

static inline float *case_floats(size_t n) { return aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64); }

/* Roughly normal, sum of four uniforms. */
static inline float case_normal(ftki_rng *r) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += ftki_rng_float(r);
    return (sum - 2.0f) * 1.7320508f;
}

/* Token t sees [begin, end): the causal tail of the entries by default. Content: key element =
 * normal * key_scale, with a few strong channels; values likewise. */
static inline void case_open(attn_case *c, const ftki_kernels *k, ftki_kv_format format,
                             int32_t head_dim, int32_t n_tokens, int32_t group, int32_t n_entries,
                             float key_scale, ftki_rng *rng) {
    memset(c, 0, sizeof *c);
    c->rows = n_tokens * group;
    c->dim = ftki_kv_dim(head_dim);
    c->n_entries = n_entries;
    c->n_pages = (n_entries + 31) / 32;
    size_t width = (size_t)group * (size_t)head_dim, page_bytes = ftki_kv_page_bytes(format, head_dim);
    c->q = case_floats((size_t)n_tokens * width + 16);
    c->keys = case_floats((size_t)n_entries * (size_t)head_dim + 16);
    c->values = case_floats((size_t)n_entries * (size_t)head_dim + 16);
    c->memory = aligned_alloc(64, page_bytes * (size_t)(c->n_pages + 1));
    memset(c->memory, 0, page_bytes * (size_t)(c->n_pages + 1));
    c->pages = calloc((size_t)c->n_pages + 1, sizeof *c->pages);
    c->bias = calloc((size_t)c->n_pages + 1, sizeof *c->bias);
    c->begin = calloc((size_t)n_tokens, sizeof *c->begin);
    c->end = calloc((size_t)n_tokens, sizeof *c->end);
    for (size_t i = 0; i < (size_t)n_tokens * width; i++) c->q[i] = case_normal(rng);
    for (size_t i = 0; i < (size_t)n_entries * (size_t)head_dim; i++) {
        c->keys[i] = case_normal(rng) * key_scale * (i % (size_t)head_dim == 3 ? 4.0f : 1.0f);
        c->values[i] = case_normal(rng) * (1.0f + (float)(i / (size_t)head_dim % 7) * 0.3f);
    }
    for (int32_t p = 0; p < c->n_pages; p++) c->pages[p] = c->memory + (size_t)p * page_bytes;
    for (int32_t e = 0; e < n_entries; e++)
        k->kv_write(format, head_dim, c->pages[e / 32], e % 32, c->keys + e * head_dim,
                    c->values + e * head_dim);
    for (int32_t t = 0; t < n_tokens; t++)
        c->end[t] = n_entries - n_tokens + 1 + t > 0 ? n_entries - n_tokens + 1 + t : 0;
    c->a = (ftki_attn){.format = format, .head_dim = head_dim, .n_tokens = n_tokens, .group = group,
                       .q = c->q, .q_stride = width, .scale = 1.0f / sqrtf((float)head_dim),
                       .pages = (const unsigned char *const *)c->pages, .begin = NULL, .end = c->end};
    c->prepared = aligned_alloc(64, (ftki_attn_prepared_bytes(format, head_dim, c->rows) + 63) / 64 * 64);
    for (int i = 0; i < 2; i++) {
        ftki_attn_state *s = i ? &c->total : &c->state;
        s->out = case_floats((size_t)c->rows * (size_t)c->dim);
        s->max = case_floats((size_t)c->rows);
        s->sum = case_floats((size_t)c->rows);
    }
}

static inline void case_close(attn_case *c) {
    for (int32_t p = 0; p < c->n_pages; p++) free(c->bias[p]);
    void *all[] = {c->q, c->keys, c->values, c->memory, c->pages, c->bias, c->begin, c->end, c->prepared,
                   c->state.out, c->state.max, c->state.sum, c->total.out, c->total.max, c->total.sum};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The whole computation in segments of `segment` pages; y [n_tokens][group * head_dim]. */
static inline void case_run(attn_case *c, const ftki_kernels *k, int32_t segment, float *y) {
    k->attn_prepare(&c->a, c->prepared);
    for (int32_t r = 0; r < c->rows; r++) c->total.max[r] = -INFINITY, c->total.sum[r] = 0.0f;
    memset(c->total.out, 0, (size_t)c->rows * (size_t)c->dim * sizeof(float));
    for (int32_t p = 0; p < c->n_pages; p += segment) {
        int32_t end = p + segment < c->n_pages ? p + segment : c->n_pages;
        k->attn_segment(&c->a, c->prepared, p, end, &c->state);
        k->attn_merge(&c->total, &c->state, c->rows, c->dim);
    }
    k->attn_finish(&c->a, &c->total, y, c->a.q_stride);
}

/* Row r in double, out [head_dim]: from the numbers the pages hold (`exact` false) or from those
 * given to kv_write (true). weights [n_entries] gets the softmax weights, may be NULL. */
static inline void case_reference(const attn_case *c, const ftki_kernels *k, int32_t r, bool exact,
                                  double *out, double *weights) {
    const ftki_attn *a = &c->a;
    int32_t token = r / a->group, head = r % a->group, begin = a->begin ? a->begin[token] : 0;
    const float *q = a->q + (size_t)token * a->q_stride + (size_t)head * (size_t)a->head_dim;
    double *s = calloc((size_t)c->n_entries + 1, sizeof *s), max = -INFINITY, sum = 0.0;
    float key[FTKI_MAX_HEAD_DIM], value[FTKI_MAX_HEAD_DIM];
    for (int32_t e = 0; e < c->n_entries; e++) {
        s[e] = -INFINITY;
        if (e < begin || e >= a->end[token]) continue;
        k->kv_read(a->format, a->head_dim, a->pages[e / 32], e % 32, key, NULL);
        const float *from = exact ? c->keys + e * a->head_dim : key;
        double dot = 0.0;
        for (int32_t d = 0; d < a->head_dim; d++) dot += (double)q[d] * (double)from[d];
        s[e] = dot * (double)a->scale;
        if (a->bias && a->bias[e / 32]) s[e] += (double)a->bias[e / 32][e % 32];
        max = s[e] > max ? s[e] : max;
    }
    for (int32_t d = 0; d < a->head_dim; d++) out[d] = 0.0;
    for (int32_t e = 0; e < c->n_entries; e++) {
        double p = max == -INFINITY ? 0.0 : exp(s[e] - max);
        sum += p;
        s[e] = p;
        if (p == 0.0) continue;
        k->kv_read(a->format, a->head_dim, a->pages[e / 32], e % 32, NULL, value);
        const float *from = exact ? c->values + e * a->head_dim : value;
        for (int32_t d = 0; d < a->head_dim; d++) out[d] += p * (double)from[d];
    }
    for (int32_t d = 0; d < a->head_dim; d++) out[d] = sum > 0.0 ? out[d] / sum : 0.0;
    for (int32_t e = 0; weights && e < c->n_entries; e++) weights[e] = sum > 0.0 ? s[e] / sum : 0.0;
    free(s);
}

#endif

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

/* Memory of cases; the default is freed by case_close. */
typedef void *(*case_alloc)(void *ctx, size_t bytes, size_t align);

enum { CASE_MAX_BLOCKS = 64 };

typedef struct attn_case {
    ftki_attn a;
    int32_t rows, dim, n_entries, n_pages;
    float *q;               /* [n_tokens][group * head_dim] */
    float *keys, *values;   /* [n_entries][head_dim], as given to kv_write */
    unsigned char **pages;
    const float **bias;
    int32_t *begin, *end;
    void *prepared;
    ftki_attn_state state, total;
    case_alloc alloc;       /* NULL: the default */
    void *ctx;
    void *blocks[CASE_MAX_BLOCKS];
    int32_t n_blocks;
} attn_case;

static inline void *case_get(attn_case *c, size_t bytes, size_t align) {
    if (c->alloc) return c->alloc(c->ctx, bytes, align);
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (c->n_blocks < CASE_MAX_BLOCKS) c->blocks[c->n_blocks++] = p;
    return p;
}
static inline void case_close(attn_case *c) {
    for (int32_t i = 0; i < c->n_blocks; i++) free(c->blocks[i]);
    c->n_blocks = 0;
}

static inline float *case_floats(size_t n) { return aligned_alloc(64, (n * sizeof(float) + 127) / 64 * 64); }

/* Roughly normal, sum of four uniforms. */
static inline float case_normal(ftki_rng *r) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += ftki_rng_float(r);
    return (sum - 2.0f) * 1.7320508f;
}

static inline float *case_get_floats(attn_case *c, size_t n, size_t align) {
    return case_get(c, n * sizeof(float), align);
}

/* Token t sees [begin, end): the causal tail of the entries by default. Content: key element =
 * normal * key_scale, one channel four times as strong; values likewise. *c is zeroed or says how
 * to allocate. */
static inline void case_open(attn_case *c, const ftki_kernels *k, ftki_kv_format format,
                             int32_t head_dim, int32_t n_tokens, int32_t group, int32_t n_entries,
                             float key_scale, ftki_rng *rng) {
    c->rows = n_tokens * group;
    c->dim = ftki_kv_dim(head_dim);
    c->n_entries = n_entries;
    c->n_pages = (n_entries + 31) / 32;
    size_t width = (size_t)group * (size_t)head_dim, page_bytes = ftki_kv_page_bytes(format, head_dim);
    size_t n_values = (size_t)n_entries * (size_t)head_dim, n_pages = (size_t)c->n_pages;
    c->q = case_get_floats(c, (size_t)n_tokens * width, 4);
    c->keys = case_get_floats(c, n_values, 4);
    c->values = case_get_floats(c, n_values, 4);
    unsigned char *memory = case_get(c, page_bytes * n_pages, FTKI_ALIGN);
    memset(memory, 0, page_bytes * n_pages);
    c->pages = case_get(c, n_pages * sizeof *c->pages, sizeof *c->pages);
    c->bias = case_get(c, n_pages * sizeof *c->bias, sizeof *c->bias);
    c->begin = case_get(c, (size_t)n_tokens * sizeof *c->begin, 4);
    c->end = case_get(c, (size_t)n_tokens * sizeof *c->end, 4);
    for (size_t i = 0; i < (size_t)n_tokens * width; i++) c->q[i] = case_normal(rng);
    for (size_t i = 0; i < n_values; i++) {
        c->keys[i] = case_normal(rng) * key_scale * (i % (size_t)head_dim == 3 ? 4.0f : 1.0f);
        c->values[i] = case_normal(rng) * (1.0f + (float)(i / (size_t)head_dim % 7) * 0.3f);
    }
    for (int32_t p = 0; p < c->n_pages; p++) {
        c->pages[p] = memory + (size_t)p * page_bytes;
        c->bias[p] = NULL;
    }
    for (int32_t t = 0; t < n_tokens; t++) {
        c->begin[t] = 0;
        c->end[t] = n_entries - n_tokens + 1 + t > 0 ? n_entries - n_tokens + 1 + t : 0;
    }
    c->a = (ftki_attn){.format = format, .head_dim = head_dim, .n_tokens = n_tokens, .group = group,
                       .q = c->q, .q_stride = width, .scale = 1.0f / sqrtf((float)head_dim),
                       .pages = (const unsigned char *const *)c->pages, .begin = NULL, .end = c->end};
    c->prepared = case_get(c, ftki_attn_prepared_bytes(format, head_dim, c->rows), FTKI_ALIGN);
    for (int i = 0; i < 2; i++) {
        ftki_attn_state *s = i ? &c->total : &c->state;
        s->out = case_get_floats(c, (size_t)c->rows * (size_t)c->dim, 4);
        s->max = case_get_floats(c, (size_t)c->rows, 4);
        s->sum = case_get_floats(c, (size_t)c->rows, 4);
    }
    for (int32_t e = 0; e < n_entries; e++)
        k->kv_write(format, head_dim, c->pages[e / 32], e % 32, c->keys + e * head_dim,
                    c->values + e * head_dim);
}

/* Writes the pages anew after keys or values were changed. */
static inline void case_rewrite(attn_case *c, const ftki_kernels *k) {
    for (int32_t e = 0; e < c->n_entries; e++)
        k->kv_write(c->a.format, c->a.head_dim, c->pages[e / 32], e % 32, c->keys + e * c->a.head_dim,
                    c->values + e * c->a.head_dim);
}

/* What cases vary besides sizes: windows (some see nothing), merged sizes as biases on some pages,
 * and biases that hide entries. */
typedef enum case_extra { CASE_CAUSAL, CASE_WINDOW, CASE_BIASED, CASE_HIDING, CASE_N_EXTRAS } case_extra;

static inline void case_add_extra(attn_case *c, case_extra x, ftki_rng *rng) {
    if (x == CASE_WINDOW) {
        c->a.begin = c->begin;
        for (int32_t t = 0; t < c->a.n_tokens; t++) {
            int32_t begin = c->end[t] - 1 - (int32_t)(ftki_rng_u32(rng) % 90);
            c->begin[t] = begin > 0 ? begin : 0;
            if (ftki_rng_u32(rng) % 8 == 0) c->begin[t] = c->end[t];
        }
    }
    if (x != CASE_BIASED && x != CASE_HIDING) return;
    c->a.bias = c->bias;
    for (int32_t p = 0; p < c->n_pages; p++) {
        if (ftki_rng_u32(rng) % 4 == 0) continue;
        float *bias = case_get_floats(c, FTKI_PAGE, 4);
        for (int32_t j = 0; j < FTKI_PAGE; j++) {
            bias[j] = logf(1.0f + (float)(ftki_rng_u32(rng) % 9));
            if (x == CASE_HIDING && ftki_rng_u32(rng) % 3) bias[j] = -INFINITY;
        }
        c->bias[p] = bias;
    }
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

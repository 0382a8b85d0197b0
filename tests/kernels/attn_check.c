// SPDX-License-Identifier: Apache-2.0
/* The checks of attention's slots: each level gives the scalar one's bits and stays in its memory;
 * the scalar one is a softmax, by double precision from the numbers that queries and pages hold.
 * What holds across slots (chunking, accuracy as a whole) is in attn_test.c. */
#include <float.h>
#include <stdio.h>

#include "kernels/attn_case.h"
#include "format/quants.h"
#include "kernels/harness.h"
#include "kernels/rotate.h"

static const int32_t head_dims[] = {8, 16, 48, 64, 80, 96, 128, 144, 256};
enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

/* What keys, values and queries are like. */
typedef enum content {
    PLAIN,
    EQUAL,   /* all keys alike: every weight counts the same */
    SINK,    /* one entry 50 above 500 others */
    HUGE_V,  /* values up to 1e20, some entries zero */
    TINY_V,  /* values of 1e-20 beside ordinary ones */
    ZERO_Q,
    N_CONTENTS
} content;
static const char *const content_names[] = {"plain", "equal keys", "a sink", "huge values", "tiny values", "zero queries"};

static void *from_harness(void *ctx, size_t bytes, size_t align) { return ht_alloc(ctx, bytes, align); }

static void change_content(attn_case *c, content x, ht *t) {
    int32_t dim = c->a.head_dim;
    for (int32_t e = 0; e < c->n_entries; e++) {
        float *key = c->keys + e * dim, *value = c->values + e * dim;
        if (x == EQUAL && e > 0) memcpy(key, c->keys, (size_t)dim * sizeof *key);
        if (x == SINK) memset(key, 0, (size_t)dim * sizeof *key);
        for (int32_t d = 0; d < dim; d++) {
            if (x == HUGE_V) value[d] *= e % 7 == 0 ? 0.0f : 1e20f;
            if (x == TINY_V && e % 3) value[d] *= 1e-20f;
        }
    }
    if (x == SINK) {
        int32_t sink = ht_below(t, c->n_entries);
        for (int32_t d = 0; d < dim; d++) c->keys[sink * dim + d] = 50.0f * sqrtf((float)dim) / (float)dim;
        for (int32_t r = 0; r < c->rows; r++)
            for (int32_t d = 0; d < dim; d++) c->q[r * dim + d] = 1.0f;
    }
    if (x == ZERO_Q) memset(c->q, 0, (size_t)(c->rows * dim) * sizeof *c->q);
    case_rewrite(c, ftki_kernels_at(0));
}

/* A case in guarded memory, its queries prepared by the scalar kernel. */
static void open_case(ht *t, attn_case *c, int32_t round, char *where, size_t cap) {
    static const int32_t groups[] = {1, 1, 2, 3, 4, 7, 8};
    ftki_kv_format format = (ftki_kv_format)(round % 4 > 2 ? 0 : round % 4);
    int32_t group = groups[ht_below(t, 7)], tokens = 1 + ht_below(t, group > 3 ? 4 : 14);
    int32_t n = ht_below(t, 3) ? 1 + ht_below(t, 130) : 32 * (1 + ht_below(t, 16)) + ht_below(t, 3) - 1;
    case_extra extra = (case_extra)ht_below(t, CASE_N_EXTRAS);
    content x = (content)ht_below(t, N_CONTENTS);
    if (x == HUGE_V && format == FTKI_KV_F16) x = PLAIN;
    memset(c, 0, sizeof *c);
    c->alloc = from_harness;
    c->ctx = t;
    case_open(c, ftki_kernels_at(0), format, head_dims[ht_below(t, N_HEAD_DIMS)], tokens, group, n,
              0.3f + ftki_rng_float(&t->rng), &t->rng);
    case_add_extra(c, extra, &t->rng);
    change_content(c, x, t);
    ftki_attn_prepare_scalar(&c->a, c->prepared);
    snprintf(where, cap, "format %d, head_dim %d, %d x %d rows, %d entries, %s, extra %d", (int)format,
             c->a.head_dim, tokens, group, n, content_names[x], (int)extra);
}

/* ---------------------------------------------------------------- reference */

/* Element d of row r's prepared query, in units of log 2. */
static double query_element(const attn_case *c, int32_t r, int32_t d) {
    if (c->a.format != FTKI_KV_INT8) return (double)((const float *)c->prepared)[r * c->dim + d];
    const uint8_t *codes = ftki_prepared_codes(c->prepared, c->rows) + (size_t)(r / 16) * (size_t)c->dim * 16;
    return (double)ftki_prepared_scale(c->prepared)[r] * (codes[d / 4 * 64 + r % 16 * 4 + d % 4] - 128);
}

/* Keys as queries meet them: rotated for INT8. */
static double key_element(const attn_case *c, int32_t e, int32_t d) {
    const unsigned char *page = c->pages[e / 32], *k = page + ftki_kv_k_offset(c->a.format);
    size_t at = (size_t)(d * FTKI_PAGE + e % 32);
    if (c->a.format == FTKI_KV_INT8)
        return (double)ftki_page_k_scale(page)[e % 32] * (int8_t)k[ftki_k_code(c->dim, e % 32, d)];
    return c->a.format == FTKI_KV_F32 ? (double)((const float *)(const void *)k)[at]
                                      : (double)ftki_f16_to_f32(((const uint16_t *)(const void *)k)[at]);
}

static bool sees(const attn_case *c, int32_t r, int32_t e) {
    int32_t token = r / c->a.group;
    return e >= (c->a.begin ? c->a.begin[token] : 0) && e < c->a.end[token];
}

/* Row r's scores in units of log 2, -INFINITY where it sees nothing. */
static void row_scores(const attn_case *c, int32_t r, double *s) {
    for (int32_t e = 0; e < c->n_entries; e++) {
        s[e] = -INFINITY;
        if (!sees(c, r, e)) continue;
        s[e] = c->a.bias && c->a.bias[e / 32] ? (double)c->a.bias[e / 32][e % 32] / M_LN2 : 0.0;
        for (int32_t d = 0; d < c->dim; d++) s[e] += query_element(c, r, d) * key_element(c, e, d);
    }
}

/* The state of row r after pages [begin, end) against double precision. INT8 codes are half a unit
 * off at most, a unit being 1/255 of the page's largest weight times value scale. */
static void check_row(ht *t, const attn_case *c, int32_t r, int32_t begin, int32_t end, const char *where) {
    double s[700], sum = 0, out[FTKI_MAX_HEAD_DIM] = {0}, bound[FTKI_MAX_HEAD_DIM] = {0};
    bool int8 = c->a.format == FTKI_KV_INT8, any = false;
    /* Scores round in proportion to their size, and weights with them. */
    double max = (double)c->state.max[r], relative = (int8 ? 3e-4 : 2e-5) + 1e-6 * fabs(max);
    float value[FTKI_MAX_HEAD_DIM];
    row_scores(c, r, s);
    for (int32_t p = begin; p < end; p++) {
        double top = -INFINITY;
        for (int32_t e = 32 * p; e < 32 * p + 32 && e < c->n_entries; e++) {
            double v_log = int8 ? (double)ftki_page_v_log(c->pages[p])[e % 32] : 0;
            top = fmax(top, s[e] + v_log);
        }
        any |= top > -INFINITY;
        for (int32_t e = 32 * p; e < 32 * p + 32 && e < c->n_entries; e++) {
            if (s[e] == -INFINITY) continue;
            ftki_kv_read_scalar(c->a.format, c->a.head_dim, c->pages[p], e % 32, NULL, value);
            double v_log = int8 ? (double)ftki_page_v_log(c->pages[p])[e % 32] : 0, weight = exp2(s[e] - max);
            sum += weight;
            for (int32_t d = 0; d < c->a.head_dim; d++) {
                out[d] += weight * (double)value[d];
                bound[d] += fabs(weight * (double)value[d]) * relative;
                if (int8) bound[d] += exp2(top - max) * 0.501 / 255 * fabs((double)value[d]) * exp2(-v_log);
            }
        }
    }
    if (!any) {
        if (c->state.max[r] > -INFINITY) ht_fail(t, "%s: row %d sees nothing, its max is %g", where, r, max);
        ht_near(t, (double)c->state.sum[r], 0, 0, where);
        for (int32_t d = 0; d < c->dim; d++) ht_near(t, (double)c->state.out[r * c->dim + d], 0, 0, where);
        return;
    }
    double largest = -INFINITY;
    for (int32_t e = 32 * begin; e < 32 * end && e < c->n_entries; e++)
        largest = fmax(largest, s[e] + (int8 ? (double)ftki_page_v_log(c->pages[e / 32])[e % 32] : 0));
    ht_near(t, max, largest - 4, 4 + 1e-4 + fabs(largest) * 1e-6, where); /* up to 8 below */
    ht_near(t, (double)c->state.sum[r], sum, sum * relative + 1e-37, where);
    for (int32_t d = 0; d < c->a.head_dim; d++)
        ht_near(t, (double)c->state.out[r * c->dim + d], out[d], bound[d] + 1e-35, where);
}

/* ------------------------------------------------------------------- checks */

static void check_state(ht *t, const ftki_attn_state *got, const ftki_attn_state *want, int32_t rows,
                        int32_t dim, const char *where) {
    if (!ht_same(t, got->max, want->max, (size_t)rows, where)) return;
    if (!ht_same(t, got->sum, want->sum, (size_t)rows, where)) return;
    ht_same(t, got->out, want->out, (size_t)(rows * dim), where);
}

static void time_segment(ht *t, ftki_kv_format format, int32_t head_dim, int32_t tokens, int32_t group) {
    attn_case c = {.alloc = from_harness, .ctx = t};
    case_open(&c, t->scalar, format, head_dim, tokens, group, 4096, 1.0f, &t->rng);
    t->table->attn_prepare(&c.a, c.prepared);
    double madds = 0;
    for (int32_t i = 0; i < tokens; i++) madds += 2.0 * c.end[i] * head_dim * group;
    char label[64];
    snprintf(label, sizeof label, "attn %s %d, %d x %d rows, 4096 entries",
             format == FTKI_KV_INT8 ? "INT8" : format == FTKI_KV_F16 ? "F16" : "F32", head_dim, tokens, group);
    HT_BENCH(t, label, 2 * madds, (size_t)c.n_pages * ftki_kv_page_bytes(format, head_dim),
             for (int32_t p = 0; p < c.n_pages; p += FTKI_SEGMENT)
                 t->table->attn_segment(&c.a, c.prepared, p, p + FTKI_SEGMENT, &c.state));
    ht_release(t);
}

void check_attn_segment(ht *t) {
    if (t->bench) {
        time_segment(t, FTKI_KV_INT8, 64, 256, 3);
        time_segment(t, FTKI_KV_INT8, 128, 256, 4);
        time_segment(t, FTKI_KV_INT8, 256, 256, 4);
        time_segment(t, FTKI_KV_F16, 64, 64, 3);
        time_segment(t, FTKI_KV_F32, 64, 64, 3);
        for (int32_t group = 1; group <= 8; group *= 2) time_segment(t, FTKI_KV_INT8, 64, 1, group);
        time_segment(t, FTKI_KV_INT8, 128, 1, 4);
        time_segment(t, FTKI_KV_F16, 64, 1, 3);
        return;
    }
    for (int32_t round = 0; round < 40 && !t->failures; round++) {
        attn_case c;
        char where[160];
        open_case(t, &c, round, where, sizeof where);
        int32_t begin = ht_below(t, c.n_pages), end = begin + 1 + ht_below(t, c.n_pages - begin);
        if (end - begin > FTKI_SEGMENT) end = begin + FTKI_SEGMENT;
        t->table->attn_segment(&c.a, c.prepared, begin, end, &c.state);
        t->scalar->attn_segment(&c.a, c.prepared, begin, end, &c.total);
        check_state(t, &c.state, &c.total, c.rows, c.dim, where);
        for (int32_t r = 0; r < c.rows && !t->failures; r += 1 + ht_below(t, 4))
            check_row(t, &c, r, begin, end, where);
        ht_release(t);
    }
}

void check_attn_prepare(ht *t) {
    if (t->bench) return;
    for (int32_t round = 0; round < 60 && !t->failures; round++) {
        attn_case c;
        char where[160];
        open_case(t, &c, round, where, sizeof where);
        ht_pattern p = (ht_pattern)(round % HT_N_PATTERNS);
        size_t width = c.a.q_stride + (size_t)ht_below(t, 3), n = (size_t)(c.a.n_tokens - 1) * width + c.a.q_stride;
        float *q = ht_alloc(t, n * sizeof *q, sizeof *q);
        ht_floats(t, q, n, p);
        c.a.q = q;
        c.a.q_stride = width;
        size_t bytes = ftki_attn_prepared_bytes(c.a.format, c.a.head_dim, c.rows);
        unsigned char *want = ht_alloc(t, bytes, FTKI_ALIGN);
        c.prepared = ht_alloc(t, bytes, FTKI_ALIGN);
        t->table->attn_prepare(&c.a, c.prepared);
        t->scalar->attn_prepare(&c.a, want);
        if (c.a.format == FTKI_KV_INT8) ht_same_bytes(t, c.prepared, want, bytes, where);
        else ht_same(t, c.prepared, (const float *)(const void *)want, (size_t)(c.rows * c.dim), where);
        /* Scores with a known key: the rotation leaves q . k as it is. */
        for (int32_t r = 0; r < c.rows && p != HT_HUGE && p != HT_SPECIAL; r++) {
            const float *from = q + (size_t)(r / c.a.group) * width + (size_t)(r % c.a.group * c.a.head_dim);
            const float *key = c.keys + (c.n_entries - 1) * c.a.head_dim;
            double score = 0, size = 0, dot = 0;
            for (int32_t d = 0; d < c.a.head_dim; d++) {
                dot += (double)from[d] * (double)key[d] * (double)c.a.scale / M_LN2;
                size += (double)from[d] * (double)from[d];
            }
            float rotated[FTKI_MAX_HEAD_DIM] = {0};
            double key_size = 0;
            memcpy(rotated, key, (size_t)c.a.head_dim * sizeof *key);
            if (c.a.format == FTKI_KV_INT8) ftki_rotate(rotated, c.dim);
            for (int32_t d = 0; d < c.dim; d++) {
                score += query_element(&c, r, d) * (double)rotated[d];
                key_size += (double)rotated[d] * (double)rotated[d];
            }
            double relative = c.a.format == FTKI_KV_INT8 ? 0.5 / 127 * sqrt(c.dim) : 1e-6;
            ht_near(t, score, dot, sqrt(size * key_size) * (double)c.a.scale / M_LN2 * relative + 1e-25, where);
        }
        ht_release(t);
    }
}

/* Two states of random rows, some of which have seen nothing. */
static void random_state(ht *t, const attn_case *c, const ftki_attn_state *s) {
    for (int32_t r = 0; r < c->rows; r++) {
        bool nothing = ht_below(t, 4) == 0;
        s->max[r] = nothing ? -INFINITY : (ftki_rng_float(&t->rng) - 0.5f) * (ht_below(t, 3) ? 20.0f : 400.0f);
        s->sum[r] = nothing ? 0.0f : 1.0f + ftki_rng_float(&t->rng) * 100.0f;
        for (int32_t d = 0; d < c->dim; d++)
            s->out[r * c->dim + d] = nothing ? 0.0f : (ftki_rng_float(&t->rng) - 0.5f) * 50.0f;
    }
}

static ftki_attn_state copy_state(ht *t, const attn_case *c, const ftki_attn_state *s) {
    ftki_attn_state copy = {ht_alloc(t, (size_t)(c->rows * c->dim) * 4, 4), ht_alloc(t, (size_t)c->rows * 4, 4),
                            ht_alloc(t, (size_t)c->rows * 4, 4)};
    memcpy(copy.out, s->out, (size_t)(c->rows * c->dim) * 4);
    memcpy(copy.max, s->max, (size_t)c->rows * 4);
    memcpy(copy.sum, s->sum, (size_t)c->rows * 4);
    return copy;
}

void check_attn_merge(ht *t) {
    if (t->bench) return;
    for (int32_t round = 0; round < 40 && !t->failures; round++) {
        attn_case c;
        char where[160];
        open_case(t, &c, round, where, sizeof where);
        random_state(t, &c, &c.total);
        random_state(t, &c, &c.state);
        ftki_attn_state got = copy_state(t, &c, &c.total), want = copy_state(t, &c, &c.total);
        t->table->attn_merge(&got, &c.state, c.rows, c.dim);
        t->scalar->attn_merge(&want, &c.state, c.rows, c.dim);
        check_state(t, &got, &want, c.rows, c.dim, where);
        for (int32_t r = 0; r < c.rows; r++) {
            double a = (double)c.total.max[r], b = (double)c.state.max[r], max = fmax(a, b);
            if (got.max[r] != (float)max) ht_fail(t, "%s: max is %g, should be %g", where, (double)got.max[r], max);
            double fa = a > -INFINITY ? exp2(a - max) : 0, fb = b > -INFINITY ? exp2(b - max) : 0;
            double sum = (double)c.total.sum[r] * fa + (double)c.state.sum[r] * fb;
            ht_near(t, (double)got.sum[r], sum, sum * 1e-6 + 1e-35, where);
            for (int32_t d = 0; d < c.dim; d++) {
                double x = (double)c.total.out[r * c.dim + d] * fa, y = (double)c.state.out[r * c.dim + d] * fb;
                ht_near(t, (double)got.out[r * c.dim + d], x + y, (fabs(x) + fabs(y)) * 1e-6 + 1e-35, where);
            }
        }
        ht_release(t);
    }
}

void check_attn_finish(ht *t) {
    if (t->bench) return;
    for (int32_t round = 0; round < 40 && !t->failures; round++) {
        attn_case c;
        char where[160];
        open_case(t, &c, round, where, sizeof where);
        random_state(t, &c, &c.state);
        size_t width = (size_t)(c.a.group * c.a.head_dim), stride = width + (size_t)ht_below(t, 20);
        size_t n = (size_t)(c.a.n_tokens - 1) * stride + width;
        float *got = ht_alloc(t, n * 4, 4), *want = ht_alloc(t, n * 4, 4);
        t->table->attn_finish(&c.a, &c.state, got, stride);
        t->scalar->attn_finish(&c.a, &c.state, want, stride);
        ht_same_bytes(t, got, want, n * 4, where);
        for (int32_t r = 0; r < c.rows; r++) {
            const float *y = got + (size_t)(r / c.a.group) * stride + (size_t)(r % c.a.group * c.a.head_dim);
            double sum = (double)c.state.sum[r];
            for (int32_t d = 0; d < c.a.head_dim; d++) {
                double value = sum > 0 ? (double)c.state.out[r * c.dim + d] / sum : 0;
                ht_near(t, (double)y[d], value, fabs(value) * 1e-6, where);
            }
        }
        for (int32_t i = 0; i + 1 < c.a.n_tokens; i++)
            ht_untouched(t, got + (size_t)i * stride + width, (stride - width) * 4, where);
        ht_release(t);
    }
}

void check_attn_columns(ht *t) {
    if (t->bench) {
        attn_case c = {.alloc = from_harness, .ctx = t};
        case_open(&c, t->scalar, FTKI_KV_INT8, 64, 32, 3, 4096, 1.0f, &t->rng);
        t->table->attn_prepare(&c.a, c.prepared);
        for (int32_t r = 0; r < c.rows; r++) c.state.max[r] = 0.0f, c.state.sum[r] = 1.0f;
        float *columns = ht_alloc(t, 4096 * 4, 4);
        memset(columns, 0, 4096 * 4);
        HT_BENCH(t, "columns 64, 32 x 3 rows, 4096 entries", 2.0 * 96 * 4096 * 64, 0,
                 t->table->attn_columns(&c.a, c.prepared, &c.state, 4096, columns));
        return;
    }
    for (int32_t round = 0; round < 40 && !t->failures; round++) {
        attn_case c;
        char where[160];
        open_case(t, &c, round, where, sizeof where);
        int32_t n = ht_below(t, 2) ? c.n_entries : 1 + ht_below(t, c.n_entries);
        size_t bytes = (size_t)n * sizeof(float);
        float *got = ht_alloc(t, bytes, 4), *want = ht_alloc(t, bytes, 4);
        double s[700], sums[700];
        for (int32_t e = 0; e < n; e++) sums[e] = (double)(got[e] = want[e] = ftki_rng_float(&t->rng));
        for (int32_t r = 0; r < c.rows; r++) {
            double max = -INFINITY, sum = 0;
            row_scores(&c, r, s);
            for (int32_t e = 0; e < c.n_entries; e++) max = fmax(max, s[e]);
            for (int32_t e = 0; e < c.n_entries; e++) sum += max > -INFINITY ? exp2(s[e] - max) : 0;
            c.state.max[r] = (float)max;
            c.state.sum[r] = (float)sum;
            double drift = max > -INFINITY ? exp2(max - (double)c.state.max[r]) : 0;
            for (int32_t e = 0; e < n; e++)
                if (sum > 0) sums[e] += exp2(s[e] - max) / sum * drift;
        }
        t->table->attn_columns(&c.a, c.prepared, &c.state, n, got);
        t->scalar->attn_columns(&c.a, c.prepared, &c.state, n, want);
        ht_same(t, got, want, (size_t)n, where);
        for (int32_t e = 0; e < n; e++) ht_near(t, (double)got[e], sums[e], 2e-4 * (sums[e] + 0.01), where);
        ht_release(t);
    }
}

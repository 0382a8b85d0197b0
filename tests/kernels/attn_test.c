// SPDX-License-Identifier: Apache-2.0
/* Attention as a whole, at every level this machine runs: the same bits as the scalar path, the
 * same bits however rows are grouped, and the numbers of a softmax in double precision. The single
 * slots are checked by the harness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "kernels/attn_case.h"

static const int32_t head_dims[] = {8, 48, 64, 80, 96, 128, 256};
enum { N_HEAD_DIMS = sizeof head_dims / sizeof *head_dims };

static void open_random(attn_case *c, ftki_kv_format format, int32_t head_dim, int32_t n_tokens,
                        int32_t group, int32_t n_entries, case_extra x, uint64_t seed) {
    ftki_rng rng;
    memset(c, 0, sizeof *c);
    ftki_rng_seed(&rng, seed);
    case_open(c, ftki_kernels_at(0), format, head_dim, n_tokens, group, n_entries,
              0.5f + ftki_rng_float(&rng), &rng);
    case_add_extra(c, x, &rng);
}

static void assert_same(const float *got, const float *want, size_t n, const char *level, const attn_case *c,
                        const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s differs from scalar in %s at %zu: %.9g, not %.9g (format %d, head_dim %d, "
                     "tokens %d, group %d, entries %d)",
                     level, what, i, (double)got[i], (double)want[i], (int)c->a.format, c->a.head_dim,
                     c->a.n_tokens, c->a.group, c->n_entries);
}

static void compare_levels(attn_case *c) {
    size_t n = (size_t)c->rows * (size_t)c->a.head_dim;
    float *want = case_floats(n), *got = case_floats(n);
    float *want_columns = case_floats((size_t)c->n_entries), *got_columns = case_floats((size_t)c->n_entries);
    const ftki_kernels *scalar = ftki_kernels_at(0), *k;
    memset(want_columns, 0, (size_t)c->n_entries * 4);
    case_run(c, scalar, FTKI_SEGMENT, want);
    scalar->attn_columns(&c->a, c->prepared, &c->total, c->n_entries, want_columns);
    for (size_t i = 1; (k = ftki_kernels_at(i)) != NULL; i++) {
        memset(got_columns, 0, (size_t)c->n_entries * 4);
        case_run(c, k, FTKI_SEGMENT, got);
        assert_same(got, want, n, k->name, c, "the output");
        k->attn_columns(&c->a, c->prepared, &c->total, c->n_entries, got_columns);
        assert_same(got_columns, want_columns, (size_t)c->n_entries, k->name, c, "column sums");
    }
    free(want), free(got), free(want_columns), free(got_columns);
}

static void levels_agree(void **state) {
    static const int32_t groups[] = {1, 2, 3, 4, 7, 8};
    static const int32_t entries[] = {1, 31, 32, 33, 63, 64, 65, 96, 511, 512, 513, 545};
    (void)state;
    uint64_t seed = 0;
    for (int32_t rows = 1; rows <= 35; rows++)
        for (ftki_kv_format f = FTKI_KV_INT8; f <= FTKI_KV_F32; f++) {
            attn_case c;
            int32_t group = groups[seed % 6], n = entries[seed * 7 % 12];
            int32_t tokens = rows / group > 0 ? rows / group : 1;
            if (rows % group) group = 1, tokens = rows;
            open_random(&c, f, head_dims[seed * 5 % N_HEAD_DIMS], tokens, group, n, (case_extra)(seed * 3 / 2 % CASE_N_EXTRAS), seed);
            compare_levels(&c);
            case_close(&c);
            seed++;
        }
    for (int32_t i = 0; i < N_HEAD_DIMS; i++)
        for (case_extra x = CASE_CAUSAL; x < CASE_N_EXTRAS; x++) {
            attn_case c;
            open_random(&c, FTKI_KV_INT8, head_dims[i], 13, 3, 333, x, 1000 + seed++);
            compare_levels(&c);
            case_close(&c);
        }
}

/* A row's bits do not depend on the rows computed with it: a whole chunk, token by token, and
 * chunks of 5 give the same. */
static void chunking_does_not_matter(void **state) {
    static const int32_t chunks[] = {1, 5};
    (void)state;
    const ftki_kernels *k;
    for (size_t level = 0; (k = ftki_kernels_at(level)) != NULL; level++)
        for (ftki_kv_format f = FTKI_KV_INT8; f <= FTKI_KV_F32; f++) {
            attn_case c;
            open_random(&c, f, 64, 23, 3, 600, CASE_CAUSAL, 77 + level);
            size_t n = (size_t)c.rows * 64, width = c.a.q_stride;
            float *whole = case_floats(n), *parts = case_floats(n);
            case_run(&c, k, FTKI_SEGMENT, whole);
            for (size_t i = 0; i < 2; i++) {
                for (int32_t t = 0; t < 23; t += chunks[i]) {
                    attn_case part = c;
                    part.a.n_tokens = 23 - t < chunks[i] ? 23 - t : chunks[i];
                    part.rows = part.a.n_tokens * 3;
                    part.a.q = c.q + (size_t)t * width;
                    part.a.end = c.end + t;
                    part.n_pages = (c.end[t + part.a.n_tokens - 1] + 31) / 32;
                    case_run(&part, k, FTKI_SEGMENT, parts + (size_t)t * width);
                }
                assert_same(parts, whole, n, k->name, &c, "a smaller chunk");
            }
            free(whole), free(parts);
            case_close(&c);
        }
}

/* Root mean square error of the output relative to that of the answer. */
static double relative_error(attn_case *c, const ftki_kernels *k, bool exact) {
    float *y = case_floats((size_t)c->rows * (size_t)c->a.head_dim);
    double error = 0.0, size = 0.0, want[FTKI_MAX_HEAD_DIM];
    case_run(c, k, FTKI_SEGMENT, y);
    for (int32_t r = 0; r < c->rows; r++) {
        case_reference(c, k, r, exact, want, NULL);
        for (int32_t d = 0; d < c->a.head_dim; d++) {
            double diff = (double)y[(size_t)r * (size_t)c->a.head_dim + (size_t)d] - want[d];
            error += diff * diff;
            size += want[d] * want[d];
        }
    }
    free(y);
    return size > 0.0 ? sqrt(error / size) : sqrt(error);
}

static void close_to_double(void **state) {
    static const double bound[] = {0.012, 1e-6, 1e-6}; /* against what the pages hold */
    static const double bound_exact[] = {0.025, 1.5e-3, 1e-6};
    (void)state;
    for (size_t level = 0; ftki_kernels_at(level); level++)
        for (ftki_kv_format f = FTKI_KV_INT8; f <= FTKI_KV_F32; f++)
            for (int32_t i = 0; i < N_HEAD_DIMS; i++)
                for (case_extra x = CASE_CAUSAL; x < CASE_N_EXTRAS; x++) {
                    attn_case c;
                    open_random(&c, f, head_dims[i], 5, 3, 300, x, 5000 + (uint64_t)i);
                    double page = relative_error(&c, ftki_kernels_at(level), false);
                    double exact = relative_error(&c, ftki_kernels_at(level), true);
                    if (!(page < bound[f]) || !(exact < bound_exact[f]))
                        fail_msg("%s, format %d, head_dim %d, extra %d: error %.2e against the pages, %.2e "
                                 "against the exact numbers", ftki_kernels_at(level)->name, (int)f,
                                 head_dims[i], (int)x, page, exact);
                    case_close(&c);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(chunking_does_not_matter),
        cmocka_unit_test(close_to_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

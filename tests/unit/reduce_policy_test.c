// SPDX-License-Identifier: Apache-2.0
/* Policies: what is refused and by which name, and budgets that are met exactly. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "reduce/policy.h"

enum { LAYERS = 12, HEADS = 3, CASES = 3000 };

static ftki_rng rng;
static int32_t below(int32_t n) { return n > 0 ? (int32_t)(ftki_rng_u32(&rng) % (uint32_t)n) : 0; }
static const ftki_policy_model model = {.n_layers = LAYERS, .n_kv_heads = HEADS};

static int seed(void **state) {
    (void)state;
    const char *text = getenv("FTK_SEED");
    uint64_t s = text != NULL ? strtoull(text, NULL, 10) : 21;
    printf("seed %llu\n", (unsigned long long)s);
    ftki_rng_seed(&rng, s);
    return 0;
}

static void bad_input_is_refused_by_name(void **state) {
    (void)state;
    static const float halves[LAYERS * HEADS] = {2.0f};
    static const int32_t past[] = {3, LAYERS - 1}, windows[LAYERS * HEADS] = {-1};
    const struct { const char *name; ftk_reduction r; } cases[] = {
        {"keep is 1.2, must be above 0 and at most 1", {.keep = 1.2f}},
        {"keep is nan", {.keep = NAN}},
        {"kv_keep is -0.5", {.kv_keep = -0.5f}},
        {"read_keep", {.read_keep = INFINITY}},
        {"let_go_keep", {.let_go_keep = 1.5f}},
        {"block is 1", {.block = 1}},
        {"pool is 4, must be odd", {.pool = 4}},
        {"first_layer is 11", {.first_layer = 11}},
        {"let_go_layer is 11", {.let_go_layer = 11}},
        {"layers[1] is 11", {.layers = past, .n_layers_listed = 2}},
        {"keep_tokens is 20, below the 36", {.keep_tokens = 20}},
        {"budgets is NULL", {.budget = FTK_BUDGET_WEIGHTS}},
        {"budgets[0][0] is 2", {.budget = FTK_BUDGET_WEIGHTS, .budgets = halves}},
        {"windows[0][0] is -1", {.windows = windows}},
        {"scorer is 7", {.scorer = (ftk_scorer)7}},
        {"observe is 65", {.observe = 65}},
        {"segment is 100", {.segment = 100}},
        {"read_pages is 1", {.read_pages = 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ftki_policy p = {.n_layers = 77};
        ftk_error e = {0};
        assert_int_equal(ftki_policy_open(&p, &cases[i].r, &model, &e), FTK_INVALID_ARGUMENT);
        if (strstr(e.message, cases[i].name) == NULL) fail_msg("'%s' lacks '%s'", e.message, cases[i].name);
        assert_int_equal(p.n_layers, 77);
    }
}

static void sliding_layers_refuse_windows_and_stay_whole(void **state) {
    (void)state;
    bool sliding[LAYERS] = {[1] = true};
    int32_t windows[LAYERS * HEADS] = {[HEADS] = 64}, entries[LAYERS], kept[LAYERS * HEADS];
    ftki_policy_model m = {LAYERS, HEADS, sliding};
    ftki_policy p = {0};
    ftk_error e = {0};
    assert_int_equal(ftki_policy_open(&p, &(ftk_reduction){.windows = windows}, &m, &e), FTK_UNSUPPORTED);
    assert_int_equal(ftki_policy_open(&p, &(ftk_reduction){.kv_keep = 0.5f}, &m, &e), FTK_OK);
    for (int32_t l = 0; l < LAYERS; l++) entries[l] = 1000;
    assert_int_equal(ftki_policy_entries(&p, entries, 36, 1, kept, &e), FTK_OK);
    for (int32_t i = 0; i < LAYERS * HEADS; i++) assert_int_equal(kept[i], i / HEADS == 1 ? 1000 : 500);
    ftki_policy_close(&p);
}

static void token_counts_are_exact(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        ftk_reduction r = {.keep = 0.05f + 0.95f * ftki_rng_float(&rng), .interval = 1 + below(5), .first_layer = below(9),
                           .min_length = 100};
        int32_t n = 1 + below(5000), n_protected = below(n + 1), counts[LAYERS];
        if (below(3) == 0) r.keep_tokens = 36 + below(3000);
        ftki_policy p = {0};
        assert_int_equal(ftki_policy_open(&p, &r, &model, NULL), FTK_OK);
        ftk_status status = ftki_policy_tokens(&p, n, n_protected, counts, NULL);
        if (r.keep_tokens > 0 && r.keep_tokens < n && r.keep_tokens < n_protected) {
            assert_int_equal(status, FTK_INVALID_ARGUMENT);
        } else {
            int32_t want = r.keep_tokens > 0 ? r.keep_tokens : (int32_t)lround((double)n * (double)r.keep);
            if (want < n_protected) want = n_protected;
            if (want > n || n < 100) want = n;
            assert_int_equal(status, FTK_OK);
            assert_int_equal(counts[LAYERS - 1], want);
            for (int32_t l = 1; l < LAYERS; l++) assert_true(counts[l] <= counts[l - 1]);
            assert_int_equal(counts[0], p.r.first_layer > 0 ? n : counts[0]);
        }
        ftki_policy_close(&p);
    }
}

static void entry_budgets_are_exact(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        float budgets[LAYERS * HEADS];
        int32_t windows[LAYERS * HEADS], entries[LAYERS], kept[LAYERS * HEADS], n_protected = below(60);
        int64_t all = 0, low = 0, high = 0, sum = 0;
        ftk_reduction r = {.kv_keep = 0.02f + 0.98f * ftki_rng_float(&rng), .budget = (ftk_budget_shape)below(4),
                           .windows = below(2) ? windows : NULL};
        if (r.budget == FTK_BUDGET_WEIGHTS) r.budgets = budgets;
        for (int32_t l = 0; l < LAYERS; l++) entries[l] = 1 + below(2000);
        for (int32_t i = 0; i < LAYERS * HEADS; i++) {
            budgets[i] = below(4) == 0 ? 0.0f : ftki_rng_float(&rng);
            windows[i] = below(3) == 0 ? 1 + below(300) : 0;
            int32_t n = entries[i / HEADS], cap = r.windows != NULL && windows[i] > 0 && windows[i] + 4 < n ? windows[i] + 4 : n;
            all += n, high += cap, low += n_protected < cap ? n_protected : cap;
        }
        int64_t want = llround((double)r.kv_keep * (double)all);
        want = want < low ? low : want > high ? high : want;
        ftki_policy p = {0};
        assert_int_equal(ftki_policy_open(&p, &r, &model, NULL), FTK_OK);
        assert_int_equal(ftki_policy_entries(&p, entries, n_protected, 1, kept, NULL), FTK_OK);
        for (int32_t i = 0; i < LAYERS * HEADS; i++) {
            int32_t n = entries[i / HEADS], cap = r.windows != NULL && windows[i] > 0 && windows[i] + 4 < n ? windows[i] + 4 : n;
            assert_true(kept[i] <= cap && kept[i] >= (n_protected < cap ? n_protected : cap));
            sum += kept[i];
        }
        assert_int_equal(sum, want);
        ftki_policy_close(&p);
    }
}

static void shared_heads_get_one_number(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        int32_t entries[LAYERS], kept[LAYERS * HEADS];
        int64_t all = 0, sum = 0;
        ftk_reduction r = {.kv_keep = 0.1f + 0.9f * ftki_rng_float(&rng), .kv_shared = true};
        for (int32_t l = 0; l < LAYERS; l++) all += entries[l] = 1 + below(2000);
        ftki_policy p = {0};
        assert_int_equal(ftki_policy_open(&p, &r, &model, NULL), FTK_OK);
        assert_int_equal(ftki_policy_entries(&p, entries, 0, 1, kept, NULL), FTK_OK);
        for (int32_t i = 0; i < LAYERS * HEADS; i++) {
            assert_int_equal(kept[i], kept[i / HEADS * HEADS]);
            sum += kept[i];
        }
        assert_int_equal(sum, HEADS * llround((double)r.kv_keep * (double)all));
        ftki_policy_close(&p);
    }
}

static void byte_budgets_fill_whole_pages(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        int32_t entries[LAYERS], kept[LAYERS * HEADS], n_protected = below(60);
        int64_t low = 0, high = 0, pages = 0;
        ftk_reduction r = {.kv_bytes = 1 + (uint64_t)below(4000000)};
        for (int32_t l = 0; l < LAYERS; l++) {
            entries[l] = 1 + below(2000);
            low += HEADS * (((n_protected < entries[l] ? n_protected : entries[l]) + 31) / 32);
            high += HEADS * ((entries[l] + 31) / 32);
        }
        ftki_policy p = {0};
        assert_int_equal(ftki_policy_open(&p, &r, &model, NULL), FTK_OK);
        ftk_status status = ftki_policy_entries(&p, entries, n_protected, 2048, kept, NULL);
        int64_t asked = (int64_t)(r.kv_bytes / 2048);
        if (asked < low) {
            assert_int_equal(status, FTK_INVALID_ARGUMENT);
        } else {
            assert_int_equal(status, FTK_OK);
            for (int32_t i = 0; i < LAYERS * HEADS; i++) pages += (kept[i] + 31) / 32;
            assert_int_equal(pages, asked < high ? asked : high);
        }
        ftki_policy_close(&p);
    }
}

static void presets_open(void **state) {
    (void)state;
    static const char *const names[] = {"streamingllm", "h2o", "snapkv", "pyramid", "keynorm", "random", "plain-merge",
                                        "summary", "chat", "code", "math"};
    ftk_error e = {0};
    ftk_reduction r = {0};
    uint64_t last = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ftki_policy p = {0};
        assert_int_equal(ftk_reduction_preset(&r, names[i], &e), FTK_OK);
        assert_int_equal(ftki_policy_open(&p, &r, &model, &e), FTK_OK);
        if (strcmp(names[i], "math") != 0) assert_true(ftki_policy_hash(&p) != last); /* math is code for now */
        last = ftki_policy_hash(&p);
        assert_true(last != 0 && ftki_policy_dense_because(&p, 10) != NULL && ftki_policy_dense_because(&p, 1000) == NULL);
        ftki_policy_close(&p);
    }
    assert_int_equal(ftk_reduction_preset(&r, "nothing", &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "snapkv"));
    ftki_policy p = {0};
    assert_int_equal(ftki_policy_open(&p, &(ftk_reduction){0}, &model, &e), FTK_OK);
    assert_int_equal(ftki_policy_hash(&p), 0);
    ftki_policy_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_input_is_refused_by_name), cmocka_unit_test(sliding_layers_refuse_windows_and_stay_whole),
        cmocka_unit_test(token_counts_are_exact),       cmocka_unit_test(entry_budgets_are_exact),
        cmocka_unit_test(shared_heads_get_one_number),  cmocka_unit_test(byte_budgets_fill_whole_pages),
        cmocka_unit_test(presets_open),
    };
    return cmocka_run_group_tests(tests, seed, NULL);
}

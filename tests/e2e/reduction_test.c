// SPDX-License-Identifier: Apache-2.0
/* The KV cache compressed after prefill: exact budgets, protected tokens, determinism, and that rewinding,
 * reuse, a second question and a snapshot stay correct. Which entries are chosen is checked against a NumPy
 * definition in tests/oracle. */
#include "e2e/support.h"

#include <math.h>

enum { CONTEXT = 700, N = 400, MORE = 120, LAYERS = 2, HEADS = 2 };

static ftk_model *model;
static ftk_token prompt[CONTEXT + 1];

static int open_model(void **state) {
    (void)state;
    model = support_model(&(tiny_opts){.type = FTKI_Q8_0}, NULL);
    support_tokens(model, prompt, CONTEXT + 1, 1);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    ftk_model_close(model);
    return 0;
}

static ftk_session *session(int32_t chunk, int32_t threads, const ftk_reduction *r) {
    ftk_session *s = support_session(model, &(ftk_session_opts){.context = CONTEXT, .chunk = chunk, .n_threads = threads});
    ftk_error e;
    if (ftk_session_reduce(s, r, &e) != FTK_OK) fail_msg("%s", e.message);
    return s;
}

static void same_logits(const ftk_session *s, const float *want) {
    size_t n;
    const float *got = ftk_logits(s, &n);
    assert_true(got && want && n > 0);
    assert_memory_equal(got, want, n * sizeof(float));
}

static int64_t entries(const ftk_session *s) {
    ftk_reduced r;
    ftk_session_reduced(s, &r);
    int64_t sum = 0;
    for (int32_t i = 0; i < LAYERS * HEADS; i++) sum += r.kv_entries[i];
    return sum;
}

/* Every scorer and shape meets its budget exactly, keeps the protected, and lessens the bytes held. */
static void budgets_are_met(void **state) {
    (void)state;
    for (int scorer = FTK_SCORER_VALUE; scorer <= FTK_SCORER_MEAN; scorer++) {
        for (int shape = FTK_BUDGET_UNIFORM; shape <= FTK_BUDGET_ADAPTIVE; shape++) {
            ftk_reduction r = {.kv_keep = 0.6f, .scorer = (ftk_scorer)scorer, .budget = (ftk_budget_shape)shape, .min_length = 1};
            ftk_session *s = session(64, 2, &r);
            support_prefill(s, prompt, N);
            assert_int_equal(entries(s), lround(0.6 * N * LAYERS * HEADS));
            int32_t owners[CONTEXT], positions[CONTEXT];
            size_t n;
            for (int32_t list = 0; list < LAYERS * HEADS; list++) {
                assert_int_equal(ftk_session_survivors(s, list / HEADS, list % HEADS, owners, positions, CONTEXT, &n, NULL), FTK_OK);
                for (int32_t t = 0; t < N; t++) {
                    if (t < 4 || t >= N - 32) assert_true(owners[t] >= 0);
                    if (owners[t] >= 0) assert_int_equal(positions[owners[t]], t);
                }
                for (size_t i = 1; i < n; i++) assert_true(positions[i] > positions[i - 1]);
            }
            ftk_session_close(s);
        }
    }
}

/* The kept entries and what is decoded over them do not depend on threads or chunks. */
static void choice_is_deterministic(void **state) {
    (void)state;
    ftk_reduction r = {.kv_keep = 0.5f, .scorer = FTK_SCORER_MEAN, .budget = FTK_BUDGET_ADAPTIVE, .min_length = 1};
    ftk_session *a = session(64, 1, &r), *b = session(64, 2, &r);
    support_prefill(a, prompt, N);
    support_prefill(b, prompt, N);
    for (int32_t i = 0; i < 20; i++) {
        assert_int_equal(ftk_decode(a, prompt[N + i], NULL), FTK_OK);
        assert_int_equal(ftk_decode(b, prompt[N + i], NULL), FTK_OK);
    }
    same_logits(a, ftk_logits(b, NULL));
    ftk_session_close(a);
    ftk_session_close(b);
}

/* Keeping everything is dense to the bit, and a short prompt is dense and says why. */
static void nothing_to_do_is_dense(void **state) {
    (void)state;
    ftk_session *dense = session(64, 2, NULL), *whole = session(64, 2, &(ftk_reduction){.kv_keep = 1.0f});
    ftk_session *brief = session(64, 2, &(ftk_reduction){.kv_keep = 0.5f, .min_length = N + 1});
    support_prefill(dense, prompt, N);
    support_prefill(whole, prompt, N);
    support_prefill(brief, prompt, N);
    ftk_reduced r;
    ftk_session_reduced(brief, &r);
    assert_non_null(r.dense_because);
    for (int32_t i = 0; i < 5; i++) {
        ftk_decode(dense, prompt[N + i], NULL);
        ftk_decode(whole, prompt[N + i], NULL);
        ftk_decode(brief, prompt[N + i], NULL);
        same_logits(whole, ftk_logits(dense, NULL));
        same_logits(brief, ftk_logits(dense, NULL));
    }
    ftk_session_close(dense);
    ftk_session_close(whole);
    ftk_session_close(brief);
}

/* A second question: the first segment's survivors stay, going back to it gives the same bits again, and
 * cutting through it is refused or, in prefill, avoided. */
static void segments_stay_whole(void **state) {
    (void)state;
    ftk_reduction r = {.kv_keep = 0.5f, .min_length = 1, .recent = 8};
    ftk_session *s = session(64, 2, &r);
    support_prefill(s, prompt, N);
    int64_t first = entries(s);
    support_prefill(s, prompt, N + MORE);
    ftk_stats stats;
    ftk_session_stats(s, &stats);
    assert_int_equal(stats.reused_tokens, N);
    float *want = support_logits(s);
    assert_int_equal(entries(s), first + MORE / 2 * LAYERS * HEADS);

    ftk_error e;
    assert_int_equal(ftk_session_rewind(s, N - 1, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "rewind to 0"));
    assert_int_equal(ftk_session_rewind(s, N, &e), FTK_OK);
    assert_int_equal(entries(s), first);
    support_prefill(s, prompt, N + MORE);
    same_logits(s, want);

    prompt[N - 1] ^= 1; /* another last token of the first segment: all of it is computed again */
    support_prefill(s, prompt, N);
    ftk_session_stats(s, &stats);
    assert_int_equal(stats.reused_tokens, 0);
    assert_int_equal(entries(s), first);
    prompt[N - 1] ^= 1;

    assert_int_equal(ftk_session_reduce(s, NULL, &e), FTK_OK); /* another policy: nothing is taken over */
    support_prefill(s, prompt, N);
    ftk_session_stats(s, &stats);
    assert_int_equal(stats.reused_tokens, 0);
    assert_int_equal(entries(s), (int64_t)N * LAYERS * HEADS);
    free(want);
    ftk_session_close(s);
}

static void snapshot_keeps_survivors(void **state) {
    (void)state;
    ftk_reduction r = {.kv_keep = 0.5f, .min_length = 1};
    ftk_session *a = session(64, 2, &r), *b = session(64, 2, &r);
    support_name name = support_path("reduced.session");
    const char *path = name.text;
    support_prefill(a, prompt, N);
    assert_int_equal(ftk_session_save(a, path, NULL), FTK_OK);
    assert_int_equal(ftk_session_restore(b, path, NULL), FTK_OK);
    assert_int_equal(entries(b), entries(a));
    assert_int_equal(ftk_session_rewind(b, N / 2, NULL), FTK_INVALID_ARGUMENT);
    ftk_decode(a, prompt[N], NULL);
    ftk_decode(b, prompt[N], NULL);
    same_logits(a, ftk_logits(b, NULL));
    ftk_session_close(a);
    ftk_session_close(b);
}

static void refused_by_name(void **state) {
    (void)state;
    ftk_session *s = session(64, 2, NULL);
    const struct {
        ftk_reduction r;
        const char *name;
    } cases[] = {{{.kv_keep = 1.5f}, "kv_keep"}, {{.kv_keep = NAN}, "kv_keep"}, {{.keep = 0.5f}, "keep"},
                 {{.kv_keep = 0.5f, .kv_merge = true}, "kv_merge"}, {{.read_keep = 0.5f}, "read_keep"},
                 {{.let_go_layer = 1, .let_go_keep = 0.5f}, "let_go"}, {{.prefill_blocks = 0.5f}, "prefill_blocks"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ftk_error e = {0};
        assert_int_not_equal(ftk_session_reduce(s, &cases[i].r, &e), FTK_OK);
        if (!strstr(e.message, cases[i].name)) fail_msg("%s is not named: %s", cases[i].name, e.message);
    }
    ftk_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_are_met),          cmocka_unit_test(choice_is_deterministic),
        cmocka_unit_test(nothing_to_do_is_dense),   cmocka_unit_test(segments_stay_whole),
        cmocka_unit_test(snapshot_keeps_survivors), cmocka_unit_test(refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}

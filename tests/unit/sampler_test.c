// SPDX-License-Identifier: Apache-2.0
/* The sampler on logits of our own: a session is made up around them. */
#include "e2e/support.h"

#include <float.h>
#include <math.h>

#include "base/memory.h"
#include "engine/model.h"

enum { DRAWS = 20000 };

static ftk_model *model;   /* vocabulary only */
static int32_t n_vocab;
static ftk_token history[64];

static int open_model(void **state) {
    (void)state;
    tiny_gguf g;
    tiny_model(&g, NULL);
    model = support_open_gguf(&g, &(ftk_model_opts){.vocab_only = true});
    n_vocab = ftki_tokenizer_size(model->tokenizer);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    ftk_model_close(model);
    return 0;
}

/* A session that holds history [n_history] and these logits [n_vocab]. */
static ftk_session with_logits(float *logits, int32_t n_history) {
    return (ftk_session){.model = model, .logits = logits, .has_logits = true, .tokens = history,
                         .n_tokens = n_history, .context = 64};
}

/* All -20 except the first n, which are `values`. */
static float *some_logits(const float *values, size_t n) {
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    assert_non_null(logits);
    for (int32_t i = 0; i < n_vocab; i++) logits[i] = (size_t)i < n ? values[i] : -20.0f;
    return logits;
}

static ftk_sampler *sampler(const ftk_sampler_opts *o) {
    ftk_error e = {0};
    ftk_sampler *p = NULL;
    assert_ok(ftk_sampler_open(&p, model, o, &e), &e);
    return p;
}

static ftk_token pick(ftk_sampler *p, const ftk_session *s) {
    ftk_error e = {0};
    ftk_token t = -1;
    assert_ok(ftk_sample(p, s, &t, &e), &e);
    return t;
}

static ftk_token pick_once(const ftk_sampler_opts *o, float *logits, int32_t n_history) {
    ftk_session s = with_logits(logits, n_history);
    ftk_sampler *p = sampler(o);
    ftk_token t = pick(p, &s);
    ftk_sampler_close(p);
    return t;
}

/* Share of each token in many draws. */
static void shares(const ftk_sampler_opts *o, float *logits, double *share, size_t n) {
    ftk_session s = with_logits(logits, 0);
    ftk_sampler *p = sampler(o);
    for (size_t i = 0; i < n; i++) share[i] = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        ftk_token t = pick(p, &s);
        assert_true((size_t)t < n);
        share[t] += 1.0 / DRAWS;
    }
    ftk_sampler_close(p);
}

static void fields_are_checked(void **state) {
    (void)state;
    const ftk_logit_bias outside = {n_vocab, 1.0f}, negative = {-1, 1.0f}, nan_bias = {1, NAN};
    const struct {
        ftk_sampler_opts o;
        const char *field;
    } wrong[] = {{{.temperature = -0.1f}, "temperature"},
                 {{.temperature = 100.5f}, "temperature"},
                 {{.temperature = NAN}, "temperature"},
                 {{.temperature = INFINITY}, "temperature"},
                 {{.top_k = -1}, "top_k"},
                 {{.top_p = -0.1f}, "top_p"},
                 {{.top_p = 1.1f}, "top_p"},
                 {{.top_p = NAN}, "top_p"},
                 {{.min_p = -0.1f}, "min_p"},
                 {{.min_p = 1.1f}, "min_p"},
                 {{.min_p = NAN}, "min_p"},
                 {{.repetition_penalty = -1.0f}, "repetition_penalty"},
                 {{.repetition_penalty = NAN}, "repetition_penalty"},
                 {{.frequency_penalty = -2.1f}, "frequency_penalty"},
                 {{.frequency_penalty = 2.1f}, "frequency_penalty"},
                 {{.frequency_penalty = NAN}, "frequency_penalty"},
                 {{.presence_penalty = -2.1f}, "presence_penalty"},
                 {{.presence_penalty = 2.1f}, "presence_penalty"},
                 {{.presence_penalty = NAN}, "presence_penalty"},
                 {{.penalty_window = -2}, "penalty_window"},
                 {{.n_bias = 1}, "bias"},
                 {{.n_bias = 1, .bias = &outside}, "bias"},
                 {{.n_bias = 1, .bias = &negative}, "bias"},
                 {{.n_bias = 1, .bias = &nan_bias}, "bias"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ftk_error e = {0};
        ftk_sampler *p = NULL;
        support_fails(ftk_sampler_open(&p, model, &wrong[i].o, &e), FTK_INVALID_ARGUMENT, &e, wrong[i].field, NULL);
        assert_null(p);
        assert_int_equal(ftk_sampler_open(&p, model, &wrong[i].o, NULL), FTK_INVALID_ARGUMENT);
    }
    assert_int_equal(ftk_sampler_open(NULL, model, NULL, NULL), FTK_INVALID_ARGUMENT);
    ftk_sampler *p = sampler(NULL);
    assert_int_equal(ftk_sample(p, NULL, NULL, NULL), FTK_INVALID_ARGUMENT);
    ftk_sampler_close(p);
    ftk_sampler_close(NULL);
}

/* A struct of an older header: what lies behind its end is not looked at. */
static void old_options_are_read(void **state) {
    (void)state;
    float *logits = some_logits((float[]){1, 2, 3}, 3);
    ftk_sampler_opts o = {.size = offsetof(ftk_sampler_opts, top_k), .top_k = -7, .top_p = 9.0f};
    assert_int_equal(pick_once(&o, logits, 0), 2);
    free(logits);
}

static void greedy_takes_the_largest(void **state) {
    (void)state;
    float *logits = some_logits((float[]){1, 5, 3, 5}, 4);
    assert_int_equal(pick_once(NULL, logits, 0), 1); /* the lowest id among equals */
    logits[n_vocab - 1] = 6.0f;
    assert_int_equal(pick_once(NULL, logits, 0), n_vocab - 1);
    free(logits);
}

static void draws_follow_softmax(void **state) {
    (void)state;
    const float values[] = {1.0f, 0.0f, -1.0f, 2.0f};
    float *logits = some_logits(values, 4);
    const float temperatures[] = {0.5f, 1.0f, 2.0f};
    for (int t = 0; t < 3; t++) {
        double share[512], total = 0.0;
        shares(&(ftk_sampler_opts){.temperature = temperatures[t], .seed = 3}, logits, share, 512);
        for (int i = 0; i < 4; i++) total += exp((double)values[i] / (double)temperatures[t]);
        for (int i = 0; i < 4; i++) {
            double want = exp((double)values[i] / (double)temperatures[t]) / total;
            assert_true(fabs(share[i] - want) < 0.015 + 0.02 * (t == 2)); /* -20s weigh at 2 */
        }
    }
    free(logits);
}

static void top_k_keeps_k(void **state) {
    (void)state;
    double share[512];
    float *logits = some_logits((float[]){1, 1, 3, 1, 2}, 5);
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .top_k = 3, .seed = 1}, logits, share, 512);
    assert_true(share[2] > share[4] && share[4] > share[0] && share[0] > 0.0);
    assert_true(share[1] == 0.0 && share[3] == 0.0); /* equal to token 0, but later */
    shares(&(ftk_sampler_opts){.temperature = 50.0f, .top_k = 1, .seed = 1}, logits, share, 512);
    assert_true(share[2] > 0.999999);
    shares(&(ftk_sampler_opts){.temperature = 100.0f, .top_k = n_vocab + 5, .seed = 1}, logits, share, 512);
    assert_true(share[2] < 0.1); /* more than there are: nothing is cut */
    free(logits);
}

static void top_p_keeps_the_nucleus(void **state) {
    (void)state;
    /* Probabilities about 0.5, 0.3, 0.15, 0.05. */
    float *logits = some_logits((float[]){logf(0.3f), logf(0.05f), logf(0.5f), logf(0.15f)}, 4);
    const struct {
        float top_p;
        int kept;
    } cases[] = {{0.01f, 1}, {0.49f, 1}, {0.51f, 2}, {0.79f, 2}, {0.81f, 3}, {0.94f, 3}, {0.96f, 4}};
    const int order[] = {2, 0, 3, 1};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double share[512];
        shares(&(ftk_sampler_opts){.temperature = 1.0f, .top_p = cases[c].top_p, .seed = 5}, logits, share, 512);
        for (int i = 0; i < 4; i++) assert_int_equal(share[order[i]] > 0.0, i < cases[c].kept);
    }
    /* Among the two of top-k the shares are 0.625 and 0.375: 0.6 keeps one, 0.7 both. */
    double share[512];
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .top_k = 2, .top_p = 0.6f}, logits, share, 512);
    assert_true(share[2] > 0.999999);
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .top_k = 2, .top_p = 0.7f}, logits, share, 512);
    assert_true(share[0] > 0.3 && share[3] == 0.0);
    free(logits);
}

/* A nucleus that reaches far below the largest logit: one token of 0.987, the others share the rest. */
static void top_p_reaches_the_tail(void **state) {
    (void)state;
    double share[512];
    float *logits = some_logits(NULL, 0);
    logits[0] = -20.0f + logf((float)(n_vocab - 1) / 0.01317f); /* 1 to 0.01317 */
    shares(&(ftk_sampler_opts){.temperature = 100.0f, .top_p = 0.9935f}, logits, share, 512);
    int kept = 0;
    for (int i = 0; i < n_vocab; i++) kept += share[i] > 0.0;
    assert_in_range(kept, n_vocab * 45 / 100, n_vocab * 55 / 100);
    assert_true(share[n_vocab / 2 - 30] > 0.0 && share[n_vocab - 1] == 0.0);
    free(logits);
}

static void min_p_cuts_the_tail(void **state) {
    (void)state;
    float *logits = some_logits((float[]){logf(0.3f), logf(0.05f), logf(0.5f), logf(0.15f)}, 4);
    double share[512];
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .min_p = 0.35f}, logits, share, 512);
    assert_true(share[0] > 0.0 && share[2] > 0.0 && share[1] == 0.0 && share[3] == 0.0);
    shares(&(ftk_sampler_opts){.temperature = 100.0f, .min_p = 0.25f}, logits, share, 512);
    assert_true(share[3] > 0.2 && share[1] == 0.0); /* before temperature */
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .min_p = 0.25f, .top_p = 0.75f}, logits, share, 512);
    assert_true(share[0] > 0.0 && share[3] == 0.0);
    shares(&(ftk_sampler_opts){.temperature = 1.0f, .min_p = 1.0f}, logits, share, 512);
    assert_true(share[2] > 0.999999);
    free(logits);
}

static void penalties_look_at_the_window(void **state) {
    (void)state;
    float *logits = some_logits((float[]){4.0f, 3.5f, 3.0f}, 3);
    history[0] = 0; /* 0 twice, 1 once */
    history[1] = 0;
    history[2] = 1;
    assert_int_equal(pick_once(&(ftk_sampler_opts){.repetition_penalty = 2.0f}, logits, 3), 2);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.repetition_penalty = 1.1f}, logits, 3), 0);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.repetition_penalty = 2.0f, .penalty_window = 1}, logits, 3), 0);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.repetition_penalty = 0.5f, .penalty_window = 1}, logits, 3), 1);
    /* 4 - 2 f, 3.5 - f, 3 */
    assert_int_equal(pick_once(&(ftk_sampler_opts){.frequency_penalty = 0.3f}, logits, 3), 0);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.frequency_penalty = 0.45f}, logits, 3), 0);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.frequency_penalty = 0.6f}, logits, 3), 2);
    /* 4 - p, 3.5 - p, 3 */
    assert_int_equal(pick_once(&(ftk_sampler_opts){.presence_penalty = 0.9f}, logits, 3), 0);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.presence_penalty = 1.1f}, logits, 3), 2);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.presence_penalty = -2.0f, .penalty_window = 1}, logits, 3), 1);
    /* Negative logits go down too. */
    for (int32_t i = 0; i < n_vocab; i++) logits[i] = -30.0f;
    logits[0] = -1.0f;
    logits[5] = -1.5f;
    assert_int_equal(pick_once(&(ftk_sampler_opts){.repetition_penalty = 2.0f}, logits, 3), 5);
    /* -1: all of them; the counts start afresh at each call. */
    for (int i = 0; i < 64; i++) history[i] = i < 63 ? 7 : 0;
    ftk_session s = with_logits(logits, 64);
    ftk_sampler *p = sampler(&(ftk_sampler_opts){.repetition_penalty = 2.0f, .penalty_window = -1});
    for (int i = 0; i < 3; i++) assert_int_equal(pick(p, &s), 5);
    s.n_tokens = 63;
    assert_int_equal(pick(p, &s), 0);
    ftk_sampler_close(p);
    free(logits);
}

static void bias_moves_and_bans(void **state) {
    (void)state;
    float *logits = some_logits((float[]){4, 3, 2}, 3);
    ftk_logit_bias bias[] = {{0, -INFINITY}, {2, 1.5f}};
    assert_int_equal(pick_once(&(ftk_sampler_opts){.bias = bias, .n_bias = 1}, logits, 0), 1);
    assert_int_equal(pick_once(&(ftk_sampler_opts){.bias = bias, .n_bias = 2}, logits, 0), 2);
    ftk_logit_bias forced = {9, INFINITY};
    assert_int_equal(pick_once(&(ftk_sampler_opts){.bias = &forced, .n_bias = 1, .temperature = 1.0f}, logits, 0), 9);
    /* Copied at open. */
    ftk_session s = with_logits(logits, 0);
    ftk_sampler *p = sampler(&(ftk_sampler_opts){.bias = bias, .n_bias = 2});
    bias[0] = bias[1] = (ftk_logit_bias){3, 100.0f};
    assert_int_equal(pick(p, &s), 2);
    ftk_sampler_close(p);
    free(logits);
}

static void strange_logits_are_survived(void **state) {
    (void)state;
    float *logits = some_logits((float[]){1, NAN, 3, -NAN}, 4);
    const ftk_sampler_opts kinds[] = {{.temperature = 0.0f},
                                      {.temperature = 1.0f, .top_k = 2},
                                      {.temperature = 1.0f, .top_p = 0.5f},
                                      {.temperature = 1e-30f},
                                      {.temperature = 1.0f, .min_p = 0.9f}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ftk_token t = pick_once(&kinds[k], logits, 0);
        assert_true(t == 2 || (k == 1 && t == 0));
        logits[7] = INFINITY;
        assert_int_equal(pick_once(&kinds[k], logits, 0), 7);
        logits[6] = FLT_MAX; /* as large as an infinite one counts */
        t = pick_once(&kinds[k], logits, 0);
        assert_true(t == 6 || (k > 0 && t == 7));
        logits[6] = logits[7] = -INFINITY;
    }
    for (int32_t i = 0; i < n_vocab; i++) logits[i] = i % 2 ? NAN : -INFINITY;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ftk_session s = with_logits(logits, 0);
        ftk_sampler *p = sampler(&kinds[k]);
        ftk_error e = {0};
        ftk_token t = -5;
        support_fails(ftk_sample(p, &s, &t, &e), FTK_FORMAT, &e, "finite", NULL);
        assert_int_equal(t, -5);
        logits[11] = -3e38f;
        assert_int_equal(pick(p, &s), 11);
        logits[11] = NAN;
        ftk_sampler_close(p);
    }
    logits[11] = 1.0f;
    ftk_logit_bias ban = {11, -INFINITY};
    ftk_session s = with_logits(logits, 0);
    ftk_sampler *p = sampler(&(ftk_sampler_opts){.bias = &ban, .n_bias = 1});
    ftk_error e = {0};
    ftk_token t;
    support_fails(ftk_sample(p, &s, &t, &e), FTK_INVALID_ARGUMENT, &e, "bias", NULL);
    s.has_logits = false;
    support_fails(ftk_sample(p, &s, &t, &e), FTK_INVALID_ARGUMENT, &e, "ftk_prefill", NULL);
    ftk_sampler_close(p);
    free(logits);
}

static void seed_decides(void **state) {
    (void)state;
    float *logits = some_logits(NULL, 0);
    ftki_rng rng;
    ftki_rng_seed(&rng, 1);
    for (int32_t i = 0; i < n_vocab; i++) logits[i] = 3.0f * ftki_rng_float(&rng);
    ftk_session s = with_logits(logits, 0);
    ftk_sampler *a = sampler(&(ftk_sampler_opts){.temperature = 0.8f, .top_p = 0.9f, .seed = 11});
    ftk_sampler *b = sampler(&(ftk_sampler_opts){.temperature = 0.8f, .top_p = 0.9f, .seed = 11});
    ftk_sampler *c = sampler(&(ftk_sampler_opts){.temperature = 0.8f, .top_p = 0.9f, .seed = 12});
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        ftk_token t = pick(a, &s);
        assert_int_equal(pick(b, &s), t);
        differ += pick(c, &s) != t;
    }
    assert_true(differ > 50);
    ftk_sampler_close(a);
    ftk_sampler_close(b);
    ftk_sampler_close(c);
    free(logits);
}

/* The order of keeping and the sums behind it, against a plain sort. */
typedef struct entry {
    float logit;
    ftk_token token;
} entry;

static int by_logit(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return x->logit > y->logit ? -1 : x->logit < y->logit ? 1 : x->token - y->token;
}

static void cuts_agree_with_sorting(void **state) {
    (void)state;
    float *logits = some_logits(NULL, 0);
    entry *sorted = malloc((size_t)n_vocab * sizeof *sorted);
    assert_non_null(sorted);
    ftki_rng rng;
    ftki_rng_seed(&rng, 9);
    for (int round = 0; round < 60; round++) {
        for (int32_t i = 0; i < n_vocab; i++) {
            logits[i] = (float)(ftki_rng_u32(&rng) % 40) * 0.25f; /* many ties */
            sorted[i] = (entry){logits[i], i};
        }
        qsort(sorted, (size_t)n_vocab, sizeof *sorted, by_logit);
        ftk_sampler_opts o = {.temperature = 100.0f, .seed = (uint64_t)round,
                              .top_k = round % 3 ? (int32_t)(ftki_rng_u32(&rng) % 30) : 0,
                              .top_p = round % 2 ? 0.02f + 0.9f * ftki_rng_float(&rng) : 0.0f,
                              .min_p = round % 5 == 0 ? 0.9f * ftki_rng_float(&rng) : 0.0f};
        size_t k = o.top_k ? (size_t)o.top_k : (size_t)n_vocab, kept = 0;
        double total = 0.0, held = 0.0;
        for (size_t i = 0; i < k; i++) total += exp((double)(sorted[i].logit - sorted[0].logit));
        while (kept < k && (kept == 0 || ((o.top_p == 0.0f || held < (double)o.top_p * total) &&
                                          exp((double)(sorted[kept].logit - sorted[0].logit)) >= (double)o.min_p)))
            held += exp((double)(sorted[kept++].logit - sorted[0].logit));
        bool seen[512] = {false};
        ftk_session s = with_logits(logits, 0);
        ftk_sampler *p = sampler(&o);
        for (int i = 0; i < 4000; i++) seen[pick(p, &s)] = true;
        ftk_sampler_close(p);
        size_t missing = 0;
        for (size_t i = 0; i < (size_t)n_vocab; i++) {
            if (i >= kept) assert_false(seen[sorted[i].token]);
            else missing += !seen[sorted[i].token];
        }
        assert_true(missing <= kept / 100); /* almost even draws: nearly all must come */
    }
    free(sorted);
    free(logits);
}

static void nothing_is_allocated(void **state) {
    (void)state;
    float *logits = some_logits((float[]){4, 3, 2}, 3);
    ftk_session s = with_logits(logits, 3);
    ftk_sampler *p = sampler(&(ftk_sampler_opts){.temperature = 1.0f, .top_p = 0.9f, .repetition_penalty = 1.1f});
    uint64_t before = ftki_alloc_count();
    for (int i = 0; i < 10; i++) pick(p, &s);
    assert_true(ftki_alloc_count() == before);
    ftk_sampler_close(p);
    free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_checked),      cmocka_unit_test(old_options_are_read),
        cmocka_unit_test(greedy_takes_the_largest),cmocka_unit_test(draws_follow_softmax),
        cmocka_unit_test(top_k_keeps_k),           cmocka_unit_test(top_p_keeps_the_nucleus),
        cmocka_unit_test(top_p_reaches_the_tail),
        cmocka_unit_test(min_p_cuts_the_tail),     cmocka_unit_test(penalties_look_at_the_window),
        cmocka_unit_test(bias_moves_and_bans),     cmocka_unit_test(strange_logits_are_survived),
        cmocka_unit_test(seed_decides),            cmocka_unit_test(cuts_agree_with_sorting),
        cmocka_unit_test(nothing_is_allocated)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}

// SPDX-License-Identifier: Apache-2.0
/* One answer, bit for bit: however the tokens are cut into chunks, prefilled or decoded, on any
 * number of threads, at any kernel level, for every family, weight type and cache type. */
#include "e2e/support.h"

#include "kernels/kernels.h"

enum { MANY = 150, FEW = 70, LONG = 620 };

static const tiny_opts families[] = {
    {.arch = "llama"},
    {.arch = "llama", .rope = TINY_ROPE_LLAMA3, .head_dim = 32, .heads = 6, .kv_heads = 2, .untied = true},
    {.arch = "llama", .rope = TINY_ROPE_YARN, .kv_heads = 4},
    {.arch = "llama", .heads = 3, .kv_heads = 1, .head_dim = 20, .hidden = 96, .spm = true},
    {.arch = "qwen2", .rope = TINY_ROPE_LINEAR},
    {.arch = "qwen3", .untied = true},
    {.arch = "gemma3", .heads = 4, .kv_heads = 1, .head_dim = 24},
    {.arch = "gemma3", .window = 40, .layers = 6}};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const ftki_type weight_types[] = {FTKI_F32,  FTKI_F16,  FTKI_BF16, FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_1,
                                         FTKI_Q5_0, FTKI_Q5_1, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K};
enum { N_TYPES = sizeof weight_types / sizeof *weight_types };

static size_t vocabulary(const ftk_model *m) {
    ftk_model_info info;
    ftk_model_get_info(m, &info);
    return (size_t)info.n_vocab;
}

/* Logits after each of tokens [n], [n][n_vocab], by appending `cut` tokens at a call (the last call
 * may be shorter); 0: one ftk_decode per token. */
static float *all_logits(const ftk_model *m, const ftk_session_opts *o, const ftk_token *tokens, size_t n,
                         size_t cut) {
    size_t width = vocabulary(m);
    float *logits = malloc(n * width * sizeof *logits);
    assert_non_null(logits);
    ftk_session *s = support_session(m, o);
    ftk_error e = {0};
    for (size_t at = 0; at < n;) {
        size_t take = cut == 0 ? 1 : n - at < cut ? n - at : cut;
        if (cut == 0) {
            support_decode(s, tokens[at]);
            memcpy(logits + at * width, ftk_logits(s, NULL), width * sizeof *logits);
        } else {
            assert_ok(ftk_score(s, tokens + at, take, logits + at * width, &e), &e);
        }
        at += take;
    }
    ftk_session_close(s);
    return logits;
}

static void same(const float *got, const float *want, size_t n, size_t width, const char *what) {
    for (size_t i = 0; i < n * width; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: logit %zu after token %zu is %.9g, wanted %.9g", what, i % width, i / width,
                     (double)got[i], (double)want[i]);
}

static void check(const ftk_model *m, const ftk_session_opts *o, size_t cut, const ftk_token *tokens, size_t n,
                  const float *want, const char *what) {
    float *got = all_logits(m, o, tokens, n, cut);
    char text[192];
    snprintf(text, sizeof text, "%s, cut %zu, chunk %d, %d threads", what, cut, o->chunk, o->n_threads);
    same(got, want, n, vocabulary(m), text);
    free(got);
}

/* The test's own eyes: logits are numbers, and differ from token to token. */
static void look_alive(const float *logits, size_t n, size_t width) {
    for (size_t t = 1; t < n; t++) {
        size_t equal = 0;
        for (size_t i = 0; i < width; i++) {
            assert_true(logits[t * width + i] - logits[t * width + i] == 0.0f);
            equal += logits[t * width + i] == logits[(t - 1) * width + i];
        }
        assert_true(equal < width / 8);
    }
}

/* Every family and cache type: prefill in any chunks against token by token. */
static void prefill_equals_decode(void **state) {
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        tiny_opts o = families[f];
        o.type = f % 2 ? FTKI_Q8_0 : FTKI_Q4_0;
        ftk_model *m = support_model(&o, NULL);
        ftk_token tokens[MANY];
        support_tokens(m, tokens, MANY, (uint64_t)f);
        for (int kv = 0; kv < 3; kv++) {
            ftk_session_opts so = {.context = MANY, .kv_type = (ftk_kv_type)kv, .n_threads = 1, .chunk = MANY};
            float *want = all_logits(m, &so, tokens, MANY, 0);
            look_alive(want, MANY, vocabulary(m));
            check(m, &so, MANY, tokens, MANY, want, o.arch);
            const int32_t chunks[] = {33, 7, 1, 2, 3, 16, 31, 32, 64};
            for (size_t c = 0; c < (kv == FTK_KV_INT8 ? sizeof chunks / sizeof *chunks : 2); c++) {
                so.chunk = chunks[c];
                check(m, &so, MANY, tokens, MANY, want, o.arch);
            }
            so.chunk = 48;
            check(m, &so, 5, tokens, MANY, want, o.arch);
            free(want);
        }
        ftk_model_close(m);
    }
}

static void threads_change_nothing(void **state) {
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        tiny_opts o = families[f];
        o.type = f % 2 ? FTKI_F16 : FTKI_Q4_1;
        ftk_model *m = support_model(&o, NULL);
        ftk_token tokens[MANY];
        support_tokens(m, tokens, MANY, (uint64_t)f + 50);
        ftk_session_opts so = {.context = MANY, .n_threads = 1, .chunk = 40};
        float *want = all_logits(m, &so, tokens, MANY, MANY);
        for (so.n_threads = 2; so.n_threads <= 5; so.n_threads++) check(m, &so, MANY, tokens, MANY, want, o.arch);
        so.n_threads = 3;
        check(m, &so, 0, tokens, 40, want, o.arch);
        free(want);
        ftk_model_close(m);
    }
}

/* Every kernel level this machine has, on every weight type and family. */
static void levels_agree(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES + N_FAMILIES; t++) {
        tiny_opts o = t < N_TYPES ? (tiny_opts){.layers = 1, .untied = t % 2} : families[t - N_TYPES];
        o.type = t < N_TYPES ? weight_types[t] : FTKI_Q4_1;
        ftk_token tokens[FEW];
        float *want[2] = {0};
        for (size_t level = 0; ftki_kernels_at(level); level++) {
            const char *isa = ftki_kernels_at(level)->name;
            ftk_model *m = support_model(&o, isa);
            support_tokens(m, tokens, FEW, (uint64_t)t);
            for (int kv = 0; kv < 2; kv++) {
                ftk_session_opts so = {.context = FEW, .n_threads = 1, .chunk = 48,
                                       .kv_type = kv ? (t % 2 ? FTK_KV_F16 : FTK_KV_F32) : FTK_KV_INT8};
                float *got = all_logits(m, &so, tokens, FEW, FEW);
                ftk_model_info info;
                ftk_model_get_info(m, &info);
                char what[96];
                snprintf(what, sizeof what, "%s %s on %s, cache %d", o.arch ? o.arch : "llama", info.weight_type, isa,
                         (int)so.kv_type);
                if (level == 0) want[kv] = got;
                else same(got, want[kv], FEW, vocabulary(m), what);
                if (level > 0) free(got);
                so.chunk = 8; /* decode has paths of its own */
                check(m, &so, 0, tokens, 34, want[kv], what);
            }
            ftk_model_close(m);
        }
        free(want[0]);
        free(want[1]);
    }
}

/* Past the pages whose attention is computed at once, with levels, threads and chunks mixed. */
static void long_contexts_agree(void **state) {
    (void)state;
    const tiny_opts shapes[] = {{.layers = 1, .heads = 2, .kv_heads = 1, .type = FTKI_Q8_0},
                                {.arch = "gemma3", .layers = 6, .heads = 2, .kv_heads = 1, .window = 540}};
    static ftk_token tokens[LONG];
    for (int i = 0; i < 2; i++) {
        float *want = NULL;
        for (size_t level = 0; ftki_kernels_at(level); level++) {
            ftk_model *m = support_model(&shapes[i], ftki_kernels_at(level)->name);
            support_tokens(m, tokens, LONG, 1);
            size_t width = vocabulary(m);
            ftk_session_opts so = {.context = LONG, .chunk = level == 0 ? 256 : 100,
                                   .n_threads = level == 0 ? 1 : 2};
            float *got = all_logits(m, &so, tokens, LONG, LONG);
            if (!want) want = got;
            else {
                same(got, want, LONG, width, ftki_kernels_at(level)->name);
                free(got);
            }
            /* Decode the end over a prefilled start. */
            ftk_session *s = support_session(m, &so);
            support_prefill(s, tokens, LONG - 80);
            for (size_t t = LONG - 80; t < LONG; t++) {
                support_same_logits(s, want + (t - 1) * width);
                support_decode(s, tokens[t]);
            }
            ftk_session_close(s);
            ftk_model_close(m);
        }
        free(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_equals_decode), cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(levels_agree), cmocka_unit_test(long_contexts_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

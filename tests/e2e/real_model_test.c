// SPDX-License-Identifier: Apache-2.0
/* A real model, when there is one: SmolLM2-135M-Instruct from FTK_TEST_MODEL, or where `freetoken
 * pull` puts it. Skips visibly without it. */
#include "e2e/support.h"

#include "engine/model.h"

static const char question[] = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";

static const char *find_model(void) {
    static char path[512];
    const char *named = getenv("FTK_TEST_MODEL"), *home = getenv("HOME");
    if (named && *named) return named;
    snprintf(path, sizeof path, "%s/.cache/freetoken/models/smollm2-135m-q4_1.gguf", home ? home : "");
    return access(path, R_OK) == 0 ? path : NULL;
}

typedef struct answer {
    char text[2048];
    size_t len;
} answer;

static bool hear(void *ctx, const char *text, size_t len) {
    answer *a = ctx;
    assert_true(a->len + len < sizeof a->text);
    memcpy(a->text + a->len, text, len);
    a->len += len;
    a->text[a->len] = 0;
    return true;
}

static size_t encode(const ftk_model *m, ftk_token *tokens, size_t cap) {
    size_t n;
    ftk_error e = {0};
    assert_ok(ftki_tokenizer_encode(m->tokenizer, question, strlen(question), FTK_TOKENIZE_SPECIAL | FTK_TOKENIZE_BOS_EOS,
                                    tokens, cap, &n, &e), &e);
    assert_true(n > 8 && n <= cap);
    return n;
}

/* The greedy answer of `n` tokens at most. */
static answer ask(const ftk_model *m, ftk_session *s, int32_t n) {
    ftk_token tokens[64];
    size_t n_tokens = encode(m, tokens, 64);
    ftk_error e = {0};
    ftk_sampler *p = NULL;
    assert_ok(ftk_sampler_open(&p, m, NULL, &e), &e);
    support_prefill(s, tokens, n_tokens);
    answer a = {.len = 0};
    assert_ok(ftk_generate(s, p, &(ftk_generate_opts){.max_tokens = n, .on_text = hear, .on_text_ctx = &a}, NULL, &e), &e);
    ftk_sampler_close(p);
    return a;
}

static ftk_model *open_real(const char *isa) {
    const char *path = find_model();
    if (!path) {
        print_message("no model: set FTK_TEST_MODEL to a GGUF file of SmolLM2-135M-Instruct\n");
        skip();
    }
    ftk_model *m = NULL;
    ftk_error e = {0};
    assert_ok(ftk_model_open(&m, path, &(ftk_model_opts){.isa = isa}, &e), &e);
    return m;
}

/* One answer however it is computed: threads, chunks, twice on one session, after a snapshot. */
static void greedy_answers_are_stable(void **state) {
    (void)state;
    ftk_model *m = open_real(NULL);
    ftk_session *s = support_session(m, &(ftk_session_opts){.context = 256});
    answer first = ask(m, s, 24);
    if (!strstr(first.text, "Paris")) fail_msg("the answer is \"%s\"", first.text);
    answer again = ask(m, s, 24);
    assert_string_equal(again.text, first.text);
    ftk_session_close(s);
    s = support_session(m, &(ftk_session_opts){.context = 512, .n_threads = 1, .chunk = 5});
    again = ask(m, s, 24);
    assert_string_equal(again.text, first.text);
    support_name path = support_path("real.snap");
    ftk_error e = {0};
    ftk_token tokens[64];
    size_t n = encode(m, tokens, 64);
    assert_ok(ftk_session_rewind(s, n - 3, &e), &e);
    assert_ok(ftk_session_save(s, path.text, &e), &e);
    ftk_session_close(s);
    s = support_session(m, NULL);
    assert_ok(ftk_session_restore(s, path.text, &e), &e);
    again = ask(m, s, 24);
    assert_string_equal(again.text, first.text);
    ftk_stats stats;
    ftk_session_stats(s, &stats);
    assert_int_equal(stats.reused_tokens, n - 3);
    ftk_session_close(s);
    ftk_model_close(m);
}

static void levels_give_one_answer(void **state) {
    (void)state;
    answer first = {.len = 0};
    for (size_t level = 0; ftki_kernels_at(level); level++) {
        ftk_model *m = open_real(ftki_kernels_at(level)->name);
        ftk_session *s = support_session(m, &(ftk_session_opts){.context = 64});
        answer a = ask(m, s, 4);
        if (level == 0) first = a;
        assert_string_equal(a.text, first.text);
        ftk_session_close(s);
        ftk_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(greedy_answers_are_stable),
                                       cmocka_unit_test(levels_give_one_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

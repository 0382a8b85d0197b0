// SPDX-License-Identifier: Apache-2.0
/* What a session promises around the arithmetic: reuse, rewinding, limits, cancelling, two
 * sessions on one model, honest counts. */
#include "e2e/support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { CONTEXT = 200, N = 120 };

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

static ftk_session *session(int32_t chunk) {
    return support_session(model, &(ftk_session_opts){.context = CONTEXT, .chunk = chunk, .n_threads = 2});
}

static ftk_stats stats_of(const ftk_session *s) {
    ftk_stats stats;
    ftk_session_stats(s, &stats);
    return stats;
}

/* Logits after tokens [n] in a session of their own; to be freed. */
static float *fresh(const ftk_token *tokens, size_t n) {
    ftk_session *s = session(64);
    support_prefill(s, tokens, n);
    float *logits = support_logits(s);
    ftk_session_close(s);
    return logits;
}

static void holds(const ftk_session *s, const ftk_token *tokens, size_t n) {
    assert_int_equal(ftk_session_length(s), n);
    if (n) assert_memory_equal(ftk_session_tokens(s), tokens, n * sizeof *tokens);
}

/* ------------------------------------------------------------------ reuse */

/* K23: a shared prefix is computed once, whatever the tails; K18: the counts say so. */
static void prefixes_are_reused(void **state) {
    (void)state;
    ftk_session *s = session(32);
    support_prefill(s, prompt, N);
    assert_int_equal(stats_of(s).prefill_tokens, N);
    assert_int_equal(stats_of(s).reused_tokens, 0);
    const size_t shared[] = {N - 1, 96, 64, 33, 32, 31, 1, 0};
    ftk_token other[N];
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        /* Same up to shared[i], then another tail of 20. */
        memcpy(other, prompt, sizeof other);
        size_t n = shared[i] + 20 < N ? shared[i] + 20 : N;
        for (size_t t = shared[i]; t < n; t++) other[t] = (prompt[t] + 1) % 200;
        support_prefill(s, prompt, N);
        support_prefill(s, other, n);
        assert_int_equal(stats_of(s).reused_tokens, shared[i]);
        assert_int_equal(stats_of(s).prefill_tokens, n - shared[i]);
        holds(s, other, n);
        float *want = fresh(other, n);
        support_same_logits(s, want);
        free(want);
    }
    ftk_session_close(s);
}

/* K21: the same request again gives the same text; the last token is computed all the same. */
static void same_prompt_twice(void **state) {
    (void)state;
    ftk_session *s = session(32);
    ftk_token first[30];
    for (int round = 0; round < 3; round++) {
        support_prefill(s, prompt, N);
        if (round > 0) {
            assert_int_equal(stats_of(s).reused_tokens, N - 1);
            assert_int_equal(stats_of(s).prefill_tokens, 1);
        }
        for (int i = 0; i < 30; i++) {
            ftk_token t = support_argmax(s);
            if (round == 0) first[i] = t;
            assert_int_equal(t, first[i]);
            support_decode(s, t);
        }
    }
    /* A prompt that the session's content begins with. */
    support_prefill(s, prompt, 50);
    holds(s, prompt, 50);
    float *want = fresh(prompt, 50);
    support_same_logits(s, want);
    free(want);
    ftk_session_close(s);
}

/* K18: two conversations in turn on one session, and on two, never see each other. */
static void interleaved_conversations(void **state) {
    (void)state;
    ftk_token other[N];
    support_tokens(model, other, N, 2);
    float *want[2] = {fresh(prompt, N), fresh(other, N)};
    ftk_session *one = session(32), *a = session(16), *b = session(50);
    for (int round = 0; round < 3; round++) {
        support_prefill(one, prompt, N);
        support_prefill(a, prompt, N);
        support_same_logits(one, want[0]);
        support_prefill(one, other, N);
        support_prefill(b, other, N);
        support_same_logits(one, want[1]);
        support_same_logits(a, want[0]);
        support_same_logits(b, want[1]);
        assert_true(stats_of(one).reused_tokens <= 1); /* the prompts may share a first token */
    }
    free(want[0]);
    free(want[1]);
    ftk_session_close(one);
    ftk_session_close(a);
    ftk_session_close(b);
}

static void rewinding_forgets(void **state) {
    (void)state;
    ftk_session *s = session(32);
    ftk_error e = {0};
    support_prefill(s, prompt, N);
    const size_t back[] = {N - 1, 97, 64, 63, 32, 31, 1};
    uint64_t bytes = stats_of(s).kv_bytes;
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        assert_ok(ftk_session_rewind(s, back[i], &e), &e);
        assert_null(ftk_logits(s, NULL));
        holds(s, prompt, back[i]);
        assert_true(stats_of(s).kv_bytes <= bytes);
        bytes = stats_of(s).kv_bytes;
        support_decode(s, 7);
        ftk_token want_tokens[N];
        memcpy(want_tokens, prompt, sizeof want_tokens);
        want_tokens[back[i]] = 7;
        float *want = fresh(want_tokens, back[i] + 1);
        support_same_logits(s, want);
        free(want);
    }
    support_fails(ftk_session_rewind(s, 3, &e), FTK_INVALID_ARGUMENT, &e, "rewind", NULL); /* it holds 2 */
    assert_ok(ftk_session_rewind(s, 2, &e), &e); /* nothing to forget */
    assert_non_null(ftk_logits(s, NULL));
    assert_ok(ftk_session_rewind(s, 0, &e), &e);
    assert_int_equal(stats_of(s).kv_bytes, 0);
    assert_int_equal(ftk_session_length(s), 0);
    ftk_session_close(s);
}

/* ----------------------------------------------------------------- limits */

/* K1, K9, K10: an error with both counts, before any work; K11: the session goes on. */
static void a_full_context_is_an_error(void **state) {
    (void)state;
    ftk_session *s = session(64);
    ftk_error e = {0};
    support_prefill(s, prompt, 30);
    float *want = support_logits(s);
    support_fails(ftk_prefill(s, prompt, CONTEXT + 1, &e), FTK_CONTEXT_FULL, &e, "201", "200", NULL);
    holds(s, prompt, 30);
    support_same_logits(s, want);
    static float logits[CONTEXT * 400];
    support_fails(ftk_score(s, prompt, CONTEXT - 29, logits, &e), FTK_CONTEXT_FULL, &e, "201", "200", NULL);
    holds(s, prompt, 30);

    support_prefill(s, prompt, CONTEXT); /* exactly full */
    support_fails(ftk_decode(s, 1, &e), FTK_CONTEXT_FULL, &e, "201", "200", NULL);
    holds(s, prompt, CONTEXT);
    assert_non_null(ftk_logits(s, NULL));
    support_prefill(s, prompt, 30);
    support_same_logits(s, want);
    free(want);
    for (int i = 30; i < CONTEXT; i++) support_decode(s, prompt[i]);
    support_fails(ftk_decode(s, 1, &e), FTK_CONTEXT_FULL, &e, "201", "200", NULL);
    want = fresh(prompt, CONTEXT);
    support_same_logits(s, want);
    free(want);
    ftk_session_close(s);
    /* A context of one token. */
    s = support_session(model, &(ftk_session_opts){.context = 1});
    support_prefill(s, prompt, 1);
    assert_int_equal(ftk_decode(s, 1, &e), FTK_CONTEXT_FULL);
    ftk_session_close(s);
}

static void arguments_are_checked(void **state) {
    (void)state;
    ftk_error e = {0};
    ftk_session *s = NULL;
    const struct {
        ftk_session_opts o;
        const char *field;
    } wrong[] = {{{.context = -1}, "context"}, {{.context = INT32_MAX}, "context"}, {{.chunk = -1}, "chunk"},
                 {{.chunk = 1 << 20}, "chunk"}, {{.n_threads = -1}, "n_threads"}, {{.n_threads = 100000}, "n_threads"},
                 {{.kv_type = (ftk_kv_type)7}, "kv_type"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        support_fails(ftk_session_open(&s, model, &wrong[i].o, &e), FTK_INVALID_ARGUMENT, &e, wrong[i].field, NULL);
        ftk_memory memory;
        support_fails(ftk_memory_estimate(model, &wrong[i].o, &memory, &e), FTK_INVALID_ARGUMENT, &e,
                      wrong[i].field, NULL);
        assert_null(s);
    }
    /* A struct of an older header: what lies behind its end is not looked at. */
    s = support_session(model, &(ftk_session_opts){.size = offsetof(ftk_session_opts, n_threads), .context = 9,
                                                   .n_threads = -4, .chunk = -3});
    assert_int_equal(ftk_session_context(s), 9);
    ftk_session_close(s);
    s = session(8);
    support_prefill(s, prompt, 5);
    const ftk_token bad[] = {1, 2, -1}, high[] = {1 << 20};
    support_fails(ftk_prefill(s, bad, 3, &e), FTK_INVALID_ARGUMENT, &e, "-1", "2", NULL);
    support_fails(ftk_prefill(s, high, 1, &e), FTK_INVALID_ARGUMENT, &e, "1048576", NULL);
    support_fails(ftk_decode(s, -1, &e), FTK_INVALID_ARGUMENT, &e, "-1", NULL);
    assert_int_equal(ftk_prefill(s, prompt, 0, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_prefill(s, NULL, 3, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_prefill(NULL, prompt, 3, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_score(s, prompt, 3, NULL, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_session_open(NULL, model, NULL, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_session_open(&s, NULL, NULL, NULL), FTK_INVALID_ARGUMENT);
    holds(s, prompt, 5);
    ftk_session_close(s);
    ftk_session_close(NULL);
}

/* ----------------------------------------------------------------- cancel */

typedef struct canceller {
    ftk_session *session;
    uint64_t after; /* tokens */
    bool refuse;    /* by the callback's answer; else by ftk_session_cancel */
    uint64_t last, total;
    int calls;
} canceller;

static bool watch(void *ctx, const char *phase, uint64_t done, uint64_t total) {
    canceller *c = ctx;
    assert_string_equal(phase, "prefill");
    assert_true(done > c->last || c->calls == 0);
    assert_true(done <= total);
    c->last = done;
    c->total = total;
    c->calls++;
    if (done < c->after) return true;
    if (!c->refuse) ftk_session_cancel(c->session);
    return !c->refuse;
}

/* Between chunks: the session holds the chunks finished so far and goes on from there. */
static void cancelled_prefill_keeps_whole_chunks(void **state) {
    (void)state;
    float *want = fresh(prompt, CONTEXT);
    for (int refuse = 0; refuse < 2; refuse++) {
        canceller c = {.after = 48, .refuse = refuse};
        ftk_session *s = support_session(model, &(ftk_session_opts){.context = CONTEXT, .chunk = 16, .n_threads = 2,
                                                                    .progress = watch, .progress_ctx = &c});
        c.session = s;
        ftk_error e = {0};
        support_fails(ftk_prefill(s, prompt, CONTEXT, &e), FTK_CANCELLED, &e, NULL);
        holds(s, prompt, 48);
        assert_null(ftk_logits(s, NULL));
        assert_int_equal(stats_of(s).prefill_tokens, 48);
        c.after = UINT64_MAX;
        c.calls = 0;
        support_prefill(s, prompt, CONTEXT);
        assert_int_equal(stats_of(s).reused_tokens, 48);
        assert_int_equal(c.last, c.total);
        support_same_logits(s, want);
        ftk_session_close(s);
    }
    free(want);
}

/* A request while nothing runs ends the next call at once, and only that one. */
static void cancel_before_the_call(void **state) {
    (void)state;
    ftk_session *s = session(32);
    ftk_error e = {0};
    ftk_session_cancel(s);
    support_fails(ftk_prefill(s, prompt, N, &e), FTK_CANCELLED, &e, NULL);
    holds(s, prompt, 0);
    support_prefill(s, prompt, N);
    ftk_session_cancel(s);
    support_fails(ftk_decode(s, 3, &e), FTK_CANCELLED, &e, NULL);
    holds(s, prompt, N);
    support_decode(s, 3);
    ftk_session_close(s);
}

typedef struct bystander {
    ftk_session *session;
    atomic_bool started, done;
} bystander;

static void *cancel_soon(void *ctx) {
    bystander *b = ctx;
    while (!atomic_load(&b->started)) {}
    while (!atomic_load(&b->done)) {
        ftk_session_cancel(b->session);
        usleep(200);
    }
    return NULL;
}

/* S8: from another thread, in the middle of a chunk. */
static void cancel_from_another_thread(void **state) {
    (void)state;
    ftk_model *m = support_model(&(tiny_opts){.layers = 12}, NULL);
    ftk_session *s = support_session(m, &(ftk_session_opts){.context = CONTEXT, .chunk = CONTEXT, .n_threads = 2});
    bystander b = {.session = s};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &b), 0);
    int cancelled = 0;
    for (int i = 0; i < 500 && !cancelled; i++) { /* the other thread may be slow to come */
        ftk_error e = {0};
        assert_ok(ftk_session_rewind(s, 0, &e), &e);
        atomic_store(&b.started, true);
        ftk_status status = ftk_prefill(s, prompt, CONTEXT, &e);
        assert_true(status == FTK_OK || status == FTK_CANCELLED);
        cancelled += status == FTK_CANCELLED;
        if (status == FTK_CANCELLED) assert_int_equal(ftk_session_length(s), 0);
    }
    atomic_store(&b.done, true);
    pthread_join(thread, NULL);
    assert_true(cancelled > 0);
    ftk_error e = {0};
    (void)ftk_prefill(s, prompt, 3, &e); /* a late request may end this one */
    support_prefill(s, prompt, CONTEXT);
    float *got = support_logits(s);
    ftk_session *again = support_session(m, &(ftk_session_opts){.context = CONTEXT, .n_threads = 1});
    support_prefill(again, prompt, CONTEXT);
    support_same_logits(again, got);
    free(got);
    ftk_session_close(again);
    ftk_session_close(s);
    ftk_model_close(m);
}

/* ---------------------------------------------------------------- threads */

typedef struct worker {
    const float *want;
    const ftk_token *tokens;
    int32_t n_threads;
    bool same;
} worker;

static void *work(void *ctx) {
    worker *w = ctx;
    ftk_session *s = NULL;
    size_t width;
    w->same = true;
    for (int round = 0; round < 4 && w->same; round++) {
        if (ftk_session_open(&s, model, &(ftk_session_opts){.context = CONTEXT, .chunk = 24 + 8 * round,
                                                            .n_threads = w->n_threads}, NULL) != FTK_OK) {
            w->same = false;
            return NULL;
        }
        w->same = ftk_prefill(s, w->tokens, N - 10, NULL) == FTK_OK;
        for (int i = N - 10; i < N && w->same; i++) w->same = ftk_decode(s, w->tokens[i], NULL) == FTK_OK;
        const float *got = w->same ? ftk_logits(s, &width) : NULL;
        w->same = got && memcmp(got, w->want, width * sizeof *got) == 0;
        ftk_session_close(s);
    }
    return NULL;
}

static void two_sessions_in_two_threads(void **state) {
    (void)state;
    ftk_token other[N];
    support_tokens(model, other, N, 9);
    float *want[2] = {fresh(prompt, N), fresh(other, N)};
    worker w[2] = {{.want = want[0], .tokens = prompt, .n_threads = 1}, {.want = want[1], .tokens = other, .n_threads = 2}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_true(w[0].same);
    assert_true(w[1].same);
    free(want[0]);
    free(want[1]);
}

/* ------------------------------------------------------------- the counts */

static void counts_are_honest(void **state) {
    (void)state;
    ftk_session *s = session(32);
    assert_null(ftk_logits(s, NULL));
    assert_int_equal(ftk_session_context(s), CONTEXT);
    ftk_stats before = stats_of(s);
    assert_int_equal(before.multiply_adds, 0);
    assert_int_equal(before.kv_bytes, 0);
    support_prefill(s, prompt, N);
    ftk_stats after = stats_of(s);
    /* Two layers of q, k, v, o, gate, up, down for each token; attention; one row of logits. */
    uint64_t per_token = 2 * (64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 96), vocabulary;
    ftk_model_info info;
    ftk_model_get_info(model, &info);
    vocabulary = 64u * (uint64_t)info.n_vocab;
    uint64_t attention = 2 * 2 * (uint64_t)(N * (N + 1) / 2) * 64;
    assert_true(after.multiply_adds == N * per_token + attention + vocabulary);
    assert_true(after.prefill_seconds > 0.0 && after.decode_seconds == 0.0);
    support_decode(s, 1);
    ftk_stats last = stats_of(s);
    assert_true(last.multiply_adds - after.multiply_adds == per_token + 2 * 2 * (N + 1) * 64 + vocabulary);
    assert_int_equal(last.decode_tokens, 1);
    assert_true(last.decode_seconds > 0.0);
    assert_true(last.kv_bytes > 0 && last.kv_peak_bytes >= last.kv_bytes);
    assert_string_equal(last.isa, info.isa);
    ftk_error e = {0};
    assert_ok(ftk_session_rewind(s, 1, &e), &e);
    assert_true(stats_of(s).kv_bytes < last.kv_bytes && stats_of(s).kv_peak_bytes == last.kv_peak_bytes);
    ftk_session_close(s);
}

typedef struct tapped {
    int32_t next;
    size_t tokens;
    double sum;
} tapped;

static void tap(void *ctx, int32_t layer, const float *x, size_t n_tokens, size_t hidden) {
    tapped *t = ctx;
    assert_int_equal(layer, t->next);
    t->next = layer == 2 ? -1 : layer + 1;
    if (layer == 2) t->tokens += n_tokens;
    for (size_t i = 0; i < n_tokens * hidden; i++) t->sum += fabs((double)x[i]);
}

static void taps_see_every_layer(void **state) {
    (void)state;
    ftk_session *s = session(50);
    tapped t = {.next = -1};
    ftk_session_tap(s, tap, &t);
    support_prefill(s, prompt, N);
    support_decode(s, 1);
    assert_int_equal(t.tokens, N + 1);
    assert_true(t.sum > 0.0);
    float *got = support_logits(s);
    ftk_session_tap(s, NULL, NULL);
    support_prefill(s, prompt, N);
    support_decode(s, 1);
    support_same_logits(s, got);
    assert_int_equal(t.tokens, N + 1);
    free(got);
    ftk_session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_are_reused),
        cmocka_unit_test(same_prompt_twice),
        cmocka_unit_test(interleaved_conversations),
        cmocka_unit_test(rewinding_forgets),
        cmocka_unit_test(a_full_context_is_an_error),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(cancelled_prefill_keeps_whole_chunks),
        cmocka_unit_test(cancel_before_the_call),
        cmocka_unit_test(cancel_from_another_thread),
        cmocka_unit_test(two_sessions_in_two_threads),
        cmocka_unit_test(counts_are_honest),
        cmocka_unit_test(taps_see_every_layer)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}

// SPDX-License-Identifier: Apache-2.0
/* Memory: the estimate is what is taken, nothing near the full context is taken at open, nothing is
 * allocated while decoding, and every allocation may fail. */
#include "e2e/support.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/memory.h"
#include "engine/model.h"
#include "sanitized.h"

static size_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size, resident;
    if (!f) return 0;
    int n = fscanf(f, "%lu %lu", &size, &resident);
    fclose(f);
    return n == 2 ? resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* ------------------------------------------------------------- the estimate */

static void the_estimate_is_the_plan(void **state) {
    (void)state;
    const tiny_opts models[] = {{.type = FTKI_Q4_0}, {.arch = "gemma3"}, {.heads = 8, .head_dim = 64, .vocab = 5000}};
    for (int i = 0; i < 3; i++) {
        ftk_model *m = support_model(&models[i], NULL);
        ftk_model_info info;
        ftk_model_get_info(m, &info);
        for (int kv = 0; kv < 3; kv++) {
            const int32_t contexts[] = {1, 33, 4096, 100000};
            for (int c = 0; c < 4; c++) {
                ftk_session_opts o = {.context = contexts[c], .kv_type = (ftk_kv_type)kv, .n_threads = 2, .chunk = 64};
                ftk_memory memory;
                ftk_error e = {0};
                assert_ok(ftk_memory_estimate(m, &o, &memory, &e), &e);
                ftk_session *s = support_session(m, &o);
                assert_true(memory.weights == info.weight_bytes);
                assert_true(memory.scratch == s->scratch.arena.bytes + s->arena.bytes);
                assert_true(memory.kv == s->kv.arena.bytes + s->kv.index.bytes);
                assert_true(memory.total == memory.weights + memory.scratch + memory.kv);
                ftk_stats stats;
                ftk_session_stats(s, &stats);
                assert_true(stats.scratch_bytes == memory.scratch);
                ftk_session_close(s);
                /* The limit counts the same bytes. */
                o.max_bytes = memory.total - 1;
                support_fails(ftk_session_open(&s, m, &o, &e), FTK_OUT_OF_MEMORY, &e, "context", NULL);
                o.max_bytes = memory.total;
                s = support_session(m, &o);
                ftk_session_close(s);
            }
        }
        ftk_model_close(m);
    }
}

/* A full cache holds what the estimate says, up to the lists of its pages. */
static void a_full_cache_takes_the_estimate(void **state) {
    (void)state;
    ftk_model *m = support_model(NULL, NULL);
    for (int kv = 0; kv < 3; kv++) {
        ftk_session_opts o = {.context = 256, .kv_type = (ftk_kv_type)kv, .n_threads = 1};
        ftk_memory memory;
        ftk_error e = {0};
        assert_ok(ftk_memory_estimate(m, &o, &memory, &e), &e);
        ftk_session *s = support_session(m, &o);
        ftk_token tokens[256];
        support_tokens(m, tokens, 256, 1);
        support_prefill(s, tokens, 256);
        ftk_stats stats;
        ftk_session_stats(s, &stats);
        assert_true(stats.kv_bytes <= memory.kv && stats.kv_bytes >= memory.kv * 9 / 10);
        assert_true(stats.kv_peak_bytes == stats.kv_bytes);
        ftk_session_close(s);
    }
    ftk_model_close(m);
}

/* K6: a context of a million tokens is a promise, not a purchase. */
static void a_long_context_costs_nothing_at_open(void **state) {
    (void)state;
#ifdef SANITIZED
    skip(); /* the sanitizer's shadow memory would be measured too */
#endif
    ftk_model *m = support_model(&(tiny_opts){.layers = 4, .context = 1 << 20}, NULL);
    ftk_session_opts o = {.context = 1 << 20, .kv_type = FTK_KV_F32, .n_threads = 1};
    ftk_memory memory;
    ftk_error e = {0};
    assert_ok(ftk_memory_estimate(m, &o, &memory, &e), &e);
    assert_true(memory.kv > (uint64_t)1 << 30);
    size_t before = resident_bytes();
    assert_true(before > 0);
    ftk_session *s = support_session(m, &o);
    ftk_token tokens[64];
    support_tokens(m, tokens, 64, 1);
    support_prefill(s, tokens, 64);
    size_t after = resident_bytes();
    /* Scratch, and a few huge pages for the pieces in use. */
    if (after > before + memory.scratch + ((size_t)24 << 20))
        fail_msg("%zu MiB resident after open and 64 tokens", (after - before) >> 20);
    ftk_session_close(s);
    /* The default context is modest whatever the model was trained with. */
    s = support_session(m, NULL);
    assert_int_equal(ftk_session_context(s), 4096);
    ftk_session_close(s);
    ftk_model_close(m);
}

/* --------------------------------------------------------- while decoding */

static void work_allocates_nothing(void **state) {
    (void)state;
    const tiny_opts models[] = {{.type = FTKI_Q4_1}, {.arch = "gemma3"}};
    for (int i = 0; i < 2; i++) {
        ftk_model *m = support_model(&models[i], NULL);
        ftk_session *s = support_session(m, &(ftk_session_opts){.context = 300, .n_threads = 2, .chunk = 32});
        ftk_token tokens[200];
        support_tokens(m, tokens, 200, 1);
        uint64_t count = ftki_alloc_count(), violations = ftki_no_alloc_violations();
        support_prefill(s, tokens, 200);
        for (int t = 0; t < 100; t++) support_decode(s, tokens[t]);
        support_prefill(s, tokens, 90);
        assert_true(ftki_alloc_count() == count);
        assert_true(ftki_no_alloc_violations() == violations);
        ftk_session_close(s);
        ftk_model_close(m);
    }
}

/* The harness itself: an allocation inside the zone is seen, by abort in debug builds. */
static void the_zone_sees_allocations(void **state) {
    (void)state;
#ifdef NDEBUG
    uint64_t before = ftki_no_alloc_violations();
    ftki_no_alloc_enter();
    ftki_free(ftki_alloc(1, 8));
    ftki_no_alloc_leave();
    assert_true(ftki_no_alloc_violations() == before + 1);
#else
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        ftki_no_alloc_enter();
        ftki_free(ftki_alloc(1, 8));
        _exit(0);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
}

/* ------------------------------------------------------ allocations that fail */

static bool any_text(void *ctx, const char *text, size_t len) {
    (void)text;
    *(size_t *)ctx += len;
    return true;
}

/* Everything a program does with a model, from opening to restoring; stops at the first failure. */
static ftk_status whole_story(const char *path, const char *snapshot, ftk_error *e) {
    ftk_model *m = NULL;
    ftk_session *s = NULL;
    ftk_sampler *p = NULL;
    ftk_token tokens[40];
    size_t n, text = 0;
    ftk_session_opts so = {.context = 100, .n_threads = 2, .chunk = 16};
    ftk_sampler_opts po = {.temperature = 0.7f, .bias = &(ftk_logit_bias){3, 1.0f}, .n_bias = 1};
    ftk_generate_opts go = {.max_tokens = 4, .stop = (const char *const[]){"never to be seen"}, .n_stop = 1,
                            .on_text = any_text, .on_text_ctx = &text};
    ftk_status status = ftk_model_open(&m, path, &(ftk_model_opts){.n_threads = 2}, e);
    if (status == FTK_OK)
        status = ftki_tokenizer_encode(m->tokenizer, "Hello world, the end of the story", 33, 0, tokens, 40, &n, e);
    if (status == FTK_OK) status = ftk_session_open(&s, m, &so, e);
    if (status == FTK_OK) status = ftk_sampler_open(&p, m, &po, e);
    if (status == FTK_OK) status = ftk_prefill(s, tokens, n, e);
    if (status == FTK_OK) status = ftk_decode(s, 5, e);
    if (status == FTK_OK) status = ftk_generate(s, p, &go, NULL, e);
    if (status == FTK_OK) status = ftk_session_save(s, snapshot, e);
    if (status == FTK_OK) status = ftk_session_restore(s, snapshot, e);
    if (status == FTK_OK) status = ftk_decode(s, 5, e);
    ftk_sampler_close(p);
    ftk_session_close(s);
    ftk_model_close(m);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const tiny_opts models[] = {{.layers = 1, .type = FTKI_Q8_0}, {.arch = "gemma3", .layers = 1}};
    support_name snapshot = support_path("fail.snap");
    for (int i = 0; i < 2; i++) {
        support_name path = support_path(i ? "fail-1.gguf" : "fail-0.gguf");
        assert_true(tiny_model_write(&models[i], path.text));
        ftk_error e = {0};
        assert_ok(whole_story(path.text, snapshot.text, &e), &e); /* also warms what is made once */
        uint64_t before = ftki_alloc_count();
        assert_ok(whole_story(path.text, snapshot.text, &e), &e);
        uint64_t total = ftki_alloc_count() - before;
        assert_true(total > 10);
        uint64_t survived = 0;
        for (uint64_t n = 1; n <= total; n++) {
            memset(&e, 0, sizeof e);
            ftki_alloc_fail_at(n);
            ftk_status status = whole_story(path.text, snapshot.text, &e);
            ftki_alloc_fail_at(0);
            survived += status == FTK_OK; /* patterns match uncompiled, a directory is not synced */
            if (status != FTK_OK) {
                if (status != FTK_OUT_OF_MEMORY)
                    fail_msg("allocation %llu of %llu: %s: %s", (unsigned long long)n, (unsigned long long)total,
                             ftk_status_name(status), e.message);
                assert_int_equal(e.code, FTK_OUT_OF_MEMORY);
                assert_true(e.message[0]);
            }
        }
        assert_true(survived <= total / 4);
        assert_ok(whole_story(path.text, snapshot.text, &e), &e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_estimate_is_the_plan),
        cmocka_unit_test(a_full_cache_takes_the_estimate),
        cmocka_unit_test(a_long_context_costs_nothing_at_open),
        cmocka_unit_test(work_allocates_nothing),
        cmocka_unit_test(the_zone_sees_allocations),
        cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

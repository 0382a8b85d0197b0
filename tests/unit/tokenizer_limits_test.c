// SPDX-License-Identifier: Apache-2.0
/* Long, odd and concurrent: unbroken runs in linear time on a small stack, text that is not
 * UTF-8, buffers that are too small, threads on one tokenizer. */
#include <pthread.h>

#include "cpu_time.h"
#include "unit/tokenizer_fixture.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa", ". .", "Ġ Ġ", "Ċ Ċ", "A A",
                                     "h e", "l l", "he ll", "hell o", "Ã ©"};
static const char *const pres[] = {"smollm", "llama-bpe", "qwen2", "gpt-2"};

static ftki_tokenizer *open_and_free(tiny_gguf g) {
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    if (!t) fail_msg("refused: %s", e.message);
    tiny_gguf_free(&g);
    return t;
}

static ftki_tokenizer *open_spm(void) {
    static const char *const pieces[] = {"aa", "aaaa", "aaaaaaaa", "a", "\xE2\x96\x81",
                                         "\xE2\x96\x81\xE2\x96\x81", "..", ".", "\n", "\n\n"};
    return open_and_free(spm_file(pieces, COUNT(pieces)));
}

typedef struct long_job {
    const ftki_tokenizer *t;
    char *text;
    size_t len, n;
    ftk_status status;
} long_job;

static void *encode_job(void *p) {
    long_job *job = p;
    ftk_error e;
    job->status = ftki_tokenizer_encode(job->t, job->text, job->len, 0, NULL, 0, &job->n, &e);
    return NULL;
}

/* On a thread with 128 KiB of stack. */
static size_t count_on_small_stack(const ftki_tokenizer *t, const char *unit, size_t times) {
    size_t unit_len = strlen(unit);
    long_job job = {.t = t, .text = malloc(unit_len * times), .len = unit_len * times};
    for (size_t i = 0; i < times; i++) memcpy(job.text + i * unit_len, unit, unit_len);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attributes, encode_job, &job), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    free(job.text);
    assert_int_equal(job.status, FTK_OK);
    return job.n;
}

static void unbroken_runs(void **state) {
    (void)state;
    static const char *const units[] = {"a", "A", ".", " ", "\n", "\t", "7", "'", "\xE5\xA5\xBD",
                                        "\xF0\x9F\xA6\x99", " \n", "\xC2\xA0", "<", "<|im_end|"};
    for (size_t p = 0; p <= COUNT(pres); p++) {
        ftki_tokenizer *t = p < COUNT(pres)
                                ? open_and_free(bpe_file(pres[p], merges, COUNT(merges))) : open_spm();
        for (size_t i = 0; i < COUNT(units); i++) {
            size_t n = count_on_small_stack(t, units[i], 50000);
            assert_in_range(n, 50000 / 8, 50000 * strlen(units[i]) + 1);
        }
        if (p < COUNT(pres)) assert_int_equal(count_on_small_stack(t, "a", 43000), 43000 / 8);
        ftki_tokenizer_close(t);
    }
}

/* A million letters at most 16 times as long per letter as ten thousand: a step for every pair
 * of letters would be 100 times. */
static void time_is_linear(void **state) {
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        ftki_tokenizer *t = spm ? open_spm() : open_and_free(bpe_file("llama-bpe", merges, COUNT(merges)));
        double best = 1;
        for (int i = 0; i < 5; i++) {
            double start = cpu_seconds();
            count_on_small_stack(t, "a", 10000);
            if (cpu_seconds() - start < best) best = cpu_seconds() - start;
        }
        double start = cpu_seconds();
        assert_in_range(count_on_small_stack(t, "a", 1000000), 125000, 125002);
        double seconds = cpu_seconds() - start;
        print_message("1000000 letters: %.3f s, 10000: %.5f s\n", seconds, best);
        assert_true(seconds < 100 * 16 * best || seconds < 1);
        ftki_tokenizer_close(t);
    }
}

static void invalid_bytes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        int64_t offset;
    } cases[] = {
        {"\xFF", 1, 0}, {"abc\x80", 4, 3}, {"ab\xC3", 3, 2}, {"\xC0\xAF", 2, 0}, {"\xED\xA0\x80", 3, 0},
        {"\xF4\x90\x80\x80", 4, 0}, {"\xE0\x80\x80", 3, 0}, {"0123456789\xE4\xBD", 12, 10},
        {"\xE4\xBD\xA0\xF0\x9F\xA6", 6, 3}, {"aaaaaaaaaaaaaaaa\xFE", 17, 16},
    };
    ftki_tokenizer *bpe = open_and_free(bpe_file("qwen2", merges, COUNT(merges))), *spm = open_spm();
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int k = 0; k < 2; k++) {
            ftk_error e = {0};
            size_t n = 99;
            ftk_token id = 42;
            assert_int_equal(ftki_tokenizer_encode(k ? spm : bpe, cases[i].text, cases[i].len, 0, &id,
                                                   1, &n, &e), FTK_INVALID_ARGUMENT);
            assert_int_equal(e.offset, cases[i].offset);
            assert_int_equal(n, 99);
            assert_int_equal(id, 42);
        }
    ftki_tokenizer_close(bpe);
    ftki_tokenizer_close(spm);
}

static void small_buffers(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(bpe_file("gpt-2", merges, COUNT(merges)));
    ftk_token all[8], some[8];
    size_t n;
    ftk_error e;
    assert_int_equal(ftki_tokenizer_encode(t, "hello a", 7, 0, all, 8, &n, &e), FTK_OK);
    assert_int_equal(n, 3);
    for (size_t cap = 0; cap <= 3; cap++) {
        memset(some, 0x55, sizeof some);
        n = 0;
        assert_int_equal(ftki_tokenizer_encode(t, "hello a", 7, 0, some, cap, &n, &e), FTK_OK);
        assert_int_equal(n, 3);
        assert_memory_equal(some, all, cap * sizeof *some);
        for (size_t i = cap; i < 8; i++) assert_int_equal(some[i], 0x55555555);
    }
    ftki_tokenizer_close(t);
}

static const char shared_text[] = "hello hello \xC3\xA9\xC3\xA9 aaaa 123 aaaaaaa he hell  hello\n";

typedef struct shared_job {
    const ftki_tokenizer *t;
    ftk_token ids[256];
    size_t n;
    bool same;
} shared_job;

static void *encode_many(void *p) {
    shared_job *job = p;
    job->same = true;
    for (int i = 0; i < 200; i++) {
        ftk_token ids[256];
        size_t n = 0;
        if (ftki_tokenizer_encode(job->t, shared_text, sizeof shared_text - 1, 0, ids, 256, &n, NULL))
            job->same = false;
        if (i > 0 && (n != job->n || memcmp(ids, job->ids, n * sizeof *ids) != 0)) job->same = false;
        memcpy(job->ids, ids, sizeof ids);
        job->n = n;
    }
    return NULL;
}

/* What words merge to is remembered as threads find it out. */
static void threads_share_one(void **state) {
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        ftki_tokenizer *t = spm ? open_spm() : open_and_free(bpe_file("smollm", merges, COUNT(merges)));
        shared_job jobs[3] = {{.t = t}, {.t = t}, {.t = t}};
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &jobs[i]), 0);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 3; i++) {
            assert_true(jobs[i].same);
            assert_int_equal(jobs[i].n, jobs[0].n);
            assert_memory_equal(jobs[i].ids, jobs[0].ids, jobs[0].n * sizeof *jobs[0].ids);
        }
        ftki_tokenizer_close(t);
    }
}

/* Characters beyond ASCII by class. One merge joins the first byte of the character with what is
 * before it, and applies exactly when the pattern leaves both in one word. */
static void characters_by_class(void **state) {
    (void)state;
    static const char *const joins[] = {"Ġ Ã", "Ġ Ù", "Ġ â", "a Ã", "a Ì", "a Â", "a ð", "a Å", "' Å"};
    static const struct {
        const char *pre, *text;
        bool joined;
    } cases[] = {
        {"gpt-2", " \xC3\xA9", true},          /* letter */
        {"gpt-2", " \xD9\xA3", true},          /* Arabic digit */
        {"qwen2", " \xD9\xA3", false},         /* numbers stand alone */
        {"smollm", " \xD9\xA3", false},
        {"qwen2", " \xE2\x82\xAC", true},      /* a currency sign takes a space along */
        {"qwen2", "a\xC3\xA9", true},
        {"qwen2", "a\xCC\x81", false},         /* a combining mark is no letter */
        {"qwen2", "a\xC2\xB2", false},         /* superscript two is a number */
        {"qwen2", "a\xC2\xA0", false},         /* no-break space */
        {"qwen2", "a\xC2\x85", false},         /* next line */
        {"qwen2", "a\xF0\x91\xBC\x84", true},  /* Kawi, new in Unicode 15 */
        {"qwen2", "a\xF0\x9F\xA6\x99", false}, /* emoji */
        {"qwen2", "a\xC5\xBF", true},          /* long s, a letter ... */
        {"qwen2", "'\xC5\xBF", true},          /* ... that folds to s in a contraction ... */
        {"gpt-2", "'\xC5\xBF", false},         /* ... where case is ignored */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        ftki_tokenizer *t = open_and_free(bpe_file(cases[i].pre, joins, COUNT(joins)));
        size_t n, len = strlen(cases[i].text);
        assert_int_equal(ftki_tokenizer_encode(t, cases[i].text, len, 0, NULL, 0, &n, NULL), FTK_OK);
        if (n != len - cases[i].joined) fail_msg("case %zu: %zu tokens of %zu bytes", i, n, len);
        ftki_tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unbroken_runs),           cmocka_unit_test(time_is_linear),
        cmocka_unit_test(invalid_bytes_are_named), cmocka_unit_test(small_buffers),
        cmocka_unit_test(threads_share_one),       cmocka_unit_test(characters_by_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

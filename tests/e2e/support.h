// SPDX-License-Identifier: Apache-2.0
/* What the end-to-end tests share: cmocka, a directory of their own, opening tiny models and
 * sessions, random prompts, comparing logits. A failure here fails the test at once. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <ftw.h>
#include <unistd.h>

#include "e2e/tiny_model.h"
#include "freetoken/freetoken.h"

static char support_directory[64];

static int support_unlink(const char *path, const struct stat *st, int flag, struct FTW *where) {
    (void)st;
    (void)flag;
    (void)where;
    return remove(path);
}

static void support_clean(void) { nftw(support_directory, support_unlink, 8, FTW_DEPTH | FTW_PHYS); }

typedef struct support_name {
    char text[128];
} support_name;

/* A path inside the test's own directory, which goes when the program ends. */
static inline support_name support_path(const char *name) {
    if (!support_directory[0]) {
        strcpy(support_directory, "/tmp/freetoken-test-XXXXXX");
        if (!mkdtemp(support_directory)) abort();
        atexit(support_clean);
    }
    support_name n;
    snprintf(n.text, sizeof n.text, "%s/%s", support_directory, name);
    return n;
}

/* Fails the test with the library's own message. */
#define assert_ok(call, error)                                                                   \
    do {                                                                                         \
        ftk_status support_status = (call);                                                      \
        if (support_status != FTK_OK)                                                            \
            fail_msg("%s: %s: %s", #call, ftk_status_name(support_status), (error)->message);    \
    } while (0)

/* The status, and a message in which every one of the NULL-ended words occurs. */
static inline void support_fails(ftk_status got, ftk_status want, const ftk_error *e, ...) {
    if (got != want)
        fail_msg("status %s, wanted %s: %s", ftk_status_name(got), ftk_status_name(want), got ? e->message : "");
    assert_int_equal(e->code, want);
    va_list words;
    va_start(words, e);
    for (const char *word; (word = va_arg(words, const char *));)
        if (!strstr(e->message, word)) fail_msg("\"%s\" does not speak of %s", e->message, word);
    va_end(words);
}

/* The built file written and opened; g is freed. */
static inline ftk_model *support_open_gguf(tiny_gguf *g, const ftk_model_opts *o) {
    static int count;
    char name[32];
    snprintf(name, sizeof name, "model-%d.gguf", count++);
    support_name path = support_path(name);
    assert_true(tiny_gguf_write(g, path.text));
    tiny_gguf_free(g);
    ftk_error e = {0};
    ftk_model *m = NULL;
    assert_ok(ftk_model_open(&m, path.text, o, &e), &e);
    return m;
}

static inline ftk_model *support_model(const tiny_opts *o, const char *isa) {
    tiny_gguf g;
    tiny_model(&g, o);
    return support_open_gguf(&g, &(ftk_model_opts){.isa = isa, .n_threads = 1});
}

static inline ftk_session *support_session(const ftk_model *m, const ftk_session_opts *o) {
    ftk_error e = {0};
    ftk_session *s = NULL;
    assert_ok(ftk_session_open(&s, m, o, &e), &e);
    return s;
}

/* Tokens [n] of a random prompt. */
static inline void support_tokens(const ftk_model *m, ftk_token *tokens, size_t n, uint64_t seed) {
    ftk_model_info info;
    ftk_model_get_info(m, &info);
    ftki_rng rng;
    ftki_rng_seed(&rng, seed);
    for (size_t i = 0; i < n; i++) tokens[i] = (ftk_token)(ftki_rng_u32(&rng) % (uint32_t)info.n_vocab);
}

static inline void support_prefill(ftk_session *s, const ftk_token *tokens, size_t n) {
    ftk_error e = {0};
    assert_ok(ftk_prefill(s, tokens, n, &e), &e);
}

static inline void support_decode(ftk_session *s, ftk_token token) {
    ftk_error e = {0};
    assert_ok(ftk_decode(s, token, &e), &e);
}

/* A copy of the session's logits, to be freed with free(). */
static inline float *support_logits(const ftk_session *s) {
    size_t n;
    const float *logits = ftk_logits(s, &n);
    assert_non_null(logits);
    float *copy = malloc(n * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, logits, n * sizeof *copy);
}

static inline void support_same_logits(const ftk_session *s, const float *want) {
    size_t n;
    const float *got = ftk_logits(s, &n);
    assert_non_null(got);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("logit %zu is %.9g, wanted %.9g", i, (double)got[i], (double)want[i]);
}

static inline ftk_token support_argmax(const ftk_session *s) {
    size_t n, best = 0;
    const float *logits = ftk_logits(s, &n);
    assert_non_null(logits);
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (ftk_token)best;
}

#endif

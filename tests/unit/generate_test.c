// SPDX-License-Identifier: Apache-2.0
/* Generation to the byte: models that recite a script token by token, wherever tokens cut it. */
#include "e2e/support.h"

#include "base/memory.h"
#include "engine/model.h"

enum { CONTEXT = 64 };

/* What the callback got. */
typedef struct heard {
    char text[4096];
    size_t len, calls;
    size_t refuse_at;          /* false on this call, 1 = the first; 0: never */
    ftk_session *cancel;       /* cancelled on that call instead */
} heard;

/* The text is whole characters: the strictest possible check, written out. */
static bool is_utf8(const unsigned char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        uint32_t c = s[i];
        size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if ((c >= 0x80 && c < 0xC2) || c > 0xF4 || i + n > len) return false;
        uint32_t code = n == 1 ? c : c & (0x7Fu >> n);
        for (size_t k = 1; k < n; k++) {
            if ((s[i + k] & 0xC0) != 0x80) return false;
            code = code << 6 | (s[i + k] & 0x3Fu);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
        i += n;
    }
    return true;
}

static bool hear(void *ctx, const char *text, size_t len) {
    heard *h = ctx;
    assert_true(len > 0);
    assert_true(is_utf8((const unsigned char *)text, len));
    assert_true(h->len + len < sizeof h->text);
    memcpy(h->text + h->len, text, len);
    h->len += len;
    h->text[h->len] = 0;
    if (++h->calls != h->refuse_at) return true;
    if (!h->cancel) return false;
    ftk_session_cancel(h->cancel);
    return true;
}

/* A reciting model, a session after a prompt of one token, and a greedy sampler. */
typedef struct stage {
    ftk_model *model;
    ftk_session *session;
    ftk_sampler *sampler;
} stage;

static stage set_stage(const char *const *pieces, bool loop, int32_t context) {
    tiny_gguf g;
    size_t n = 0;
    while (pieces[n]) n++;
    tiny_reciter(&g, pieces, n, loop);
    stage st;
    ftk_error e = {0};
    st.model = support_open_gguf(&g, &(ftk_model_opts){.n_threads = 1});
    st.session = support_session(st.model, &(ftk_session_opts){.context = context, .n_threads = 1});
    assert_ok(ftk_sampler_open(&st.sampler, st.model, NULL, &e), &e);
    support_prefill(st.session, &(ftk_token){100}, 1);
    return st;
}

static void strike(stage *st) {
    ftk_sampler_close(st->sampler);
    ftk_session_close(st->session);
    ftk_model_close(st->model);
}

#define PIECES(...) (const char *const[]){__VA_ARGS__, NULL}
#define STOPS(...) (const char *const[]){__VA_ARGS__, NULL}

/* Recites `pieces`; the text, the reason and the number of tokens must be these. */
static void recite(const char *const *pieces, const char *const *stops, const char *text, ftk_finish finish,
                   size_t n_tokens) {
    stage st = set_stage(pieces, false, CONTEXT);
    heard h = {.len = 0};
    size_t n_stop = 0;
    while (stops && stops[n_stop]) n_stop++;
    ftk_generated g = {.n_tokens = 99};
    ftk_error e = {0};
    assert_ok(ftk_generate(st.session, st.sampler,
                           &(ftk_generate_opts){.stop = stops, .n_stop = n_stop, .on_text = hear, .on_text_ctx = &h},
                           &g, &e), &e);
    assert_string_equal(h.text, text);
    assert_int_equal(g.finish, finish);
    assert_int_equal(g.n_tokens, n_tokens);
    assert_int_equal(ftk_session_length(st.session), 1 + n_tokens);
    assert_non_null(ftk_logits(st.session, NULL));
    assert_true(g.seconds >= g.first_token_seconds && g.first_token_seconds >= 0.0);
    strike(&st);
}

static void text_comes_whole(void **state) {
    (void)state;
    recite(PIECES("Why", " not", " go"), NULL, "Why not go", FTK_FINISH_END, 4);
    recite(PIECES("\xC3\xA9t", "\xC3\xA9!"), NULL, "été!", FTK_FINISH_END, 3);
}

/* Characters of two, three and four bytes, one token a byte (the bytes are tokens of their own, so
 * the pieces pair them across characters). */
static void characters_wait(void **state) {
    (void)state;
    /* 😀 = F0 9F 98 80, 中 = E4 B8 AD, é = C3 A9 */
    recite(PIECES("a\xF0", "\x9F\x98", "\x80" "b"), NULL, "a😀b", FTK_FINISH_END, 4);
    recite(PIECES("x\xE4", "\xB8\xAD" "y"), NULL, "x中y", FTK_FINISH_END, 3);
    recite(PIECES("1\xE4\xB8", "\xAD\xC3", "\xA9" "2"), NULL, "1中é2", FTK_FINISH_END, 4);
}

/* S1: nothing of the character may come before its last byte. */
static void no_half_character(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab\xF0\x9F", "\x98\x80" "c"), false, CONTEXT);
    heard h = {.len = 0};
    ftk_generated g;
    ftk_error e = {0};
    ftk_generate_opts o = {.max_tokens = 1, .on_text = hear, .on_text_ctx = &h};
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    /* The call ended inside the character: what was held is replaced, never sent raw. */
    assert_string_equal(h.text, "ab\xEF\xBF\xBD");
    assert_int_equal(g.finish, FTK_FINISH_LENGTH);
    strike(&st);
}

/* S3: one U+FFFD for each run that could have begun a character. */
static void invalid_bytes_are_replaced(void **state) {
    (void)state;
#define R "\xEF\xBF\xBD"
    recite(PIECES("a\xFF" "b", "\x80\x80"), NULL, "a" R "b" R R, FTK_FINISH_END, 3);
    recite(PIECES("\xE4\xB8", "z1"), NULL, R "z1", FTK_FINISH_END, 3);
    recite(PIECES("q\xF0\x9F\x98"), NULL, "q" R, FTK_FINISH_END, 2);
    recite(PIECES("\xC0\xAF", "\xED\xA0\x80", "\xF4\x90" "k"), NULL, R R R R R R R "k", FTK_FINISH_END, 4);
    recite(PIECES("\xE0\x80w", "\xF0\x80v"), NULL, R R "w" R R "v", FTK_FINISH_END, 3); /* overlong */
    recite(PIECES("k\xE4\xB8", "!stop"), STOPS("!"), "k" R, FTK_FINISH_STOP, 2);
    recite(PIECES("\xC3\xC3\xA9"), NULL, R "é", FTK_FINISH_END, 2);
#undef R
}

/* R6 */
static void stop_at_once(void **state) {
    (void)state;
    recite(PIECES("\n\n\n", "more"), STOPS("\n"), "", FTK_FINISH_STOP, 1);
    recite(PIECES("STOP", "more"), STOPS("STOP"), "", FTK_FINISH_STOP, 1);
}

static void stop_across_tokens(void **state) {
    (void)state;
    recite(PIECES("one E", "Nxx", "D!two"), STOPS("ENxxD"), "one ", FTK_FINISH_STOP, 3);
    recite(PIECES("one E", "ND", "ers"), STOPS("END!"), "one ENDers", FTK_FINISH_END, 4);
    recite(PIECES("aab1", "aabaab", "aaX"), STOPS("aabaaX"), "aab1aab", FTK_FINISH_STOP, 3);
    recite(PIECES("a <|u", "ser|", "> b"), STOPS("###", "<|user|>", "Q:"), "a ", FTK_FINISH_STOP, 3);
    /* The first to be complete decides; of those complete at once, the longest. */
    recite(PIECES("xabcdy"), STOPS("abcd", "bc"), "xa", FTK_FINISH_STOP, 1);
    recite(PIECES("xabcdy"), STOPS("cd", "abcd"), "x", FTK_FINISH_STOP, 1);
    /* A stop string of more bytes than a character. */
    recite(PIECES("so \xF0\x9F", "\x98\x80", "x!"), STOPS("😀"), "so ", FTK_FINISH_STOP, 2);
}

/* S5 */
static void nothing_is_lost_before_a_stop(void **state) {
    (void)state;
    recite(PIECES(" on Mars", "?\n", "x!"), STOPS("\n"), " on Mars?", FTK_FINISH_STOP, 2);
    recite(PIECES("1E", "EN", "ENE", "NDx"), STOPS("END"), "1EENEN", FTK_FINISH_STOP, 4);
    recite(PIECES("so EN"), STOPS("END"), "so EN", FTK_FINISH_END, 2);
}

/* Only what may be the start of a stop string waits, and no longer than needed. */
static void text_waits_no_longer_than_needed(void **state) {
    (void)state;
    stage st = set_stage(PIECES("one E", "Nx two", " EN"), false, CONTEXT);
    const char *const want[] = {"one ", "one ENx two", "one ENx two EN"};
    heard h = {.len = 0};
    for (int i = 0; i < 3; i++) {
        /* Each call would flush at its end: look from the callback's side, in one call per length. */
        ftk_generated g;
        ftk_error e = {0};
        h = (heard){.refuse_at = i == 2 ? 0 : (size_t)i + 1};
        support_prefill(st.session, &(ftk_token){100}, 1);
        ftk_generate_opts o = {.stop = STOPS("END"), .n_stop = 1, .on_text = hear, .on_text_ctx = &h};
        assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
        assert_string_equal(h.text, want[i]);
        assert_int_equal(g.finish, i == 2 ? FTK_FINISH_END : FTK_FINISH_CANCELLED);
        assert_int_equal(g.n_tokens, i == 2 ? 4 : i + 1);
    }
    strike(&st);
}

static void long_pieces_and_stops(void **state) {
    (void)state;
    char piece[321], stop[301], text[400];
    memset(piece, 'u', 320);
    piece[320] = 0;
    memset(stop, 'u', 299);
    strcpy(stop + 299, "v");
    /* 320 u, then "v...": the stop string is the last 299 u and the v. */
    memset(text, 'u', 21);
    text[21] = 0;
    recite(PIECES(piece, "v12"), STOPS(stop), text, FTK_FINISH_STOP, 2);
    snprintf(text, sizeof text, "%sw12", piece);
    recite(PIECES(piece, "w12"), STOPS(stop), text, FTK_FINISH_END, 3);
    /* Characters across the border of the pieces that are handled at once. */
    for (size_t shift = 0; shift < 4; shift++) {
        memset(piece, '.', shift);
        for (size_t i = shift; i + 4 <= 300; i += 4) memcpy(piece + i, "😀", 4);
        piece[shift + (300 - shift) / 4 * 4] = 0;
        recite(PIECES(piece), NULL, piece, FTK_FINISH_END, 2);
    }
}

static void counts_end_generation(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab1", "cd2", "ef3"), true, CONTEXT);
    heard h = {.len = 0};
    ftk_generated g;
    ftk_error e = {0};
    ftk_generate_opts o = {.max_tokens = 2, .on_text = hear, .on_text_ctx = &h};
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_string_equal(h.text, "ab1cd2");
    assert_int_equal(g.finish, FTK_FINISH_LENGTH);
    assert_int_equal(g.n_tokens, 2);
    /* A second call goes on where the first ended. */
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_string_equal(h.text, "ab1cd2ef3ab1");
    assert_int_equal(ftk_session_length(st.session), 5);
    /* R11, R12: no count and no end: the context is filled, then that is said. */
    o.max_tokens = 0;
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_int_equal(g.finish, FTK_FINISH_CONTEXT);
    assert_int_equal(g.n_tokens, CONTEXT - 5);
    assert_int_equal(h.len, 3 * (CONTEXT - 1));
    assert_int_equal(ftk_session_length(st.session), CONTEXT);
    /* Full already: no token, no error. */
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_int_equal(g.finish, FTK_FINISH_CONTEXT);
    assert_int_equal(g.n_tokens, 0);
    strike(&st);
}

static void ends_can_be_ignored_and_shown(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab1"), false, CONTEXT);
    heard h = {.len = 0};
    ftk_generated g;
    ftk_error e = {0};
    ftk_generate_opts o = {.max_tokens = 5, .ignore_end = true, .on_text = hear, .on_text_ctx = &h};
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_string_equal(h.text, "ab1ab1ab1"); /* piece, end, piece, end, piece */
    assert_int_equal(g.finish, FTK_FINISH_LENGTH);
    support_prefill(st.session, &(ftk_token){100}, 1);
    h = (heard){.len = 0};
    o = (ftk_generate_opts){.show_special = true, .on_text = hear, .on_text_ctx = &h};
    assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
    assert_string_equal(h.text, "ab1<|im_end|>");
    assert_int_equal(g.finish, FTK_FINISH_END);
    assert_int_equal(g.n_tokens, 2);
    strike(&st);
}

/* Cancelled by the callback, from inside it, and before the call: success, and a session that holds
 * what was shown and can go on. */
static void cancellation_is_no_error(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab1", "cd2", "ef3"), true, CONTEXT);
    ftk_generated g;
    ftk_error e = {0};
    for (int way = 0; way < 2; way++) {
        heard h = {.refuse_at = 2, .cancel = way ? st.session : NULL};
        ftk_generate_opts o = {.on_text = hear, .on_text_ctx = &h};
        support_prefill(st.session, &(ftk_token){100}, 1);
        assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
        assert_int_equal(g.finish, FTK_FINISH_CANCELLED);
        assert_string_equal(h.text, "ab1cd2");
        assert_int_equal(g.n_tokens, 2);
        assert_int_equal(ftk_session_length(st.session), 3);
        assert_int_equal(ftk_session_tokens(st.session)[2], tiny_reciter_token(1));
        o.max_tokens = 1;
        assert_ok(ftk_generate(st.session, st.sampler, &o, &g, &e), &e);
        assert_int_equal(g.finish, FTK_FINISH_LENGTH);
        assert_string_equal(h.text, "ab1cd2ef3");
    }
    ftk_session_cancel(st.session);
    size_t length = ftk_session_length(st.session);
    assert_ok(ftk_generate(st.session, st.sampler, NULL, &g, &e), &e);
    assert_int_equal(g.finish, FTK_FINISH_CANCELLED);
    assert_int_equal(g.n_tokens, 0);
    assert_int_equal(ftk_session_length(st.session), length);
    assert_ok(ftk_generate(st.session, st.sampler, &(ftk_generate_opts){.max_tokens = 1}, &g, &e), &e);
    assert_int_equal(g.finish, FTK_FINISH_LENGTH);
    strike(&st);
}

static void fields_are_checked(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab1"), false, CONTEXT);
    ftk_generated g = {.n_tokens = 77};
    const struct {
        ftk_generate_opts o;
        const char *field;
    } wrong[] = {{{.max_tokens = -2}, "max_tokens"},
                 {{.n_stop = 1}, "stop"},
                 {{.n_stop = 1, .stop = (const char *const[]){""}}, "stop string 0"},
                 {{.n_stop = 2, .stop = (const char *const[]){"a", NULL}}, "stop string 1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ftk_error e = {0};
        support_fails(ftk_generate(st.session, st.sampler, &wrong[i].o, &g, &e), FTK_INVALID_ARGUMENT, &e,
                      wrong[i].field, NULL);
    }
    ftk_error e = {0};
    assert_ok(ftk_session_rewind(st.session, 0, &e), &e);
    support_fails(ftk_generate(st.session, st.sampler, NULL, &g, &e), FTK_INVALID_ARGUMENT, &e, "ftk_prefill", NULL);
    assert_int_equal(ftk_generate(NULL, st.sampler, NULL, &g, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_generate(st.session, NULL, NULL, &g, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(g.n_tokens, 77);
    strike(&st);
}

/* One allocation at the start, however long the text. */
static void tokens_allocate_nothing(void **state) {
    (void)state;
    stage st = set_stage(PIECES("ab1", "cd2", "ef3"), true, CONTEXT);
    ftk_error e = {0};
    uint64_t used[2], violations = ftki_no_alloc_violations();
    for (int i = 0; i < 2; i++) {
        heard h = {.len = 0};
        ftk_generate_opts o = {.max_tokens = i ? 50 : 2, .stop = STOPS("zz", "d3"), .n_stop = 2, .on_text = hear,
                               .on_text_ctx = &h};
        support_prefill(st.session, &(ftk_token){100}, 1);
        uint64_t before = ftki_alloc_count();
        assert_ok(ftk_generate(st.session, st.sampler, &o, NULL, &e), &e);
        used[i] = ftki_alloc_count() - before;
    }
    assert_true(used[0] == 1 && used[1] == 1);
    assert_true(ftki_no_alloc_violations() == violations);
    ftki_alloc_fail_at(1);
    ftk_status status = ftk_generate(st.session, st.sampler, NULL, NULL, &e);
    ftki_alloc_fail_at(0);
    support_fails(status, FTK_OUT_OF_MEMORY, &e, "memory", NULL);
    strike(&st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_whole),
        cmocka_unit_test(characters_wait),
        cmocka_unit_test(no_half_character),
        cmocka_unit_test(invalid_bytes_are_replaced),
        cmocka_unit_test(stop_at_once),
        cmocka_unit_test(stop_across_tokens),
        cmocka_unit_test(nothing_is_lost_before_a_stop),
        cmocka_unit_test(text_waits_no_longer_than_needed),
        cmocka_unit_test(long_pieces_and_stops),
        cmocka_unit_test(counts_end_generation),
        cmocka_unit_test(ends_can_be_ignored_and_shown),
        cmocka_unit_test(cancellation_is_no_error),
        cmocka_unit_test(fields_are_checked),
        cmocka_unit_test(tokens_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

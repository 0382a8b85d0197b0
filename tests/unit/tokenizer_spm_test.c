// SPDX-License-Identifier: Apache-2.0
/* SentencePiece vocabularies: scores, byte fallback, and the spaces that are put in front: at the
 * start of a text and after control tokens, as the file says. */
#include "unit/tokenizer_fixture.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define SP "\xE2\x96\x81" /* U+2581 */

static const char *const pieces[] = {
    "Hello", SP "Hello", SP "world", SP "text", "text", SP "user", "user", SP, SP SP,
    /* how they are reached */
    "He", "llo", "ll", "wo", "wor", "ld", "world", "te", "xt", "us", "er", SP "Hel", "Hel",
    "H", "e", "l", "o", "w", "r", "d", "t", "x", "u", "s", "\n", "a", "b", "aa", SP "<", ">" SP "<", ">", "<",
};

/* The file, with <|im_start|> as a token of the given type at the end. */
static tiny_gguf file_with_marker(int32_t type) {
    tiny_gguf g = {0};
    vocab_builder b = {0};
    vocab_add(&b, "<unk>", 2, 0);
    vocab_add(&b, "<s>", 3, 0);
    vocab_add(&b, "</s>", 3, 0);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        vocab_add(&b, name, 6, 0);
    }
    /* Two spaces are the least likely piece, as in Llama 2. */
    for (size_t i = 0; i < COUNT(pieces); i++)
        vocab_add(&b, pieces[i], 1, strcmp(pieces[i], SP SP) == 0 ? -1e9f : -(float)i);
    vocab_add(&b, "<|im_start|>", type, 0);
    tiny_set_text(&g, "tokenizer.ggml.model", "llama");
    vocab_write(&b, &g, true);
    vocab_free(&b);
    return g;
}

static ftki_tokenizer *open_and_free(tiny_gguf g) {
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    if (!t) fail_msg("refused: %s", e.message);
    tiny_gguf_free(&g);
    return t;
}

static void check(const ftki_tokenizer *t, const char *text, int flags, const char *want) {
    assert_string_equal(pieces_of(t, text, strlen(text), flags), want);
}

static void decoded(const ftki_tokenizer *t, const char *text, int flags, bool special, const char *want) {
    ftk_token ids[256];
    size_t n, len;
    char out[256];
    ftk_error e;
    assert_int_equal(ftki_tokenizer_encode(t, text, strlen(text), flags, ids, 256, &n, &e), FTK_OK);
    assert_int_equal(ftki_tokenizer_decode(t, ids, n, special, out, sizeof out, &len, &e), FTK_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(out, want, len);
}

static void a_space_goes_in_front(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    check(t, "", 0, "");
    check(t, "", FTK_TOKENIZE_BOS_EOS, "<s>");
    check(t, "Hello world", 0, " Hello| world");
    check(t, " Hello world", 0, " | Hello| world"); /* its own space stays a token */
    check(t, "Hello world", FTK_TOKENIZE_BOS_EOS, "<s>| Hello| world");
    check(t, " ", 0, "  ");
    check(t, "\nHello", 0, " |\n|Hello");
    ftki_tokenizer_close(t);
}

static void or_does_not(void **state) {
    (void)state;
    tiny_gguf g = file_with_marker(3);
    tiny_set_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    ftki_tokenizer *t = open_and_free(g);
    check(t, "Hello world", 0, "Hello| world");
    check(t, "<s>text</s>", FTK_TOKENIZE_SPECIAL, "<s>|text|</s>");
    decoded(t, " text", 0, false, " text");
    ftki_tokenizer_close(t);
}

/* After a control token, unless the file says otherwise; never after a user-defined one. */
static void after_special_tokens(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    check(t, "<|im_start|>user", FTK_TOKENIZE_SPECIAL, "<|im_start|>| user");
    check(t, "text</s> text", FTK_TOKENIZE_SPECIAL, " text|</s>| | text");
    ftki_tokenizer_close(t);

    t = open_and_free(file_with_marker(4));
    check(t, "<|im_start|>user", FTK_TOKENIZE_SPECIAL, "<|im_start|>|user");
    check(t, "<|im_start|>user", 0, "<|im_start|>|user");
    ftki_tokenizer_close(t);

    tiny_gguf g = file_with_marker(3);
    tiny_set_bool(&g, "freetoken.tokenizer.space_after_special", false);
    t = open_and_free(g);
    check(t, "<|im_start|>user", FTK_TOKENIZE_SPECIAL, "<|im_start|>|user");
    check(t, "text</s> text", FTK_TOKENIZE_SPECIAL, " text|</s>| text");
    check(t, "Hello", FTK_TOKENIZE_BOS_EOS, "<s>| Hello");
    ftki_tokenizer_close(t);
}

static void decoding_takes_it_back(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", " ", "  ", "Hello world", " Hello", "Hello ", "\n\n", "a</s>b", "<s>Hello", "<s> Hello",
        "text</s> text", "<|im_start|>user\nHello</s>", "</s></s> a", "\xE4\xBD\xA0\xF0\x9F\xA6\x99"};
    for (int32_t type = 3; type <= 4; type++)
        for (int after = 0; after < 2; after++) {
            tiny_gguf g = file_with_marker(type);
            tiny_set_bool(&g, "freetoken.tokenizer.space_after_special", after);
            ftki_tokenizer *t = open_and_free(g);
            for (size_t i = 0; i < COUNT(texts); i++) {
                decoded(t, texts[i], FTK_TOKENIZE_SPECIAL, true, texts[i]);
                decoded(t, texts[i], 0, true, texts[i]);
            }
            decoded(t, "Hello world", FTK_TOKENIZE_BOS_EOS, false, "Hello world");
            ftki_tokenizer_close(t);
        }
}

/* Text that is decoded and encoded again stays the same tokens: no space is added each time. */
static void again_and_again(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    char text[256] = "<s><|im_start|>user\nHello world</s>text";
    ftk_token first[64], ids[64];
    size_t n_first, n, len;
    ftk_error e;
    assert_int_equal(ftki_tokenizer_encode(t, text, strlen(text), FTK_TOKENIZE_SPECIAL, first, 64,
                                           &n_first, &e), FTK_OK);
    memcpy(ids, first, sizeof ids);
    n = n_first;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ftki_tokenizer_decode(t, ids, n, true, text, sizeof text, &len, &e), FTK_OK);
        assert_int_equal(ftki_tokenizer_encode(t, text, len, FTK_TOKENIZE_SPECIAL, ids, 64, &n, &e),
                         FTK_OK);
        assert_int_equal(n, n_first);
        assert_memory_equal(ids, first, n * sizeof *ids);
    }
    ftki_tokenizer_close(t);
}

static void unknown_characters_are_bytes(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    ftk_token ids[16];
    size_t n;
    ftk_error e;
    assert_int_equal(ftki_tokenizer_encode(t, "a\xE4\xBD\xA0", 4, 0, ids, 16, &n, &e), FTK_OK);
    assert_int_equal(n, 5);
    for (size_t i = 2; i < 5; i++) /* token 3 is byte 0 */
        assert_int_equal(ids[i], 3 + (unsigned char)"a\xE4\xBD\xA0"[i - 1]);
    /* The name of a byte token in text is text. */
    check(t, "<0x41>", 0, " <|0|x|4|1|>");
    ftki_tokenizer_close(t);
}

/* U+2581 is how SentencePiece writes a space. */
static void visible_space_is_space(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    check(t, "Hello" SP "world", 0, " Hello| world");
    ftki_tokenizer_close(t);
}

/* Text is cut before spaces to merge word by word, but not where a piece reaches across. */
static void pieces_with_inner_spaces(void **state) {
    (void)state;
    ftki_tokenizer *t = open_and_free(file_with_marker(3));
    check(t, "a> <a> a", 0, " |a|> <|a|>| |a");
    ftki_tokenizer_close(t);
}

/* Runs of spaces and line ends as user-defined tokens (Gemma): taken literally, the longest
 * first, before anything is merged; whether the file spells the space as such or as U+2581. */
static void user_defined_runs(void **state) {
    (void)state;
    for (int visible = 0; visible < 2; visible++) {
        tiny_gguf g = {0};
        vocab_builder b = {0};
        vocab_add(&b, "<unk>", 2, 0);
        vocab_add(&b, "<s>", 3, 0);
        vocab_add(&b, "</s>", 3, 0);
        vocab_add(&b, "a", 1, 0);
        vocab_add(&b, SP "b", 1, -1);
        vocab_add(&b, SP, 1, -2);
        vocab_add(&b, "b", 1, -3);
        vocab_add(&b, visible ? SP SP : "  ", 4, 0);
        vocab_add(&b, visible ? SP SP SP SP : "    ", 4, 0);
        vocab_add(&b, "\n\n", 4, 0);
        vocab_add(&b, "\n", 4, 0);
        tiny_set_text(&g, "tokenizer.ggml.model", "llama");
        vocab_write(&b, &g, true);
        vocab_free(&b);
        ftk_error e;
        ftki_tokenizer *t = open_file(&g, &e); /* with spaces put in front */
        assert_non_null(t);
        decoded(t, "  a", FTK_TOKENIZE_SPECIAL, true, "  a");
        decoded(t, "a</s>  b", FTK_TOKENIZE_SPECIAL, true, "a</s>  b");
        ftki_tokenizer_close(t);
        tiny_set_bool(&g, "tokenizer.ggml.add_space_prefix", false);
        t = open_and_free(g);
        check(t, "a  b b    a", 0, "a|  |b| b|    |a");
        check(t, "a     b", 0, "a|    | b");
        check(t, "\n\n\nab", 0, "\n\n|\n|a|b");
        check(t, "a \n b", 0, "a| |\n| b");
        ftki_tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_space_goes_in_front),
        cmocka_unit_test(or_does_not),
        cmocka_unit_test(after_special_tokens),
        cmocka_unit_test(decoding_takes_it_back),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(unknown_characters_are_bytes),
        cmocka_unit_test(visible_space_is_space),
        cmocka_unit_test(pieces_with_inner_spaces),
        cmocka_unit_test(user_defined_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

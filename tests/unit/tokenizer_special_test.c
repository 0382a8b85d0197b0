// SPDX-License-Identifier: Apache-2.0
/* Special tokens in text: which are found, where, and what they print. */
#include "unit/tokenizer_fixture.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
static const char *const merges[] = {"h i"};

static ftki_tokenizer *open_bpe(void) {
    tiny_gguf g = bpe_file("gpt-2", merges, 1);
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    assert_non_null(t);
    tiny_gguf_free(&g);
    return t;
}

/* Control tokens on request, user-defined ones always, half of one never. */
static void one_id_each(void **state) {
    (void)state;
    ftki_tokenizer *t = open_bpe();
    const int special = FTK_TOKENIZE_SPECIAL;
    assert_string_equal(PIECES(t, "<|im_start|>hi<|im_end|>", special), "<|im_start|>|hi|<|im_end|>");
    assert_string_equal(PIECES(t, "<|im_end|>", 0), "<|||i|m|_|e|n|d|||>");
    assert_string_equal(PIECES(t, "hi<tool>hi", 0), "hi|<tool>|hi");
    assert_string_equal(PIECES(t, "hi<tool>hi", special), "hi|<tool>|hi");
    assert_string_equal(PIECES(t, "<|im_end|", special), "<|||i|m|_|e|n|d||");
    assert_string_equal(PIECES(t, "<<|im_end|>>", special), "<|<|im_end|>|>");
    assert_string_equal(PIECES(t, "<tool", special), "<|t|o|o|l");
    ftki_tokenizer_close(t);
}

static void add_tokens(tiny_gguf *g, const char *const *texts, const int32_t *types, size_t n) {
    vocab_builder b = {0};
    char letter[3];
    for (unsigned byte = 0; byte < 256; byte++) {
        alphabet_letter(byte, letter);
        vocab_add(&b, letter, 1, 0);
    }
    for (size_t i = 0; i < n; i++) vocab_add(&b, texts[i], types[i], 0);
    vocab_write(&b, g, false);
    vocab_free(&b);
}

/* Leftmost first, then the longest; types decide who takes part. */
static void overlapping(void **state) {
    (void)state;
    static const char *const texts[] = {"ab", "abc", "bcdef", "abcd!", "xx", "xxxx", "", "ab"};
    static const int32_t types[] = {4, 3, 4, 4, 4, 3, 3, 4};
    static const struct {
        const char *text;
        int flags;
        const char *want;
    } cases[] = {
        {"abc", FTK_TOKENIZE_SPECIAL, "abc"}, {"abc", 0, "ab|c"},
        {"abcdef", FTK_TOKENIZE_SPECIAL, "abc|d|e|f"}, /* leftmost beats longer */
        {"bcdefab", 0, "bcdef|ab"}, {"abcd!", FTK_TOKENIZE_SPECIAL, "abcd!"},
        {"abcd", FTK_TOKENIZE_SPECIAL, "abc|d"}, /* falls back to the longest that ended */
        {"xxxxx", FTK_TOKENIZE_SPECIAL, "xxxx|x"}, {"xxxxx", 0, "xx|xx|x"}, {"aab", 0, "a|ab"},
    };
    tiny_gguf g = bpe_file("gpt-2", merges, 1);
    tiny_drop_key(&g, "tokenizer.ggml.eos_token_id");
    tiny_set_texts(&g, "tokenizer.ggml.merges", NULL, 0);
    add_tokens(&g, texts, types, COUNT(texts));
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    assert_non_null(t);
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(pieces_of(t, cases[i].text, strlen(cases[i].text), cases[i].flags),
                            cases[i].want);
    ftk_token id;
    size_t n;
    assert_int_equal(ftki_tokenizer_encode(t, "ab", 2, 0, &id, 1, &n, &e), FTK_OK);
    assert_int_equal(id, 256); /* of two equal ones the lower id */
    ftki_tokenizer_close(t);
    tiny_gguf_free(&g);
}

/* Each type prints as it should: markers and padding only when asked. */
static void what_prints(void **state) {
    (void)state;
    static const char *const texts[] = {"[UNDEF]", "[NORM]", "[UNK]", "[CTL]", "[USER]", "[SPARE]", "<0x7A>"};
    static const int32_t types[] = {0, 1, 2, 3, 4, 5, 6};
    static const char *const plain[] = {"", "[NORM]", "", "", "[USER]", "", "z"};
    static const char *const shown[] = {"[UNDEF]", "[NORM]", "[UNK]", "[CTL]", "[USER]", "[SPARE]", "z"};
    tiny_gguf g = bpe_file("gpt-2", merges, 1);
    tiny_drop_key(&g, "tokenizer.ggml.eos_token_id");
    tiny_set_texts(&g, "tokenizer.ggml.merges", NULL, 0);
    add_tokens(&g, texts, types, COUNT(texts));
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    assert_non_null(t);
    for (ftk_token i = 0; i < 7; i++)
        for (int special = 0; special < 2; special++) {
            size_t len;
            const char *bytes = ftki_tokenizer_bytes(t, 256 + i, special, &len);
            const char *want = special ? shown[i] : plain[i];
            assert_int_equal(len, strlen(want));
            assert_memory_equal(bytes, want, len);
            assert_int_equal(ftki_tokenizer_is_special(t, 256 + i), types[i] == 2 || types[i] == 3);
        }
    size_t len = 5;
    assert_null(ftki_tokenizer_bytes(t, -1, true, &len));
    assert_int_equal(len, 0);
    assert_null(ftki_tokenizer_bytes(t, 263, true, &len));
    /* Decoding names the bad id and leaves the outputs. */
    char out[4] = "xyz";
    len = 9;
    const ftk_token bad[] = {97, 263};
    assert_int_equal(ftki_tokenizer_decode(t, bad, 2, true, out, 4, &len, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "token 263 at position 1"));
    assert_int_equal(len, 9);
    assert_string_equal(out, "xyz");
    /* Only what fits is written, the full length is told. */
    const ftk_token word[] = {97, 98, 260, 99};
    assert_int_equal(ftki_tokenizer_decode(t, word, 4, false, out, 3, &len, &e), FTK_OK);
    assert_int_equal(len, 9);
    assert_string_equal(out, "ab[");
    ftki_tokenizer_close(t);
    tiny_gguf_free(&g);
}

/* Control tokens are looked for outside of the plain runs only, wherever those begin and end. */
static void plain_runs(void **state) {
    (void)state;
    ftki_tokenizer *t = open_bpe();
    static const char text[] = "<|im_end|><|im_end|><|im_end|>"; /* at 0, 10, 20 */
    static const struct {
        ftki_plain runs[3];
        size_t n, found;
    } cases[] = {
        {{{0, 0}}, 0, 3}, {{{0, 30}}, 1, 0}, {{{10, 20}}, 1, 2}, {{{0, 1}}, 1, 2}, {{{9, 11}}, 1, 1},
        {{{29, 30}}, 1, 2}, {{{5, 6}, {25, 26}}, 2, 1}, {{{0, 10}, {10, 20}, {20, 30}}, 3, 0},
        {{{19, 20}}, 1, 2}, {{{30, 31}}, 1, 3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        ftk_token ids[64], end = ftki_tokenizer_find(t, "<|im_end|>", 10);
        size_t n, found = 0;
        ftk_error e;
        assert_int_equal(ftki_tokenizer_encode_plain(t, text, 30, cases[i].runs, cases[i].n,
                                                     FTK_TOKENIZE_SPECIAL, ids, 64, &n, &e), FTK_OK);
        for (size_t k = 0; k < n; k++) found += ids[k] == end;
        assert_int_equal(found, cases[i].found);
    }
    ftki_tokenizer_close(t);
}

/* What a text merges to is never a control token, even where the vocabulary would allow it. */
static void merging_makes_no_markers(void **state) {
    (void)state;
    static const char *const texts[] = {"<s", "<s>"};
    static const int32_t types[] = {1, 3};
    static const char *const list[] = {"< s", "<s >"};
    for (int ignore_merges = 0; ignore_merges < 2; ignore_merges++) {
        tiny_gguf g = bpe_file(ignore_merges ? "llama-bpe" : "gpt-2", merges, 1);
        tiny_drop_key(&g, "tokenizer.ggml.eos_token_id");
        tiny_set_texts(&g, "tokenizer.ggml.merges", list, 2);
        add_tokens(&g, texts, types, 2);
        ftk_error e;
        ftki_tokenizer *t = open_file(&g, &e);
        assert_non_null(t);
        ftk_token ids[8];
        size_t n;
        assert_int_equal(ftki_tokenizer_encode(t, "<s>", 3, 0, ids, 8, &n, &e), FTK_OK);
        for (size_t i = 0; i < n; i++) assert_int_not_equal(ids[i], 257);
        ftki_tokenizer_close(t);
        tiny_gguf_free(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_id_each),       cmocka_unit_test(overlapping),
        cmocka_unit_test(what_prints),       cmocka_unit_test(plain_runs),
        cmocka_unit_test(merging_makes_no_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Byte-level BPE on a vocabulary small enough to merge by hand. */
#include "unit/tokenizer_fixture.h"

#include <time.h>

static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "Ġ w", "o r",
                                     "Ġw or", "Ġ Ġ", "Ã ©", "l d", "a a", "aa aa", "3 3", "33 3", "33 33", "' ll", "' S"};
#define N_MERGES (sizeof merges / sizeof *merges)

static ftki_tokenizer *open_bpe(const char *pre) {
    tiny_gguf file = bpe_file(pre, merges, N_MERGES);
    ftk_error e;
    ftki_tokenizer *t = open_file(&file, &e);
    tiny_gguf_free(&file);
    return t;
}

static void merges_by_rank(void **state) {
    (void)state;
    ftki_tokenizer *t = open_bpe("gpt-2");
    assert_non_null(t);
    assert_string_equal(PIECES(t, "hello world", 0), "hello| wor|ld");
    assert_string_equal(PIECES(t, "hellhe", 0), "hell|he");
    assert_string_equal(PIECES(t, "\xC3\xA9", 0), "\xC3\xA9");
    assert_string_equal(PIECES(t, "aaaaaaa", 0), "aaaa|aa|a");
    assert_string_equal(PIECES(t, "", 0), "");
    assert_string_equal(PIECES(t, "he\0he", 0), "he||he"); /* NUL is a character */
    ftki_tokenizer_close(t);
}

/* Where the pre-tokenizers differ: digits, contractions, white space before digits. */
static void cuts_words(void **state) {
    (void)state;
    static const struct {
        const char *pre, *text, *pieces;
    } cases[] = {
        {"gpt-2", "x 3333+333", "x| |3333|+|333"},
        {"smollm", "x 3333+333", "x| |3|3|3|3|+|3|3|3"},
        {"qwen2", "x 3333+333", "x| |3|3|3|3|+|3|3|3"},
        {"llama-bpe", "x 3333+333", "x| |333|3|+|333"}, /* groups of up to three */
        {"gpt-2", "a'll'Sa", "a|'ll|'|S|a"},            /* lower case only */
        {"llama-bpe", "a'll'Sa", "a|'ll|'S|a"},
        {"gpt-2", "a  b", "a| | |b"}, /* the last space goes to the word */
        {"gpt-2", "a  3", "a| | |3"},
        {"llama-bpe", "a  3", "a| | |3"},
        {"smollm", "a  3", "a|  |3"}, /* a digit ends the text before it */
        {"gpt-2", "a  ", "a|  "},
        {"qwen2", "hello\n\n  hello", "hello|\n|\n| | |hello"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ftki_tokenizer *t = open_bpe(cases[i].pre);
        assert_non_null(t);
        assert_string_equal(pieces_of(t, cases[i].text, strlen(cases[i].text), 0),
                            cases[i].pieces);
        ftki_tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank),
        cmocka_unit_test(cuts_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

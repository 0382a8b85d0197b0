// SPDX-License-Identifier: Apache-2.0
/* What a vocabulary must be: every array checked, refusals by name, odd but legal files read. */
#include "unit/tokenizer_fixture.h"

#include "base/memory.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
static const char *const merges[] = {"h e", "l l", "he ll", "hell o"};

static tiny_gguf good_bpe(void) { return bpe_file("gpt-2", merges, COUNT(merges)); }
static tiny_gguf good_spm(void) {
    static const char *const pieces[] = {"\xE2\x96\x81", "a", "b", "ab", ("\xE2\x96\x81" "ab")};
    return spm_file(pieces, COUNT(pieces));
}

/* Opens and wants a refusal whose message has both parts; frees the file. */
static void refused(tiny_gguf file, ftk_status status, const char *part, const char *other) {
    ftk_error e;
    ftki_tokenizer *t = open_file(&file, &e);
    assert_null(t);
    assert_int_equal(e.code, status);
    if (!strstr(e.message, part) || !strstr(e.message, other)) fail_msg("message: %s", e.message);
    tiny_gguf_free(&file);
}

static void set_type(tiny_gguf *g, int32_t id, int32_t type, size_t n) {
    int32_t *types = malloc(n * sizeof *types);
    for (size_t i = 0; i < n; i++) types[i] = 1;
    types[id] = type;
    tiny_set_i32s(g, "tokenizer.ggml.token_type", types, n);
    free(types);
}

static void unknown_kinds_are_named(void **state) {
    (void)state;
    tiny_gguf g = good_bpe();
    tiny_set_text(&g, "tokenizer.ggml.model", "unigram");
    refused(g, FTK_UNSUPPORTED, "'unigram'", "gpt2");
    g = good_bpe();
    tiny_drop_key(&g, "tokenizer.ggml.model");
    refused(g, FTK_FORMAT, "tokenizer.ggml.model", "");
}

/* A wrong split costs tokens and quality and is not seen: never guess one. */
static void unknown_pre_tokenizers_are_refused(void **state) {
    (void)state;
    static const char list[] = "smollm, llama-bpe, llama3, llama-v3, smaug-bpe, qwen2, "
                               "deepseek-r1-qwen, megrez, gpt-2, mpt, starcoder, refact";
    refused(bpe_file("my-own-split", merges, COUNT(merges)), FTK_UNSUPPORTED, "'my-own-split'", list);
    refused(bpe_file("default", merges, COUNT(merges)), FTK_UNSUPPORTED, "'default'", list);
    refused(bpe_file(NULL, merges, COUNT(merges)), FTK_UNSUPPORTED, "missing", list);
    refused(bpe_file("smoll", merges, COUNT(merges)), FTK_UNSUPPORTED, "'smoll'", list);
    for (char name[64], *copy = strdup(list), *at = strtok(copy, ", ");; at = strtok(NULL, ", ")) {
        if (!at) {
            free(copy);
            break;
        }
        snprintf(name, sizeof name, "%s", at);
        tiny_gguf g = bpe_file(name, merges, COUNT(merges));
        ftk_error e;
        ftki_tokenizer *t = open_file(&g, &e);
        assert_non_null(t);
        ftki_tokenizer_close(t);
        tiny_gguf_free(&g);
    }
}

static void arrays_must_agree(void **state) {
    (void)state;
    const int32_t two_types[] = {1, 1};
    const float two_scores[] = {0, 0};
    tiny_gguf g = good_bpe();
    tiny_drop_key(&g, "tokenizer.ggml.tokens");
    refused(g, FTK_FORMAT, "no vocabulary", "tokenizer.ggml.tokens");
    g = good_bpe();
    tiny_set_texts(&g, "tokenizer.ggml.tokens", NULL, 0);
    refused(g, FTK_FORMAT, "no vocabulary", "");
    g = good_bpe();
    tiny_set_i32s(&g, "tokenizer.ggml.tokens", two_types, 2);
    refused(g, FTK_FORMAT, "tokenizer.ggml.tokens", "");
    g = good_bpe();
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", two_types, 2);
    refused(g, FTK_FORMAT, "token_type has 2 entries", "");
    g = good_spm();
    tiny_set_f32s(&g, "tokenizer.ggml.scores", two_scores, 2);
    refused(g, FTK_FORMAT, "scores has 2 entries", "");
    g = good_spm();
    tiny_drop_key(&g, "tokenizer.ggml.scores");
    refused(g, FTK_FORMAT, "scores has 0 entries", "");
    g = good_bpe();
    tiny_drop_key(&g, "tokenizer.ggml.merges");
    refused(g, FTK_FORMAT, "no merges", "");
    g = good_bpe();
    set_type(&g, 5, 9, 263);
    refused(g, FTK_FORMAT, "token 5", "type 9");
    g = good_bpe();
    set_type(&g, 5, -1, 263);
    refused(g, FTK_FORMAT, "token 5", "type -1");
    g = good_spm();
    float *scores = calloc(264, sizeof *scores);
    scores[261] = __builtin_nanf("");
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, 264);
    free(scores);
    refused(g, FTK_FORMAT, "score of token 261", "");
}

static void tokens_must_be_well_formed(void **state) {
    (void)state;
    const char *const broken[] = {"a", "b\xFF", "c"};
    tiny_gguf g = good_bpe();
    tiny_drop_key(&g, "tokenizer.ggml.token_type");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", broken, 3);
    refused(g, FTK_FORMAT, "token 1 is not UTF-8 at its byte 1", "");
    const char *const bad_byte[] = {"<unk>", "<0xG0>", "a"};
    const int32_t types[] = {2, 6, 1};
    const float scores[] = {0, 0, 0};
    g = good_spm();
    tiny_set_texts(&g, "tokenizer.ggml.tokens", bad_byte, 3);
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, 3);
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, 3);
    refused(g, FTK_FORMAT, "byte token 1", "<0xNN>");
}

static void ids_must_be_in_range(void **state) {
    (void)state;
    static const char *const keys[] = {"bos", "eos", "unknown", "eot", "eom"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        tiny_gguf g = good_bpe();
        tiny_set_u32(&g, key, 263);
        refused(g, FTK_FORMAT, key, "263");
        g = good_bpe();
        tiny_set_u32(&g, key, UINT32_MAX);
        refused(g, FTK_FORMAT, key, "4294967295");
    }
    tiny_gguf g = good_bpe();
    tiny_set_bool(&g, "tokenizer.ggml.add_bos_token", true);
    refused(g, FTK_FORMAT, "add_bos_token", "bos_token_id");
}

static void merges_must_be_pairs(void **state) {
    (void)state;
    static const char *const bad[] = {"", "a", "ab", " b", "a ", " "};
    for (size_t i = 0; i < COUNT(bad); i++) {
        tiny_gguf g = good_bpe();
        const char *const list[] = {"h e", bad[i]};
        tiny_set_texts(&g, "tokenizer.ggml.merges", list, 2);
        refused(g, FTK_FORMAT, "merge 1", "two pieces");
    }
}

static void expect(tiny_gguf file, const char *text, const char *pieces) {
    ftk_error e;
    ftki_tokenizer *t = open_file(&file, &e);
    if (!t) fail_msg("refused: %s", e.message);
    assert_string_equal(pieces_of(t, text, strlen(text), 0), pieces);
    ftki_tokenizer_close(t);
    tiny_gguf_free(&file);
}

/* Merges a trimmed vocabulary left behind, repeated ones, and none at all. */
static void odd_merges_are_read(void **state) {
    (void)state;
    tiny_gguf g = good_bpe();
    const char *const list[] = {"q zz", "l l", "h e", "l l", "\xE4\xBD\xA0 a", "he ll"};
    tiny_set_texts(&g, "tokenizer.ggml.merges", list, COUNT(list));
    expect(g, "hello", "hell|o");
    g = good_bpe();
    tiny_set_texts(&g, "tokenizer.ggml.merges", NULL, 0);
    expect(g, "hello", "h|e|l|l|o");
}

/* Equal pieces: the lowest id is used, all of them print. Empty pieces are never found. */
static void equal_and_empty_pieces_are_read(void **state) {
    (void)state;
    tiny_gguf g = {0};
    const char *const tokens[] = {"<unk>", "a", "a", "", "b"};
    const int32_t types[] = {2, 1, 1, 1, 1};
    const float scores[] = {0, 0, 5, 9, 0};
    tiny_set_text(&g, "tokenizer.ggml.model", "llama");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, 5);
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, 5);
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, 5);
    tiny_set_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    assert_non_null(t);
    ftk_token ids[8];
    size_t n, len;
    assert_int_equal(ftki_tokenizer_encode(t, "abz", 3, 0, ids, 8, &n, &e), FTK_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 4);
    assert_int_equal(ids[2], 0); /* no byte tokens: the unknown token */
    assert_memory_equal(ftki_tokenizer_bytes(t, 2, false, &len), "a", 1);
    assert_int_equal(len, 1);
    assert_non_null(ftki_tokenizer_bytes(t, 3, true, &len));
    assert_int_equal(len, 0);
    ftki_tokenizer_close(t);
    tiny_gguf_free(&g);
}

/* One token, no types: the smallest vocabulary there is. */
static void one_token_is_enough(void **state) {
    (void)state;
    tiny_gguf g = {0};
    const char *const tokens[] = {"<unk>"};
    const float scores[] = {0};
    tiny_set_text(&g, "tokenizer.ggml.model", "llama");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, 1);
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, 1);
    ftk_error e;
    ftki_tokenizer *t = open_file(&g, &e);
    assert_non_null(t);
    assert_int_equal(ftki_tokenizer_bos(t), -1);
    assert_int_equal(ftki_tokenizer_eos(t), -1);
    ftk_token ids[8];
    size_t n;
    assert_int_equal(ftki_tokenizer_encode(t, "hi", 2, FTK_TOKENIZE_BOS_EOS, ids, 8, &n, &e), FTK_OK);
    assert_int_equal(n, 3); /* the space put in front, h, i */
    ftki_tokenizer_close(t);
    tiny_gguf_free(&g);
}

/* Ends of generation: named by the file, known by text, and "</s>" only as a control token. */
static void end_tokens(void **state) {
    (void)state;
    tiny_gguf g = {0};
    const char *const tokens[] = {"<unk>", "<s>", "</s>", "x", "<end_of_turn>", "<|eot_id|>", "y"};
    int32_t types[] = {2, 3, 3, 1, 3, 1, 1};
    const float scores[7] = {0};
    tiny_set_text(&g, "tokenizer.ggml.model", "llama");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, 7);
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, 7);
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, 7);
    tiny_set_u32(&g, "tokenizer.ggml.eos_token_id", 3);
    tiny_set_u32(&g, "tokenizer.ggml.eot_token_id", 6);
    for (int as_markup = 0; as_markup < 2; as_markup++) {
        if (as_markup) {
            types[2] = 4;
            tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, 7);
        }
        ftk_error e;
        ftki_tokenizer *t = open_file(&g, &e);
        assert_non_null(t);
        const bool ends[] = {false, false, !as_markup, true, true, true, true};
        for (ftk_token id = 0; id < 7; id++) assert_int_equal(ftki_tokenizer_is_end(t, id), ends[id]);
        assert_false(ftki_tokenizer_is_end(t, -1));
        assert_false(ftki_tokenizer_is_end(t, 7));
        /* Typed as text in the file, but a marker all the same. */
        assert_true(ftki_tokenizer_is_special(t, 5));
        assert_int_equal(ftki_tokenizer_is_special(t, 2), !as_markup);
        assert_int_equal(ftki_tokenizer_find(t, "<|eot_id|>", 10), 5);
        assert_int_equal(ftki_tokenizer_find(t, "<|eot_id|", 9), -1);
        ftki_tokenizer_close(t);
    }
    tiny_gguf_free(&g);
}

/* A vocabulary of equal pieces would make the index quadratic. */
static void colliding_vocabularies_are_refused(void **state) {
    (void)state;
    enum { N = 5000 };
    tiny_gguf g = good_bpe();
    const char **tokens = malloc(N * sizeof *tokens);
    for (size_t i = 0; i < N; i++) tokens[i] = "same";
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, N);
    tiny_drop_key(&g, "tokenizer.ggml.token_type");
    free(tokens);
    refused(g, FTK_FORMAT, "alike", "convert the model again");
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        tiny_gguf file = kind ? good_spm() : good_bpe();
        size_t len;
        unsigned char *bytes = tiny_gguf_bytes(&file, &len);
        ftki_gguf g;
        ftk_error e;
        assert_int_equal(ftki_gguf_parse(&g, bytes, len, &e), FTK_OK);
        ftki_tokenizer *t = NULL;
        uint64_t n = 0;
        do {
            ftki_alloc_fail_at(++n);
            ftk_status status = ftki_tokenizer_open(&t, &g, &e);
            ftki_alloc_fail_at(0);
            if (status != FTK_OK) {
                assert_null(t);
                assert_int_equal(status, FTK_OUT_OF_MEMORY);
            }
        } while (!t && n < 1000);
        assert_in_range(n, 8, 999);
        for (n = 1; n < 1000; n++) {
            ftk_token ids[8] = {7, 7};
            size_t count = 77;
            ftki_alloc_fail_at(n);
            ftk_status status = ftki_tokenizer_encode(t, "ab h\xC3\xA9llo", 9, 0, ids, 8, &count, &e);
            ftki_alloc_fail_at(0);
            if (status == FTK_OK) break;
            assert_int_equal(status, FTK_OUT_OF_MEMORY);
            assert_int_equal(count, 77); /* untouched */
            assert_int_equal(ids[0], 7);
        }
        assert_in_range(n, 3, 999);
        ftki_tokenizer_close(t);
        ftki_gguf_close(&g);
        free(bytes);
        tiny_gguf_free(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_kinds_are_named),
        cmocka_unit_test(unknown_pre_tokenizers_are_refused),
        cmocka_unit_test(arrays_must_agree),
        cmocka_unit_test(tokens_must_be_well_formed),
        cmocka_unit_test(ids_must_be_in_range),
        cmocka_unit_test(merges_must_be_pairs),
        cmocka_unit_test(odd_merges_are_read),
        cmocka_unit_test(equal_and_empty_pieces_are_read),
        cmocka_unit_test(one_token_is_enough),
        cmocka_unit_test(end_tokens),
        cmocka_unit_test(colliding_vocabularies_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Two inputs in one. First byte even: a GGUF file whose tokenizer is opened and used. Odd: text
 * for small vocabularies of both kinds, with all flags and plain runs cut by its first bytes. What
 * must hold: no id outside the vocabulary, decoding of valid text gives it back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e/tiny_gguf.h"
#include "subject.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte as a token, a few merges or pieces, two markers and a user-defined one. */
static ftki_tokenizer *small(bool spm, const char *pre) {
    enum { BYTES = 256, PIECES = 10, MARKERS = 4, N = BYTES + PIECES + MARKERS };
    static const char *const merges[] = {"h e", "l l", "he ll", "Ġ t", "Ġ Ġ", "a a", "aa aa", "1 2", "Ã ©", "Ċ Ċ"};
    static const char *const joined[] = {"he", "ll", "hell", "Ġt", "ĠĠ", "aa", "aaaa", "12", "Ã©", "ĊĊ"};
    static const char *const pieces[] = {"\xE2\x96\x81", "a", "aa", "aaaa", "\xE2\x96\x81" "a", "\xE2\x96\x81\xE2\x96\x81",
                                         "b", "a\xE2\x96\x81" "b", "\xC3\xA9", "ab"};
    static const char *const markers[] = {"<unk>", "<s>", "</s>", "  "};
    static const int32_t marker_types[] = {2, 3, 3, 4};
    tiny_gguf g = {0};
    char texts[BYTES][8];
    const char *tokens[N];
    int32_t types[N];
    float scores[N] = {0};
    for (unsigned i = 0; i < BYTES; i++) {
        unsigned letter = i <= 0x20 ? 0x100 + i : i >= 0x7F && i <= 0xA0 ? 0xA2 + i : i == 0xAD ? 0x143 : i;
        if (spm) snprintf(texts[i], 8, "<0x%02X>", i);
        else if (letter < 0x80) snprintf(texts[i], 8, "%c", (char)letter);
        else snprintf(texts[i], 8, "%c%c", (char)(0xC0 | letter >> 6), (char)(0x80 | (letter & 0x3F)));
        tokens[MARKERS + i] = texts[i];
        types[MARKERS + i] = spm ? 6 : 1;
    }
    for (int i = 0; i < PIECES; i++) {
        tokens[MARKERS + BYTES + i] = spm ? pieces[i] : joined[i];
        types[MARKERS + BYTES + i] = 1;
        scores[MARKERS + BYTES + i] = -(float)i;
    }
    for (int i = 0; i < MARKERS; i++) {
        tokens[i] = markers[i];
        types[i] = marker_types[i];
    }
    tiny_set_text(&g, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, N);
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, N);
    tiny_set_f32s(&g, "tokenizer.ggml.scores", scores, N);
    tiny_set_texts(&g, "tokenizer.ggml.merges", merges, PIECES);
    if (pre) tiny_set_text(&g, "tokenizer.ggml.pre", pre);
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(&g, &len);
    ftki_gguf file;
    ftki_tokenizer *t = NULL;
    subject_must(ftki_gguf_parse(&file, bytes, len, NULL) == FTK_OK);
    subject_must(ftki_tokenizer_open(&t, &file, NULL) == FTK_OK);
    ftki_gguf_close(&file);
    free(bytes);
    tiny_gguf_free(&g);
    return t;
}

/* Encodes and decodes; `exact`: the vocabulary has every byte, so text comes back as it was. */
static void both_ways(const ftki_tokenizer *t, const char *text, size_t len, const ftki_plain *plain,
                      size_t n_plain, int flags, bool exact) {
    size_t n = 0, again = 0, out_len = 0;
    if (ftki_tokenizer_encode_plain(t, text, len, plain, n_plain, flags, NULL, 0, &n, NULL)) return;
    ftk_token *ids = malloc((n + 1) * sizeof *ids);
    subject_must(ids && ftki_tokenizer_encode_plain(t, text, len, plain, n_plain, flags, ids, n, &again, NULL) == FTK_OK);
    subject_must(again == n);
    for (size_t i = 0; i < n; i++) subject_must(ids[i] >= 0 && ids[i] < ftki_tokenizer_size(t));
    for (int special = 0; special < 2; special++) {
        subject_must(ftki_tokenizer_decode(t, ids, n, special != 0, NULL, 0, &out_len, NULL) == FTK_OK);
        char *out = malloc(out_len + 1);
        subject_must(out && ftki_tokenizer_decode(t, ids, n, special != 0, out, out_len, &out_len, NULL) == FTK_OK);
        bool visible_space = memmem(text, len, "\xE2\x96\x81", 3) != NULL;
        if (special && exact && !visible_space) subject_must(out_len == len && memcmp(out, text, len) == 0);
        free(out);
    }
    free(ids);
}

static void use_file(const uint8_t *data, size_t size) {
    static const char text[] = "Hello world 123 \xC3\xA9\xE4\xBD\xA0 <s>  x</s>\n";
    ftki_gguf g;
    if (ftki_gguf_parse(&g, data, size, NULL) != FTK_OK) return;
    ftki_tokenizer *t = NULL;
    if (ftki_tokenizer_open(&t, &g, NULL) == FTK_OK) {
        for (int flags = 0; flags < 4; flags++) both_ways(t, text, sizeof text - 1, NULL, 0, flags, false);
        for (ftk_token id = -1; id <= ftki_tokenizer_size(t); id++) {
            size_t len;
            ftki_tokenizer_bytes(t, id, true, &len);
            ftki_tokenizer_is_end(t, id);
        }
        ftki_tokenizer_close(t);
    }
    ftki_gguf_close(&g);
}

static void use_text(const uint8_t *data, size_t size) {
    static ftki_tokenizer *tokenizers[5];
    if (!tokenizers[0]) {
        static const char *const pres[] = {"smollm", "llama-bpe", "qwen2", "gpt-2"};
        for (int i = 0; i < 4; i++) tokenizers[i] = small(false, pres[i]);
        tokenizers[4] = small(true, NULL);
    }
    if (size < 2) return;
    ftki_plain plain[2] = {{data[0] & 15, (data[0] & 15) + (data[0] >> 4)}, {0, 0}};
    plain[1] = (ftki_plain){plain[0].end + (data[1] & 15), plain[0].end + (data[1] & 15) + (data[1] >> 4)};
    for (int i = 0; i < 5; i++)
        for (int flags = 0; flags < 2; flags++)
            both_ways(tokenizers[i], (const char *)data + 2, size - 2, plain, 2, flags, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] & 1) use_text(data + 1, size - 1);
    else use_file(data + 1, size - 1);
    return 0;
}

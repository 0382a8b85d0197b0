// SPDX-License-Identifier: Apache-2.0
/* Text for a small WordPiece vocabulary, in both spellings and with and without lowering. What must hold: ids are in
 * the vocabulary, the two spellings agree, and text that was decoded encodes to the same ids again. */
#include <stdlib.h>
#include <string.h>

#include "e2e/tiny_gguf.h"
#include "subject.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MARKERS = 5, PIECES = 12 };

static ftki_tokenizer *small(bool hashes, bool lower) {
    static const char *const markers[MARKERS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    static const char *const pieces[PIECES] = {"a", "b", "ab", "aab", ".", "#", "\xE4\xBD\xA0", "e", "A", "[", "\xC3\xA9", "o"};
    char texts[2 * PIECES][16];
    const char *tokens[MARKERS + 2 * PIECES];
    int32_t types[MARKERS + 2 * PIECES];
    for (int i = 0; i < MARKERS; i++) {
        tokens[i] = markers[i];
        types[i] = 3;
    }
    for (int i = 0; i < 2 * PIECES; i++) {
        bool first = i < PIECES;
        texts[i][0] = 0;
        strcat(texts[i], first ? (hashes ? "" : "\xE2\x96\x81") : (hashes ? "##" : ""));
        strcat(texts[i], pieces[i % PIECES]);
        tokens[MARKERS + i] = texts[i];
        types[MARKERS + i] = 1;
    }
    tiny_gguf g = {0};
    tiny_set_text(&g, "tokenizer.ggml.model", "bert");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", tokens, MARKERS + 2 * PIECES);
    tiny_set_i32s(&g, "tokenizer.ggml.token_type", types, MARKERS + 2 * PIECES);
    tiny_set_bool(&g, "freetoken.tokenizer.lowercase", lower);
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

static ftk_token *encode(const ftki_tokenizer *t, const char *text, size_t len, int flags, size_t *n) {
    if (ftki_tokenizer_encode(t, text, len, flags, NULL, 0, n, NULL) != FTK_OK) return NULL;
    ftk_token *ids = malloc((*n + 1) * sizeof *ids);
    size_t again;
    subject_must(ids && ftki_tokenizer_encode(t, text, len, flags, ids, *n, &again, NULL) == FTK_OK && again == *n);
    for (size_t i = 0; i < *n; i++) subject_must(ids[i] >= 0 && ids[i] < ftki_tokenizer_size(t));
    return ids;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ftki_tokenizer *all[4];
    for (int i = 0; i < 4; i++)
        if (!all[i]) all[i] = small(i & 1, i & 2);
    for (int flags = 0; flags < 4; flags++)
        for (int lower = 0; lower < 2; lower++) {
            size_t n, other, len;
            ftk_token *a = encode(all[2 * lower], (const char *)data, size, flags, &n);
            ftk_token *b = encode(all[2 * lower + 1], (const char *)data, size, flags, &other);
            subject_must(!a == !b);
            if (!a) return 0;
            subject_must(n == other && memcmp(a, b, n * sizeof *a) == 0);
            char *text;
            subject_must(ftki_tokenizer_decode(all[2 * lower], a, n, true, NULL, 0, &len, NULL) == FTK_OK);
            subject_must((text = malloc(len + 1)) != NULL);
            subject_must(ftki_tokenizer_decode(all[2 * lower], a, n, true, text, len, &len, NULL) == FTK_OK);
            free(b);
            b = encode(all[2 * lower], text, len, FTK_TOKENIZE_SPECIAL, &other);
            subject_must(b != NULL && other == n && memcmp(a, b, n * sizeof *a) == 0);
            free(text);
            free(a);
            free(b);
        }
    return 0;
}

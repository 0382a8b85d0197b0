// SPDX-License-Identifier: Apache-2.0
/* Small vocabularies for the tokenizer tests, as GGUF files in memory. */
#ifndef TOKENIZER_FIXTURE_H
#define TOKENIZER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "e2e/tiny_gguf.h"
#include "text/tokenizer.h"

/* Letters of GPT-2's byte alphabet for one byte, as UTF-8. */
static inline void alphabet_letter(unsigned byte, char out[3]) {
    unsigned letter = byte;
    if (byte <= 0x20) letter = 0x100 + byte;
    else if (byte >= 0x7F && byte <= 0xA0) letter = 0x121 + byte - 0x7F;
    else if (byte == 0xAD) letter = 0x143;
    if (letter < 0x80) {
        out[0] = (char)letter;
        out[1] = '\0';
    } else {
        out[0] = (char)(0xC0 | letter >> 6);
        out[1] = (char)(0x80 | (letter & 0x3F));
        out[2] = '\0';
    }
}

typedef struct vocab_builder {
    char (*texts)[64];
    int32_t *types;
    float *scores;
    size_t n;
} vocab_builder;

static inline int32_t vocab_add(vocab_builder *b, const char *text, int32_t type, float score) {
    b->texts = realloc(b->texts, (b->n + 1) * sizeof *b->texts);
    b->types = realloc(b->types, (b->n + 1) * sizeof *b->types);
    b->scores = realloc(b->scores, (b->n + 1) * sizeof *b->scores);
    snprintf(b->texts[b->n], sizeof *b->texts, "%s", text);
    b->types[b->n] = type;
    b->scores[b->n] = score;
    return (int32_t)b->n++;
}

static inline void vocab_write(const vocab_builder *b, tiny_gguf *g, bool scores) {
    const char **texts = malloc(b->n * sizeof *texts);
    for (size_t i = 0; i < b->n; i++) texts[i] = b->texts[i];
    tiny_set_texts(g, "tokenizer.ggml.tokens", texts, b->n);
    tiny_set_i32s(g, "tokenizer.ggml.token_type", b->types, b->n);
    if (scores) tiny_set_f32s(g, "tokenizer.ggml.scores", b->scores, b->n);
    free(texts);
}

static inline void vocab_free(vocab_builder *b) {
    free(b->texts);
    free(b->types);
    free(b->scores);
    *b = (vocab_builder){0};
}

/* Byte-level BPE: token i is byte i, then the results of `merges` in order, then two control
 * tokens <|im_start|>, <|im_end|> and a user-defined <tool>. */
static inline tiny_gguf bpe_file(const char *pre, const char *const *merges, size_t n_merges) {
    tiny_gguf g = {0};
    vocab_builder b = {0};
    char letter[3];
    for (unsigned byte = 0; byte < 256; byte++) {
        alphabet_letter(byte, letter);
        vocab_add(&b, letter, 1, 0);
    }
    for (size_t i = 0; i < n_merges; i++) {
        char joined[64];
        const char *space = strchr(merges[i] + 1, ' ');
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        vocab_add(&b, joined, 1, 0);
    }
    vocab_add(&b, "<|im_start|>", 3, 0);
    int32_t end = vocab_add(&b, "<|im_end|>", 3, 0);
    vocab_add(&b, "<tool>", 4, 0);
    tiny_set_text(&g, "tokenizer.ggml.model", "gpt2");
    if (pre) tiny_set_text(&g, "tokenizer.ggml.pre", pre);
    tiny_set_texts(&g, "tokenizer.ggml.merges", merges, n_merges);
    tiny_set_u32(&g, "tokenizer.ggml.eos_token_id", (uint32_t)end);
    vocab_write(&b, &g, false);
    vocab_free(&b);
    return g;
}

/* SentencePiece: <unk> <s> </s>, the 256 bytes, then `pieces` with falling scores. */
static inline tiny_gguf spm_file(const char *const *pieces, size_t n_pieces) {
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
    for (size_t i = 0; i < n_pieces; i++) vocab_add(&b, pieces[i], 1, -(float)i);
    tiny_set_text(&g, "tokenizer.ggml.model", "llama");
    vocab_write(&b, &g, true);
    vocab_free(&b);
    return g;
}

/* Opens the tokenizer of a file; *e says why not. */
static inline ftki_tokenizer *open_file(const tiny_gguf *file, ftk_error *e) {
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(file, &len);
    ftki_gguf g;
    ftki_tokenizer *t = NULL;
    *e = (ftk_error){0};
    assert_int_equal(ftki_gguf_parse(&g, bytes, len, e), FTK_OK);
    if (ftki_tokenizer_open(&t, &g, e) != FTK_OK) assert_null(t);
    ftki_gguf_close(&g);
    free(bytes);
    return t;
}

/* The text's pieces joined with '|', each as its bytes; ids that print nothing as <id>. */
static inline char *pieces_of(const ftki_tokenizer *t, const char *text, size_t len, int flags) {
    static char out[4096];
    out[0] = '\0';
    ftk_token ids[512];
    size_t n = 0, at = 0;
    ftk_error e = {0};
    assert_int_equal(ftki_tokenizer_encode(t, text, len, flags, ids, 512, &n, &e), FTK_OK);
    assert_true(n <= 512);
    for (size_t i = 0; i < n; i++) {
        size_t size;
        const char *bytes = ftki_tokenizer_bytes(t, ids[i], true, &size);
        at += (size_t)snprintf(out + at, sizeof out - at, "%s%.*s", i ? "|" : "", (int)size, bytes);
    }
    return out;
}
#define PIECES(t, text, flags) pieces_of(t, text, sizeof(text) - 1, flags)

#endif

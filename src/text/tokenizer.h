// SPDX-License-Identifier: Apache-2.0
/* Tokenizers: text to ids and back, from the vocabulary a GGUF file carries.
 * Byte-level BPE (GPT-2 style, pre-tokenised by PCRE2), SentencePiece-style BPE (scores, byte
 * fallback) and WordPiece. Immutable after open, shared by threads; linear time, constant stack. */
#ifndef FTKI_TEXT_TOKENIZER_H
#define FTKI_TEXT_TOKENIZER_H

#include "format/gguf.h"

typedef struct ftki_tokenizer ftki_tokenizer;

/* Reads the tokenizer.ggml.* keys. Copies what it needs; g may be closed afterwards. */
ftk_status ftki_tokenizer_open(ftki_tokenizer **out, const ftki_gguf *g, ftk_error *e);
void ftki_tokenizer_close(ftki_tokenizer *t); /* NULL is fine */

/* Same contracts as ftk_tokenize, ftk_token_bytes and ftk_detokenize. */
ftk_status ftki_tokenizer_encode(const ftki_tokenizer *t, const char *text, size_t len, int flags,
                                 ftk_token *ids, size_t cap, size_t *n, ftk_error *e);
/* Beside FTK_TOKENIZE_*: add BOS as the file asks, but not EOS. */
#define FTKI_TOKENIZE_BOS 4

/* Bytes [start, end) of a text in which no control token is looked for. */
typedef struct ftki_plain {
    size_t start, end;
} ftki_plain;
/* The same where plain [n_plain], ascending and apart, is content written by others: with
 * FTK_TOKENIZE_SPECIAL control tokens are found outside of it only. */
ftk_status ftki_tokenizer_encode_plain(const ftki_tokenizer *t, const char *text, size_t len,
                                       const ftki_plain *plain, size_t n_plain, int flags,
                                       ftk_token *ids, size_t cap, size_t *n, ftk_error *e);
const char *ftki_tokenizer_bytes(const ftki_tokenizer *t, ftk_token id, bool special, size_t *len);
ftk_status ftki_tokenizer_decode(const ftki_tokenizer *t, const ftk_token *ids, size_t n,
                                 bool special, char *text, size_t cap, size_t *len, ftk_error *e);

int32_t ftki_tokenizer_size(const ftki_tokenizer *t); /* n_vocab */
bool ftki_tokenizer_is_end(const ftki_tokenizer *t, ftk_token id);
bool ftki_tokenizer_is_special(const ftki_tokenizer *t, ftk_token id);
ftk_token ftki_tokenizer_bos(const ftki_tokenizer *t); /* -1: none */
ftk_token ftki_tokenizer_eos(const ftki_tokenizer *t);
bool ftki_tokenizer_adds_bos(const ftki_tokenizer *t); /* the file asks for one in front */
/* The id whose text is exactly `text`, -1: none. */
ftk_token ftki_tokenizer_find(const ftki_tokenizer *t, const char *text, size_t len);

#endif

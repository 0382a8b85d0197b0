// SPDX-License-Identifier: Apache-2.0
/* The vocabulary of a GGUF file: the bytes of every token, what kind it is, and the way back from
 * bytes to id. Owns the copied arrays; leaves cutting text into tokens to bpe.c and spm.c.
 *
 * Bytes are what the token stands for in text, not how the file spells it: a byte-level BPE file
 * writes U+0120 for a space, a SentencePiece file U+2581, and both are undone at load. A piece
 * that such a file spells with letters outside its alphabet is taken literally, as are control
 * and user-defined tokens (but U+2581 in SentencePiece user-defined ones means a space). */
#ifndef FTKI_TEXT_VOCAB_H
#define FTKI_TEXT_VOCAB_H

#include "format/gguf.h"

/* Token types as GGUF numbers them. */
typedef enum ftki_token_type {
    FTKI_TOKEN_UNDEFINED = 0,
    FTKI_TOKEN_NORMAL = 1,
    FTKI_TOKEN_UNKNOWN = 2,
    FTKI_TOKEN_CONTROL = 3,
    FTKI_TOKEN_USER = 4,   /* user-defined: always found in text, always printed */
    FTKI_TOKEN_UNUSED = 5, /* padding of the table: never printed */
    FTKI_TOKEN_BYTE = 6
} ftki_token_type;

/* Sets of types, for ftki_vocab_find. */
#define FTKI_TYPE_BIT(type) (1u << (type))
#define FTKI_TYPES_ANY 0x7Fu
/* What merging may produce. Control tokens are not among them: text never becomes one by chance. */
#define FTKI_TYPES_TEXT (FTKI_TYPE_BIT(FTKI_TOKEN_NORMAL) | FTKI_TYPE_BIT(FTKI_TOKEN_UNUSED))
#define FTKI_TYPES_MARKER (FTKI_TYPE_BIT(FTKI_TOKEN_CONTROL) | FTKI_TYPE_BIT(FTKI_TOKEN_UNKNOWN))

/* WPM is WordPiece: pieces that begin a word have a space in front, as in SentencePiece. */
typedef enum ftki_vocab_kind { FTKI_VOCAB_BPE, FTKI_VOCAB_SPM, FTKI_VOCAB_WPM } ftki_vocab_kind;

typedef struct ftki_vocab {
    ftki_vocab_kind kind;
    int32_t n_tokens;
    char *bytes;             /* of all tokens, one after another */
    uint32_t *starts;        /* [n_tokens + 1] offsets into bytes */
    unsigned char *types;    /* [n_tokens] ftki_token_type */
    unsigned char *is_end;   /* [n_tokens] 1: ends generation */
    float *scores;           /* [n_tokens], SPM only, else NULL */
    uint32_t *slots;         /* [n_slots] id + 1, 0: free; open addressing, lowest id first */
    uint32_t n_slots;        /* power of two */
    ftk_token byte_ids[256]; /* the token of one byte, -1: none */
    uint32_t longest;        /* bytes of the longest token text can merge to */
    ftk_token bos, eos, unknown; /* -1: none */
    bool add_bos, add_eos;
    bool hashes;             /* WPM: the file marks continuations by "##", not beginnings by U+2581 */
} ftki_vocab;

/* Reads and checks tokenizer.ggml.model, tokens, token_type and scores. */
ftk_status ftki_vocab_open(ftki_vocab *out, const ftki_gguf *g, ftk_error *e);
void ftki_vocab_close(ftki_vocab *v); /* a zeroed one is fine */

/* The lowest id of the given types that stands for exactly bytes [len]; -1: none. */
ftk_token ftki_vocab_find(const ftki_vocab *v, const char *bytes, size_t len, uint32_t types);

static inline bool ftki_vocab_has(const ftki_vocab *v, ftk_token id) {
    return id >= 0 && id < v->n_tokens;
}
static inline const char *ftki_vocab_bytes(const ftki_vocab *v, ftk_token id, size_t *len) {
    *len = v->starts[id + 1] - v->starts[id];
    return v->bytes + v->starts[id];
}
static inline bool ftki_vocab_is(const ftki_vocab *v, ftk_token id, uint32_t types) {
    return (FTKI_TYPE_BIT(v->types[id]) & types) != 0;
}

/* Undoes GPT-2's byte alphabet: writes at most len bytes to out and returns how many; -1 when the
 * text holds a letter outside the alphabet. text is valid UTF-8. */
int64_t ftki_byte_alphabet_decode(const char *text, size_t len, char *out);

/* Reads the special ids, add_bos/add_eos and the set of end tokens (markers.c). add_bos comes in
 * as its default, which holds as far as there is such a token. */
ftk_status ftki_vocab_read_markers(ftki_vocab *v, const ftki_gguf *g, ftk_error *e);

#endif

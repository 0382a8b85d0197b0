// SPDX-License-Identifier: Apache-2.0
/* Tiny random models of each family, as GGUF files the engine opens: deterministic by seed, small
 * enough that an end-to-end test takes milliseconds, with a working vocabulary. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "e2e/tiny_gguf.h"

typedef enum tiny_rope { TINY_ROPE_PLAIN, TINY_ROPE_LINEAR, TINY_ROPE_YARN, TINY_ROPE_LLAMA3 } tiny_rope;

/* Zero means the default in brackets. */
typedef struct tiny_opts {
    const char *arch;    /* "llama" [default], "qwen2", "qwen3", "gemma3" */
    int32_t layers;      /* [2; gemma3 7: five that slide, one that does not, one that does] */
    int32_t heads;       /* [4] */
    int32_t kv_heads;    /* [2] */
    int32_t head_dim;    /* [16] */
    int32_t hidden;      /* [64; 256 for K types] */
    int32_t ffn;         /* [96; 256 for K types] */
    int32_t vocab;       /* padded up to this many tokens [no padding: about 320] */
    int32_t context;     /* trained context [4096] */
    int32_t window;      /* gemma3 [16] */
    tiny_rope rope;
    ftki_type type;      /* of the matrices [F32]; those whose rows do not fit its block: Q8_0 or F32 */
    bool untied;         /* an output matrix of its own [tied] */
    bool spm;            /* SentencePiece-style vocabulary; gemma3 always */
    bool no_template;    /* no chat template key */
    const char *const *pieces; /* [n_pieces] more tokens of a byte-level vocabulary, see tiny_reciter */
    size_t n_pieces;
    bool no_end;         /* no end-of-generation token at all */
    uint64_t seed;
} tiny_opts;

/* Fills *g; free with tiny_gguf_free. o NULL: all defaults. */
void tiny_model(tiny_gguf *g, const tiny_opts *o);
/* tiny_model written to path; false: could not be written. */
bool tiny_model_write(const tiny_opts *o, const char *path);

/* A model that recites: after any token that is not a piece comes pieces[0], after pieces[i] comes
 * pieces[i + 1], after the last one the end-of-generation token (or pieces[0] again if `loop`).
 * Pieces are NUL-terminated bytes, each a token of its own, cut anywhere, also inside characters;
 * they must differ from each other, from single bytes and from the vocabulary's merges. */
void tiny_reciter(tiny_gguf *g, const char *const *pieces, size_t n, bool loop);
/* The token of pieces[i]. */
int32_t tiny_reciter_token(size_t i);

#endif

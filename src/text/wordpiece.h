// SPDX-License-Identifier: Apache-2.0
/* WordPiece (BERT, MiniLM): text cleaned, lowered and cut into words, each word covered greedily by
 * the longest pieces. Follows the normaliser, pre-tokenizer and model "Bert"/"WordPiece" of Hugging
 * Face's tokenizers, not the vocabulary's spelling: vocab.c gives a piece that begins a word a space
 * in front and takes the "##" of a continuation away. */
#ifndef FTKI_TEXT_WORDPIECE_H
#define FTKI_TEXT_WORDPIECE_H

#include "text/ids.h"
#include "text/vocab.h"

/* A word of more characters is unknown as a whole, as in BERT. */
#define FTKI_WORDPIECE_LONGEST 100

typedef struct ftki_wordpiece {
    const ftki_vocab *vocab; /* borrowed */
    bool lower;              /* lower-case the text */
    bool strip_accents;      /* decompose characters and drop the marks */
} ftki_wordpiece;

/* Reads freetoken.tokenizer.lowercase (default true) and .strip_accents (default: as lowercase).
 */
ftk_status ftki_wordpiece_open(ftki_wordpiece *out, const ftki_vocab *v, const ftki_gguf *g, ftk_error *e);

/* Appends the ids of text [len], valid UTF-8 without special tokens. Linear time, constant stack. */
ftk_status ftki_wordpiece_encode(const ftki_wordpiece *w, const char *text, size_t len, ftki_ids *out,
                                 ftk_error *e);

#endif

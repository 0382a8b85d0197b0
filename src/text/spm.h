// SPDX-License-Identifier: Apache-2.0
/* SentencePiece-style BPE (Llama 2, Gemma): characters joined by the scores of the tokens they
 * give, and bytes for characters no token covers. */
#ifndef FTKI_TEXT_SPM_H
#define FTKI_TEXT_SPM_H

#include "text/ids.h"
#include "text/merge.h"
#include "text/vocab.h"

typedef struct ftki_spm {
    const ftki_vocab *vocab;  /* borrowed */
    ftk_token ascii_ids[128]; /* the token of one character, -1: none */
    bool holds_space[256];    /* some token has a space right after this byte: no cut there */
    ftki_memo *memo;          /* [n_tokens] */
} ftki_spm;

ftk_status ftki_spm_open(ftki_spm *out, const ftki_vocab *v, ftk_error *e);
void ftki_spm_close(ftki_spm *s); /* a zeroed one is fine */

/* Text as SentencePiece sees it. Zero it; free with ftki_free(data). */
typedef struct ftki_spm_buffer {
    char *data;
    size_t room;
} ftki_spm_buffer;

/* Appends the ids of text [len], valid UTF-8 without special tokens, len > 0. `prefix` puts a
 * space in front of it. U+2581 in the text is a space, as in SentencePiece. */
ftk_status ftki_spm_encode(const ftki_spm *s, const char *text, size_t len, bool prefix,
                           ftki_spm_buffer *buffer, ftki_merge_scratch *scratch, ftki_ids *out,
                           ftk_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Byte-level BPE (GPT-2 style): words from the splitter, bytes joined by the ranked merges of the
 * file. */
#ifndef FTKI_TEXT_BPE_H
#define FTKI_TEXT_BPE_H

#include "text/ids.h"
#include "text/merge.h"
#include "text/split.h"
#include "text/vocab.h"

typedef struct ftki_merge_rule {
    ftk_token left, right, joined;
} ftki_merge_rule;

typedef struct ftki_bpe {
    const ftki_vocab *vocab; /* borrowed */
    ftki_splitter *splitter;
    bool ignore_merges;
    ftki_merge_rule *rules; /* [n_rules] by rank; left -1: refers to no tokens, never applies */
    uint32_t n_rules;
    uint32_t *slots;        /* [n_slots] rank + 1, 0: free; open addressing */
    uint32_t n_slots;
    ftki_memo *memo;        /* [n_tokens] */
} ftki_bpe;

/* Reads tokenizer.ggml.merges. The splitter passes into ownership of *out, on failure too. */
ftk_status ftki_bpe_open(ftki_bpe *out, const ftki_vocab *v, ftki_splitter *splitter,
                         bool ignore_merges, const ftki_gguf *g, ftk_error *e);
void ftki_bpe_close(ftki_bpe *b); /* a zeroed one is fine */

/* Appends the ids of text [len], valid UTF-8 without special tokens. */
ftk_status ftki_bpe_encode(const ftki_bpe *b, const char *text, size_t len, ftki_split *split,
                           ftki_merge_scratch *scratch, ftki_ids *out, ftk_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The merging loop both tokenizers share: neighbours join, best pair first, leftmost among
 * equals, until no pair is known. Byte-pair encoding (Sennrich et al. 2016). */
#ifndef FTKI_TEXT_MERGE_H
#define FTKI_TEXT_MERGE_H

#include "base/status.h"

#define FTKI_NO_PAIR UINT32_MAX

typedef struct ftki_symbol {
    uint32_t start, end; /* bytes of the word it covers */
    uint32_t prev, next; /* neighbours; UINT32_MAX: none */
    uint32_t key;        /* urgency of joining with `next`, low first; FTKI_NO_PAIR: cannot */
    ftk_token id;        /* its token, -1: none */
    ftk_token joined;    /* the token of itself and `next` */
} ftki_symbol;

/* How urgent it is to join two neighbours, and the token they give; FTKI_NO_PAIR: they do not. */
typedef uint32_t (*ftki_pair_fn)(const void *ctx, const char *word, const ftki_symbol *left,
                                 const ftki_symbol *right, ftk_token *joined);

/* Reusable memory of one encoding call. Zero it, free it once. */
typedef struct ftki_merge_scratch {
    ftki_symbol *symbols; /* [n_symbols] room */
    size_t n_symbols;
    uint64_t *heap; /* [n_heap] room */
    size_t n_heap;
} ftki_merge_scratch;

ftk_status ftki_merge_reserve(ftki_merge_scratch *scratch, size_t n_symbols, ftk_error *e);
void ftki_merge_free(ftki_merge_scratch *scratch);

/* Joins symbols [n], n >= 1, whose start, end and id are filled; afterwards the chain from
 * symbols[0] along `next` is the result. Up to 64 symbols by scanning for the best pair, beyond
 * that with a heap in O(n log n). */
ftk_status ftki_merge(ftki_merge_scratch *scratch, size_t n, const char *word, ftki_pair_fn pair,
                      const void *ctx, ftk_error *e);

#endif

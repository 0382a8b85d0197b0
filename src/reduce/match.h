// SPDX-License-Identifier: Apache-2.0
/* Who merges with whom. A matching takes rows (hidden states or un-rotated keys) of tokens in text
 * order and says for each token which one stands for it. Pairs are found inside blocks, ordered by
 * cost over the whole segment, and taken cheapest first, so that exactly the number asked for goes
 * wherever it hurts least. Deterministic: ties to the earlier token.
 *
 * cost of a pair = (1 - similarity) * importance of the one that is absorbed, the less important of the two;
 * Euclidean: squared distance / (|a|^2 + |b|^2) in place of 1 - cosine. */
#ifndef FTKI_REDUCE_MATCH_H
#define FTKI_REDUCE_MATCH_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "freetoken/freetoken.h"

typedef struct ftki_match {
    const float *rows;          /* [n][stride], the first `dim` of each are compared */
    size_t stride;
    int32_t n, dim;
    ftk_similarity similarity;
    ftk_pairing pairing;
    int32_t block;              /* tokens of a block (BLOCK; ADJACENT ignores it) */
    const float *importance;    /* [n], >= 0; NULL: all 1 */
    const bool *protected_flags;/* [n]: neither absorbed nor absorbing; NULL: none */
} ftki_match;

size_t ftki_match_scratch_bytes(int32_t n, int32_t block); /* 64-byte aligned */

/* Norms and costs of tokens [begin, end) whose block begins in there; workers may share the range out
 * at multiples of `block`. First of the two steps. */
void ftki_match_costs(const ftki_match *m, int32_t begin, int32_t end, void *scratch);
/* Second step, one thread: into [n], into[i] = the token that stands for i (itself when it stays; its own
 * into is itself). Exactly `remove` tokens are absorbed if possible at all (chains join up: a representative
 * may absorb several); returns how many were. The representative is the EARLIEST member. */
int32_t ftki_match_pairs(const ftki_match *m, int32_t remove, int32_t *into, void *scratch);

#endif

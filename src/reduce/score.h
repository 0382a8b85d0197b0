// SPDX-License-Identifier: Apache-2.0
/* Scores of KV entries and hidden states from what attention hands out. One function per idea, over
 * plain arrays. Indices are entries of one head, or tokens of a segment. */
#ifndef FTKI_REDUCE_SCORE_H
#define FTKI_REDUCE_SCORE_H

#include <stdbool.h>
#include <stdint.h>

#include "freetoken/freetoken.h"

typedef struct ftki_score_input {
    int32_t n;                  /* entries, oldest first */
    const float *columns;       /* [n] attention received from the observed queries; NULL unless needed */
    const float *seen_by;       /* [n] number of observed queries that could see the entry; NULL: all the same */
    const float *value_norms;   /* [n]; NULL unless needed */
    const float *key_norms;     /* [n]; NULL unless needed */
    uint64_t seed;              /* of RANDOM, mixed with layer and head by the caller */
    int32_t pool;               /* odd, >= 1 */
} ftki_score_input;

/* What a scorer reads. */
bool ftki_scorer_needs_columns(ftk_scorer s);
bool ftki_scorer_needs_all_queries(ftk_scorer s); /* H2O, MEAN: columns over all queries of the segment */
bool ftki_scorer_needs_value_norms(ftk_scorer s);
bool ftki_scorer_needs_key_norms(ftk_scorer s);
int32_t ftki_scorer_default_pool(ftk_scorer s);
int32_t ftki_scorer_default_observe(ftk_scorer s);

/* scores [n], higher stays. scratch [n] */
void ftki_score(ftk_scorer s, const ftki_score_input *in, float *scores, float *scratch);

#endif

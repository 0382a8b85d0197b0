// SPDX-License-Identifier: Apache-2.0
/* Which tokens of an encoder's input merge: bipartite soft matching (Bolya et al., Token Merging, 2022). Pure
 * functions over arrays; nothing is allocated. */
#ifndef FTKI_REDUCE_ENCODER_MATCH_H
#define FTKI_REDUCE_ENCODER_MATCH_H

#include "kernels/kernels.h"

typedef struct ftki_soft_match {
    const ftki_kernels *kernels;
    float *metric;        /* [n][dim] rows; made of length 1 here */
    int32_t n, dim;       /* dim as it is, any */
    int32_t first, last;  /* rows [0, first) and [last, n) are protected */
    bool local;           /* only neighbours t, t + 1 */
    float least;          /* cosine below which nothing merges; 0: none */
    float *panels;        /* scratch [(n / 2 + 15) & ~15][dim] */
    float *similar;       /* scratch [64][(n / 2 + 15) & ~15] */
    float *best;          /* scratch [n] */
    int32_t *order;       /* scratch [n] */
} ftki_soft_match;

/* Chooses at most `pairs` pairs: target[t] is the row that row t merges into, -1 where it stays. Even rows (a) propose
 * to their most similar odd row (b, the first of equals); the `pairs` most similar proposals (the earlier of equals)
 * are taken. Returns the number taken: at most half of the rows that are not protected. */
int32_t ftki_soft_match_pairs(const ftki_soft_match *m, int32_t pairs, int32_t *target);

#endif

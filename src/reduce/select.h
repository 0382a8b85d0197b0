// SPDX-License-Identifier: Apache-2.0
/* Choosing entries by score: exact counts, ties to the earlier index, so that a choice does not
 * depend on threads or machine. No allocation: scratch is the caller's. */
#ifndef FTKI_REDUCE_SELECT_H
#define FTKI_REDUCE_SELECT_H

#include <stdbool.h>
#include <stdint.h>

/* Writes to chosen [keep] the ascending indices of the `keep` best of scores [n]; those with
 * protected_flags [n] set (NULL: none) come first whatever their score. 0 <= keep <= n, keep at least
 * the number protected. NaN counts as lowest. scratch [n]. Linear time. */
void ftki_select_top(const float *scores, const bool *protected_flags, int32_t n, int32_t keep,
                     int32_t *chosen, int32_t *scratch);

/* Score of the last of the best `keep`: entries above are all chosen; INFINITY for none. scratch [n] */
float ftki_select_threshold(const float *scores, int32_t n, int32_t keep, int32_t *scratch);

/* Splits a layer's budget over its heads (AdaKV): kept [n_heads] becomes the number of each head's
 * entries among the n_heads * n_entries best scores of the layer, the total unchanged, each head at least
 * `at_least` (safeguard). scores [n_heads][n_entries], each head's normalised to sum 1 by the caller. scratch [n_heads * n_entries] */
void ftki_budget_adapt(const float *scores, int32_t n_heads, int32_t n_entries, int32_t at_least,
                       int32_t *kept, int32_t *scratch);

#endif

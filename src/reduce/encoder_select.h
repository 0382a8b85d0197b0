// SPDX-License-Identifier: Apache-2.0
/* Which tokens of an encoder's input stay, from one score for each; and when an exit head is sure. Pure functions
 * over arrays; nothing is allocated. */
#ifndef FTKI_REDUCE_ENCODER_SELECT_H
#define FTKI_REDUCE_ENCODER_SELECT_H

#include "freetoken/freetoken.h"

/* Sorts indices [n] by score[index], largest first, the smaller index first among equals; NaN counts as least. */
void ftki_order_descending(int32_t *indices, int32_t n, const float *score);

typedef struct ftki_selection {
    int32_t n;
    int32_t first, last; /* rows [0, first) and [last, n) always stay */
    const float *score;  /* [n] */
    float keep;          /* least share of the others that stays */
    float threshold;     /* > 0: of the rest those that reach this times the mean score stay too */
    int32_t tile;        /* the number kept, all rows counted, is rounded up to a multiple; >= 1 */
} ftki_selection;

enum { FTKI_ROW_STAYS = -1, FTKI_ROW_LEAVES = -2 };
/* Fills target [n] with one of them. order [n] is scratch. Returns how many stay. */
int32_t ftki_select_rows(const ftki_selection *s, int32_t *order, int32_t *target);

/* How sure logits [n] are by `rule`, in 0..1, and the likeliest label. */
float ftki_exit_confidence(ftk_exit_by rule, const float *logits, int32_t n, int32_t *label);

#endif

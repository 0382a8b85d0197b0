// SPDX-License-Identifier: Apache-2.0
/* The survivors map: which entry stands for which original token, at every layer, for the tokens of a
 * session. Kept as a chain of changes: `into` of each event over the tokens that were left before it.
 * Memory is planned for the session's context when a policy is set. */
#ifndef FTKI_REDUCE_SURVIVORS_H
#define FTKI_REDUCE_SURVIVORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ftki_survivors {
    int32_t capacity, n_layers, max_events;
    int32_t n_tokens;
    int32_t *owner;       /* [max_events][capacity]: after event k, the token that stands for token t, -1: dropped */
    int32_t *event_layer; /* [max_events] */
    int32_t n_events;
} ftki_survivors;

ftk_status ftki_survivors_open(ftki_survivors *out, int32_t capacity, int32_t n_layers, int32_t max_events, ftk_error *e);
void ftki_survivors_close(ftki_survivors *s); /* zeroed or closed: fine */
/* Forgets tokens from n on. */
void ftki_survivors_rewind(ftki_survivors *s, int32_t n);
/* Adds tokens [first, first + n), standing for themselves at every layer. */
void ftki_survivors_append(ftki_survivors *s, int32_t n);
/* After layer `layer`, of the tokens alive [n_alive] (original indices, ascending, all of one segment) the i-th is stood for by
 * the into[i]-th, into[i] <= i and into[into[i]] == into[i]; into[i] = -1: it is dropped. The segment is the last
 * one appended, its events come in ascending layers. False: more than max_events different layers. */
bool ftki_survivors_event(ftki_survivors *s, int32_t layer, const int32_t *alive, int32_t n_alive, const int32_t *into);
/* The token that stands for `token` in what layer `layer` computes; -1: none. */
int32_t ftki_survivors_owner(const ftki_survivors *s, int32_t layer, int32_t token);

#endif

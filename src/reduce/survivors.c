// SPDX-License-Identifier: Apache-2.0
/* One row of owners per layer that had an event, rows ascending by layer. A representative is never
 * later than the tokens it stands for, so one pass over the tokens in order carries a change to all
 * of them. */
#include "reduce/survivors.h"

#include <string.h>

#include "base/memory.h"

ftk_status ftki_survivors_open(ftki_survivors *out, int32_t capacity, int32_t n_layers,
                               int32_t max_events, ftk_error *e) {
    ftki_survivors s = {.capacity = capacity, .n_layers = n_layers, .max_events = max_events};
    size_t n;
    if (capacity < 0 || max_events < 0)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a survivors map of %d tokens and %d events", capacity, max_events);
    if (!ftki_mul_size((size_t)max_events, (size_t)capacity, &n))
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "a survivors map of %d tokens is too large", capacity);
    s.owner = ftki_alloc(n > 0 ? n : 1, sizeof s.owner[0]);
    s.event_layer = ftki_alloc(max_events > 0 ? (size_t)max_events : 1, sizeof s.event_layer[0]);
    if (s.owner == NULL || s.event_layer == NULL) {
        ftki_survivors_close(&s);
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a survivors map of %d tokens and %d events",
                         capacity, max_events);
    }
    *out = s;
    return FTK_OK;
}

void ftki_survivors_close(ftki_survivors *s) {
    ftki_free(s->owner);
    ftki_free(s->event_layer);
    *s = (ftki_survivors){0};
}

void ftki_survivors_rewind(ftki_survivors *s, int32_t n) {
    if (n < s->n_tokens) s->n_tokens = n < 0 ? 0 : n;
    if (s->n_tokens == 0) s->n_events = 0;
}

static int32_t *row(const ftki_survivors *s, int32_t k) { return s->owner + (size_t)k * (size_t)s->capacity; }

void ftki_survivors_append(ftki_survivors *s, int32_t n) {
    int32_t first = s->n_tokens;
    if (n > s->capacity - first) n = s->capacity - first;
    for (int32_t k = 0; k < s->n_events; k++)
        for (int32_t t = first; t < first + n; t++) row(s, k)[t] = t;
    s->n_tokens = first + n;
}

/* Row of the layer's event; a new one starts as the row below it. -1: no room. */
static int32_t row_of(ftki_survivors *s, int32_t layer) {
    int32_t k = 0;
    while (k < s->n_events && s->event_layer[k] < layer) k++;
    if (k < s->n_events && s->event_layer[k] == layer) return k;
    if (s->n_events == s->max_events) return -1;
    for (int32_t j = s->n_events; j > k; j--) {
        memcpy(row(s, j), row(s, j - 1), (size_t)s->n_tokens * sizeof(int32_t));
        s->event_layer[j] = s->event_layer[j - 1];
    }
    for (int32_t t = 0; t < s->n_tokens; t++) row(s, k)[t] = k > 0 ? row(s, k - 1)[t] : t;
    s->event_layer[k] = layer;
    s->n_events++;
    return k;
}

bool ftki_survivors_event(ftki_survivors *s, int32_t layer, const int32_t *alive, int32_t n_alive,
                          const int32_t *into) {
    if (n_alive == 0) return true;
    int32_t k = row_of(s, layer);
    if (k < 0) return false;
    int32_t *now = row(s, k);
    for (int32_t t = alive[0], i = 0; t < s->n_tokens; t++) {
        if (i < n_alive && alive[i] == t) {
            now[t] = into[i] < 0 ? -1 : alive[into[i]];
            i++;
        } else if (now[t] >= alive[0] && now[t] < t) {
            now[t] = now[now[t]]; /* what stood for it may now be stood for itself */
        }
    }
    for (int32_t j = k + 1; j < s->n_events; j++)
        memcpy(row(s, j) + alive[0], now + alive[0], (size_t)(s->n_tokens - alive[0]) * sizeof(int32_t));
    return true;
}

int32_t ftki_survivors_owner(const ftki_survivors *s, int32_t layer, int32_t token) {
    if (token < 0 || token >= s->n_tokens) return -1;
    int32_t k = s->n_events;
    while (k > 0 && s->event_layer[k - 1] >= layer) k--;
    return k == 0 ? token : row(s, k - 1)[token];
}

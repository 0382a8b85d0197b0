// SPDX-License-Identifier: Apache-2.0
/* A reduction policy as the forward pass uses it: ftk_reduction checked against a model, defaults
 * filled in, lists copied, and the plan of each layer worked out for a segment's length. Owns its
 * lists; no tensors, no maths. */
#ifndef FTKI_REDUCE_POLICY_H
#define FTKI_REDUCE_POLICY_H

#include "base/status.h"
#include "freetoken/freetoken.h"

/* What a policy must know of its model. */
typedef struct ftki_policy_model {
    int32_t n_layers, n_kv_heads;
    const bool *slides; /* [n_layers] layers with a sliding window of their own: their cache is bounded already,
                           so it is left whole, and windows or budgets below 1 there are refused; NULL: none */
} ftki_policy_model;

typedef struct ftki_policy {
    ftk_reduction r;      /* no field at "default" any more; its lists point into `memory` */
    bool hidden;          /* hidden states are reduced somewhere (keep, keep_tokens or letting go) */
    bool cache;           /* the KV cache is compressed */
    bool near;            /* some head has a window */
    bool columns;         /* some step needs the attention received */
    int32_t n_layers, n_kv_heads;
    bool *slides;         /* [n_layers] */
    int32_t *events;      /* [n_events] layers after which hidden states are reduced, ascending */
    int32_t n_events;
    bool as_given;        /* budgets are taken as they are: neither kv_keep nor kv_bytes was set */
    void *memory;
} ftki_policy;

/* FTK_INVALID_ARGUMENT or FTK_UNSUPPORTED by the field's name, *out untouched. A zeroed *r gives a
 * policy that does nothing. */
ftk_status ftki_policy_open(ftki_policy *out, const ftk_reduction *r, const ftki_policy_model *m, ftk_error *e);
void ftki_policy_close(ftki_policy *p); /* zeroed or closed: fine */

/* Why a segment of n tokens is dense under the policy; NULL: it is not. Static text. */
const char *ftki_policy_dense_because(const ftki_policy *p, int32_t n);

/* Hidden states left of n after each layer: counts [n_layers], descending; counts[l] is what layer
 * l + 1 computes. The last one is exactly what was asked for (keep, keep_tokens, let_go_keep), never
 * below n_protected for a share. Several events share the removal in equal ratios. FTK_INVALID_ARGUMENT when
 * keep_tokens is below n_protected. */
ftk_status ftki_policy_tokens(const ftki_policy *p, int32_t n, int32_t n_protected, int32_t *counts,
                              ftk_error *e);

/* KV entries to keep: kept [n_layers][n_kv_heads] of entries [n_layers], which each head of the layer
 * has for the segment, never below min(n_protected, entries). A head with a window keeps at most
 * sinks + window; layers that slide are left whole. The sum over the other layers is exactly what was asked
 * for as far as these limits allow: round(kv_keep * their entries), or with kv_bytes as many whole pages of
 * page_bytes as it holds (the sliding layers' pages counted). With kv_shared the heads of a layer get
 * one number and the sum is exact per head.
 * FTK_INVALID_ARGUMENT when the protected alone exceed kv_bytes. With FTK_BUDGET_ADAPTIVE the layer's heads get equal
 * shares here and are balanced by ftki_budget_adapt. */
ftk_status ftki_policy_entries(const ftki_policy *p, const int32_t *entries, int32_t n_protected,
                               size_t page_bytes, int32_t *kept, ftk_error *e);

/* Whether two policies do the same: the key of prefix reuse together with the tokens. */
uint64_t ftki_policy_hash(const ftki_policy *p);

#endif

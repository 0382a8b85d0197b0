// SPDX-License-Identifier: Apache-2.0
/* A session's reduction: the policy in force, what it observed of a segment, and the compression of
 * the cache once the segment is in. Which tokens were reduced together decides what may be rewound
 * and reused. */
#ifndef FTKI_ENGINE_REDUCE_H
#define FTKI_ENGINE_REDUCE_H

#include "model/decoder.h"
#include "reduce/policy.h"

typedef struct ftki_reducer {
    ftki_policy policy;
    bool active;            /* a policy that does something is set */
    uint32_t key;           /* of the policy; 0: dense */
    ftki_arena arena;       /* what follows but `held_under` and `inside` */
    int32_t capacity;       /* entries of a list: the context in whole pages */
    float *columns;         /* [n_layers * n_kv_heads][capacity] attention received from the observed queries */
    bool *flags;            /* [capacity] tokens of the segment that are protected */
    int32_t *kept;          /* [n_layers * n_kv_heads] entries to keep of the segment, as planned */
    unsigned char *workers; /* [n_workers][worker_bytes] */
    size_t worker_bytes;
    uint32_t *held_under;   /* [context] key of the policy each token was taken in under; the session's arena */
    uint8_t *inside;        /* [context + 1] 1: cutting there would cut through what was reduced together; the same */
    int32_t *counts;        /* [n_layers + n_layers * n_kv_heads] for ftk_reduced; the same */
    ftk_reduced last;       /* of the last prefill */
} ftki_reducer;

/* Whether the tokens of a segment of n are reduced; NULL, or why not. */
const char *ftki_reducer_skips(const ftk_session *s, int32_t n);
/* Plans the segment tokens [n], which begins at position s->n_tokens: protected tokens and entries to keep. */
ftk_status ftki_reducer_begin(ftk_session *s, const ftk_token *tokens, int32_t n, ftk_error *e);
/* Sets what the forward pass of tokens [at, at + n) of a segment of `total` is to observe. */
void ftki_reducer_observe(ftk_session *s, ftki_forward *f, int32_t at, int32_t n, int32_t total);
/* Compresses the segment, the session's last n tokens. */
ftk_status ftki_reducer_finish(ftk_session *s, int32_t n, ftk_error *e);
/* The largest length <= n to which the session may be cut. */
int32_t ftki_reducer_border(const ftk_session *s, int32_t n);
/* After a snapshot was read: tokens of a reduced one are neither cut nor reused in part. */
void ftki_reducer_restored(ftk_session *s);
void ftki_reducer_close(ftki_reducer *r);

#endif

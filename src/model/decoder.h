// SPDX-License-Identifier: Apache-2.0
/* A decoder-only Transformer: its packed weights and its forward pass over a chunk of tokens.
 * The weights are immutable and shared; the scratch belongs to one session. */
#ifndef FTKI_MODEL_DECODER_H
#define FTKI_MODEL_DECODER_H

#include <stdatomic.h>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"
#include "kv/kv.h"
#include "model/config.h"

/* Vectors are NULL where the family has none. */
typedef struct ftki_layer {
    const float *attn_norm;                     /* [hidden] */
    ftki_matrix q, k, v;                        /* [n_heads * head_dim, hidden], [n_kv_heads * head_dim, hidden] x 2 */
    const float *q_bias, *k_bias, *v_bias;      /* [rows] */
    const float *q_norm, *k_norm;               /* [head_dim] */
    const float *k_shift;                       /* [n_kv_heads * head_dim] added to rotated keys before they are
                                                   cached; NULL: nothing */
    ftki_matrix o;                              /* [hidden, n_heads * head_dim] */
    const float *attn_post_norm;                /* [hidden], on the attention's output */
    const float *ffn_norm;                      /* [hidden] */
    ftki_matrix gate, up;                       /* [ffn, hidden] */
    ftki_matrix down;                           /* [hidden, ffn] */
    const float *ffn_post_norm;                 /* [hidden], on the feed-forward's output */
} ftki_layer;

typedef struct ftki_decoder {
    ftki_config config;
    const ftki_kernels *kernels;
    ftki_arena arena;            /* packed weights, vectors, frequencies */
    ftki_layer *layers;          /* [n_layers], owned */
    const float *final_norm;     /* [hidden] */
    ftki_matrix output;          /* [n_vocab, hidden] */
    const ftki_tensor *embedding;/* raw rows in the file; NULL: rows of `output` (tied) */
    const float *freq, *freq_local; /* [head_dim/2] */
    float rope_scale, rope_scale_local;
    bool float_weights;          /* some matrix multiplies floats: activations keep theirs */
    uint64_t weight_bytes;       /* read once per forward of one token */
    uint64_t matrix_madds;       /* multiply-adds of all layers' matrices for one token */
} ftki_decoder;

/* Validates every tensor's presence, type and shape (nothing missing reads as zero, unknown
 * tensors of a layer are refused), then packs. `g` must outlive *out. */
ftk_status ftki_decoder_open(ftki_decoder *out, const ftki_gguf *g, const ftki_kernels *kernels,
                             int32_t n_threads, ftk_progress_fn progress, void *progress_ctx,
                             ftk_error *e);
void ftki_decoder_close(ftki_decoder *d); /* zeroed or closed: fine */

/* Scratch of one session for chunks of up to `chunk` tokens. */
typedef struct ftki_scratch {
    ftki_arena arena;
    int32_t chunk, n_workers, max_segments;
    float *hidden;     /* [chunk][hidden] */
    float *normed;     /* [chunk][hidden] */
    float *q;          /* [chunk][n_heads * head_dim] */
    float *k, *v;      /* [chunk][n_kv_heads * head_dim] */
    float *attended;   /* [chunk][n_heads * head_dim] */
    float *gate, *up;  /* [chunk][ffn] */
    float *branch;     /* [chunk][hidden], output of a branch that is normed before it joins */
    float *cos, *sin;  /* [2][chunk][head_dim/2]: global, local */
    ftki_acts acts;    /* [chunk][widest input] */
    unsigned char *workers; /* [n_workers][worker_bytes]: prepared queries, states, ranges */
    size_t worker_bytes;
    float *partial;    /* decode: [n_heads][max_segments][dim + 2] */
} ftki_scratch;

ftk_status ftki_scratch_plan(ftki_scratch *out, const ftki_decoder *d, int32_t chunk,
                             int32_t n_workers, int32_t context, ftk_error *e);
/* Bytes of the plan (before or after commit). */
ftk_status ftki_scratch_commit(ftki_scratch *s, const ftki_decoder *d, ftk_error *e);
void ftki_scratch_close(ftki_scratch *s);

typedef struct ftki_forward {
    const ftki_decoder *decoder;
    ftki_scratch *scratch;
    ftki_kv *kv;
    ftki_team *team;
    const ftk_token *tokens; /* [n] */
    int32_t n;               /* 1..chunk */
    int32_t position;        /* of tokens[0] */
    int32_t n_logits;        /* logits of the last n_logits tokens; 0: none */
    float *logits;           /* [n_logits][n_vocab] */
    atomic_bool *cancel;     /* looked at before each layer */
    ftk_tap_fn tap;
    void *tap_ctx;
    int32_t observe;         /* attention that the last `observe` tokens give is added to columns; 0: not */
    float *columns;          /* [n_layers * n_kv_heads][columns_stride] per entry of the list; layers that
                                slide are left out */
    size_t columns_stride;
    uint64_t attn_madds;     /* out */
} ftki_forward;

/* Computes the chunk and leaves its keys and values in the cache. FTK_CANCELLED: the cache is as
 * before the call. */
ftk_status ftki_forward_run(ftki_forward *f, ftk_error *e);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What a decoder's file says about its shape: read from the keys, checked against our limits
 * before anything of the size it names is computed or allocated. */
#ifndef FTKI_MODEL_CONFIG_H
#define FTKI_MODEL_CONFIG_H

#include "kernels/kernels.h"

enum {
    FTKI_MAX_LAYERS = 512,
    FTKI_MAX_HEADS = 1024,
    FTKI_MAX_WIDTH = 1 << 18,     /* hidden and ffn */
    FTKI_MAX_VOCAB = 1 << 20,
    FTKI_MAX_CONTEXT = 1 << 24
};

typedef enum ftki_arch { FTKI_LLAMA, FTKI_QWEN2, FTKI_QWEN3, FTKI_GEMMA3 } ftki_arch;

typedef enum ftki_rope_scaling { FTKI_ROPE_NONE, FTKI_ROPE_LINEAR, FTKI_ROPE_YARN } ftki_rope_scaling;

/* Rotary embedding (RoFormer; YaRN: Peng et al. 2023). Llama 3's scaling comes as a tensor of
 * frequency divisors, see ftki_rope_frequencies. */
typedef struct ftki_rope {
    float base;
    ftki_rope_scaling scaling;
    float factor;          /* context stretch, >= 1 */
    float original_context;/* tokens, YaRN */
    float attn_factor;     /* YaRN: multiplies cos and sin on top of 1 + 0.1 ln(factor) */
    float beta_fast, beta_slow;
} ftki_rope;

typedef struct ftki_config {
    ftki_arch arch;
    const char *arch_name; /* static */
    int32_t n_layers, n_heads, n_kv_heads, head_dim, hidden, ffn, n_vocab, train_context;
    float norm_eps;
    float attn_scale;      /* on q . k */
    float embed_scale;     /* on token embeddings, 1 unless Gemma */
    bool rope_interleaved; /* pairs (2p, 2p+1), as Llama files hold them; else (p, p + dim/2) */
    bool gelu;             /* feed-forward gate: gelu (tanh form), else silu */
    ftki_rope rope;        /* layers that attend to everything */
    ftki_rope rope_local;  /* layers with a sliding window */
    int32_t window;        /* tokens a sliding layer sees, itself included; 0: none */
    int32_t window_period; /* layer l slides unless (l + 1) % period == 0 */
} ftki_config;

ftk_status ftki_config_read(ftki_config *out, const ftki_gguf *g, ftk_error *e);
static inline bool ftki_layer_slides(const ftki_config *c, int32_t layer) {
    return c->window > 0 && (c->window_period <= 1 || (layer + 1) % c->window_period != 0);
}
/* "gemma3, llama, qwen2, qwen3" */
const char *ftki_arch_list(void);

/* Inverse frequencies, freq [head_dim/2], in radians per position, and the factor on cos and
 * sin (returned). divisors [head_dim/2] may be NULL. */
float ftki_rope_frequencies(const ftki_rope *r, int32_t head_dim, const float *divisors, float *freq);

#endif

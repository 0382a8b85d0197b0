// SPDX-License-Identifier: Apache-2.0
/* Encoder-only Transformers: packed weights and the forward pass over packed inputs. Weights are immutable and
 * shared; the run belongs to one session. Files: encoder_load.c (keys and tensors to weights), encoder_input.c
 * (tokens, patches and frames to first states), encoder.c (the layers), encoder_reduce.c (what is left out). */
#ifndef FTKI_MODEL_ENCODER_H
#define FTKI_MODEL_ENCODER_H

#include <stdatomic.h>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

enum {
    FTKI_ENCODER_MAX_LAYERS = 128,
    FTKI_ENCODER_MAX_WIDTH = 1 << 14,
    FTKI_ENCODER_MAX_TOKENS = 1 << 15, /* of all inputs of a call */
    FTKI_ENCODER_MAX_LABELS = 1 << 16,
    FTKI_ENCODER_BLOCK = 64            /* most rows of one task */
};

typedef enum ftki_encoder_arch { FTKI_VIT, FTKI_BERT, FTKI_KWT, FTKI_WHISPER } ftki_encoder_arch;
typedef enum ftki_pooling { FTKI_POOL_NONE, FTKI_POOL_CLS, FTKI_POOL_MEAN } ftki_pooling;

typedef struct ftki_encoder_config {
    ftki_encoder_arch arch;
    const char *arch_name; /* static */
    int32_t n_layers, n_heads, head_dim, hidden, ffn, n_vocab, n_labels;
    int32_t max_tokens;    /* of one input */
    int32_t n_prefix;      /* class, distillation and register tokens before patches and frames */
    float norm_eps;
    bool post_norm;        /* norms after the residual sums (BERT, KWT), else before the branches */
    bool gelu_tanh;
    ftki_pooling pooling;
    int32_t grid;          /* vit: patches along a side that the position embedding was made for */
    int32_t input_cols;    /* width of a patch or frame, padded to a multiple of 32 */
    ftk_encoder_info info; /* the front end's part */
} ftki_encoder_config;

/* Vectors the file lacks are vectors of zeros, but for those said to be NULL. */
typedef struct ftki_encoder_layer {
    ftki_matrix qkv, o, up, down; /* [3 * hidden, hidden], [hidden, hidden], [ffn, hidden], [hidden, ffn] */
    const float *qkv_bias, *o_bias, *up_bias, *down_bias;
    const float *attn_norm, *attn_norm_bias, *ffn_norm, *ffn_norm_bias; /* [hidden] */
    bool has_exit, has_scorer;
    ftki_matrix exit;             /* [n_labels, hidden] */
    const float *exit_bias, *exit_norm, *exit_norm_bias; /* exit_norm NULL: none */
    ftki_matrix select_token, select_context; /* [select_width, hidden] */
    const float *select_bias, *select_out;    /* [select_width] */
} ftki_encoder_layer;

typedef struct ftki_encoder {
    ftki_encoder_config config;
    const ftki_kernels *kernels;
    ftki_arena arena;
    ftki_encoder_layer *layers;   /* [n_layers], owned */
    ftki_matrix tokens;           /* bert: [n_vocab, hidden] */
    const float *token_type;      /* bert: [hidden], of segment 0 */
    const float *embed_norm, *embed_norm_bias;
    ftki_matrix input;            /* vit, kwt: [hidden, input_cols]; whisper: its first convolution, [hidden, 3 * features] */
    const float *input_bias;
    ftki_matrix conv;             /* whisper: the second convolution, [hidden, 3 * hidden] */
    const float *conv_bias;
    const float *prefix;          /* [n_prefix][hidden], positions added */
    const float *positions;       /* [rows][hidden], of what follows the prefix */
    int32_t n_positions;
    const float *output_norm, *output_norm_bias; /* NULL: none */
    bool has_pooler, has_head, has_head_dist;
    ftki_matrix pooler, head, head_dist; /* [hidden, hidden], [n_labels, hidden] x 2 */
    const float *pooler_bias, *head_bias, *head_dist_bias;
    bool float_weights;           /* the layers' matrices are floats */
    int32_t select_width;
    char *label_text;             /* owned: NUL-terminated names one after the other */
    const char **labels;          /* [n_labels], owned; NULL: no names */
} ftki_encoder;

/* True when the file's architecture is one of ours. */
bool ftki_encoder_is(const ftki_gguf *g);
/* Validates every key and tensor, refuses unknown tensors, packs. `g` may close after it. */
ftk_status ftki_encoder_open_model(ftki_encoder *out, const ftki_gguf *g, const ftki_kernels *kernels,
                                   int32_t n_threads, ftk_progress_fn progress, void *progress_ctx, ftk_error *e);
void ftki_encoder_close_model(ftki_encoder *m); /* zeroed or closed: fine */

/* -------------------------------------------------------------------- a run */

/* One input under way. Its tokens are rows [first, first + n) of the packed states. */
typedef struct ftki_encoder_item {
    const ftk_input *input;
    int32_t tokens_in;
    int32_t first, n;
    int32_t page;           /* first page of each head's list */
    size_t columns;         /* where its rows of `columns` begin, a row of tokens_in for each task */
    int32_t layers;         /* computed */
    bool done, exited;
    bool merged;            /* some size is not 1: bias holds their logarithms */
    float confidence;
    int32_t agreed, agreed_label; /* heads in a row of one opinion */
    uint64_t madds_dense, madds;
    double reduce_seconds;
} ftki_encoder_item;

/* Per-layer plan of what is left out, made from ftk_encoder_reduction. */
typedef struct ftki_encoder_plan {
    bool any;                  /* false: dense */
    float keep[FTKI_ENCODER_MAX_LAYERS], fine_keep[FTKI_ENCODER_MAX_LAYERS]; /* 1: none */
    int32_t merge[FTKI_ENCODER_MAX_LAYERS];
    ftk_encoder_reduction r;   /* the rest, defaults filled in; its pointers are not used */
} ftki_encoder_plan;

/* What one worker needs; private. B = FTKI_ENCODER_BLOCK. */
typedef struct ftki_encoder_work {
    int32_t index;
    float *rows;    /* [B][widest input of a product] */
    float *ffn;     /* [B][ffn] */
    ftki_act_block *blocks;
    void *prepared;
    ftki_attn_state segment, total;
    int32_t *end;   /* [B] */
    /* Sparse attention: the pages a block reads, [max_pages] each. */
    const unsigned char **pages;
    const float **bias;
    int32_t *page_order, *page_numbers;
    float *page_score;
} ftki_encoder_work;

/* Checks the policy against the model and fills the plan; NULL: dense. */
ftk_status ftki_encoder_plan_make(ftki_encoder_plan *out, const ftki_encoder *m, const ftk_encoder_reduction *r, ftk_error *e);

typedef struct ftki_encoder_run {
    const ftki_encoder *model;
    ftki_team *team;
    ftki_arena arena;
    int32_t max_tokens, max_items, max_pages;
    ftki_kv_format format;
    ftki_encoder_work *works;   /* [n_workers], in the arena */
    float *x;                   /* [max_tokens][hidden] states */
    float *qkv;                 /* [max_tokens][3 * hidden] */
    size_t kv_half;             /* list entries of one of the two halves */
    unsigned char *pages;       /* [2][n_heads][max_pages][page_bytes] */
    size_t page_bytes;
    const unsigned char **page_list; /* [2][n_heads][max_pages] */
    float *conv;                /* whisper: [max_items][frames + 2][hidden] */
    float *ones;                /* [ffn], for the tanh form */
    float *logits;              /* [max_items][n_labels] */
    float *pooled;              /* [max_items][hidden] */
    /* Reduction */
    float *size;                /* [max_tokens] tokens each row stands for */
    float *bias;                /* [max_pages][32] log of it; */
    const float **bias_list;    /* [max_pages] */
    float *columns;             /* [tasks of an item][its tokens] attention received, item after item */
    float *scores;              /* [max_tokens] of this layer's rows */
    float *next_scores;         /* [max_tokens] of the next layer's candidates */
    float *best;                /* [max_tokens] */
    float *metric;              /* [2 * (max_tokens + 32 * max_items)][head_dim] mean keys, then panels of the odd ones */
    float *similar;             /* [n_workers][64][max_tokens / 2 padded] */
    size_t similar_stride;      /* floats of one worker */
    int32_t *order, *target;    /* [max_tokens] */
    int32_t *place;             /* [max_tokens] scratch of moving */
    int32_t *source;            /* [max_tokens] the row of qkv that a row came from in this layer */
    int32_t *where;             /* [max_tokens] by original token: its row now, -1 dropped; relative to the item */
    int32_t *owners;            /* [n_layers][max_tokens] by original token, relative to its item */
    int32_t *attention_tokens, *ffn_tokens; /* [max_items][n_layers] */

    /* of the call */
    const ftki_encoder_plan *plan;
    ftki_encoder_item *items;   /* [max_items] */
    int32_t n_items;
    bool want_logits;
    atomic_bool *cancel;
    bool stop;                  /* written by worker 0 before a barrier */
    ftk_tap_fn tap;
    void *tap_ctx;
} ftki_encoder_run;

/* Plans, and with commit takes, the memory of a run. */
ftk_status ftki_encoder_run_open(ftki_encoder_run *out, const ftki_encoder *m, ftki_team *team, ftki_kv_format format,
                                 int32_t max_tokens, int32_t max_items, uint64_t max_bytes, ftk_error *e);
void ftki_encoder_run_close(ftki_encoder_run *r);

/* Tokens input `in` becomes, checked against the model: FTK_INVALID_ARGUMENT names what is wrong. */
ftk_status ftki_encoder_count(const ftki_encoder *m, const ftk_input *in, int32_t *n, ftk_error *e);
/* Runs items [n_items], whose input and n are set; first and page are laid out here. */
ftk_status ftki_encoder_run_all(ftki_encoder_run *r, ftk_error *e);

/* -------------------------------------------------- between the files of the run */

typedef enum ftki_rows_do { FTKI_ROWS_ATTEND = 1, FTKI_ROWS_FFN = 2, FTKI_ROWS_QKV = 4 } ftki_rows_do;

/* y [rows][y_stride] (+)= x [rows][stride] W^T, rows at most B. */
void ftki_encoder_product(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_matrix *m, const float *x,
                          size_t stride, int32_t rows, float *y, size_t y_stride, bool add);
/* Rows of a task for an item of n tokens: depends on n alone, so that sums over tasks do too. */
int32_t ftki_encoder_block_rows(int32_t n);
/* First states of rows [begin, end) of an item; whisper's first convolution is a stage before it. */
void ftki_encoder_embed_rows(ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t begin,
                             int32_t end);
void ftki_encoder_conv_rows(ftki_encoder_run *r, ftki_encoder_work *w, int32_t item, int32_t begin, int32_t end);
/* Whether something happens between a layer's attention and its feed-forward, and after the latter. */
bool ftki_encoder_reduces_middle(const ftki_encoder_run *r, int32_t layer);
bool ftki_encoder_reduces_end(const ftki_encoder_run *r, int32_t layer);
/* Whether the attention of rows [begin, ...) is to leave column sums: 0 no, 1 the class token's, 2 all rows'. */
int32_t ftki_encoder_wants_columns(const ftki_encoder_run *r, int32_t layer);
/* What happens there, for one item; the states of its rows are compacted in place. */
void ftki_encoder_reduce_middle(ftki_encoder_run *r, ftki_encoder_work *w, int32_t item, int32_t layer);
void ftki_encoder_reduce_end(ftki_encoder_run *r, ftki_encoder_work *w, int32_t item, int32_t layer);
/* Logits of a head after pooling: y [n_labels]. */
void ftki_encoder_head(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item,
                       const float *norm, const float *norm_bias, float *pooled);
/* Pools item i into pooled and, where the file has a head, logits. */
void ftki_encoder_finish(ftki_encoder_run *r, ftki_encoder_work *w, int32_t item);

#endif

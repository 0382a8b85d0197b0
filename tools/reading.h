// SPDX-License-Identifier: Apache-2.0
/* One document read under one reduction: a context is prefilled, the tokens that follow are scored,
 * some are decoded for their time. Each reading has a session of its own, so that memory is what this
 * setting takes. What `eval --reduce` and `tune` are made of. */
#ifndef FREETOKEN_TOOLS_READING_H
#define FREETOKEN_TOOLS_READING_H

#include "logits.h"
#include "text.h"

typedef struct reading_plan {
    const ftk_model *model;
    ftk_session_opts session; /* its context is set by the reading */
    size_t context, score;    /* tokens; score >= 1 */
    size_t decode;            /* tokens decoded after the scored ones, 0: none */
} reading_plan;

typedef struct reading {
    double ttft, reduce_seconds, decode; /* seconds; decode of one token */
    uint64_t kv_bytes, peak_rss;         /* after the context was read */
    uint64_t multiply_adds, multiply_adds_dense;
    int32_t tokens_in, tokens_out;       /* hidden states: of the context, and of the last layer */
    double kv_keep;                      /* share of the entries that the cache holds */
    const char *dense_because;           /* NULL: the context was reduced */
} reading;

/* Reads ids [context + score] under r (NULL: dense) and writes logits [score][n_vocab]: row i is what
 * the model thought of ids[context + i]. layers [n_layers]: if not NULL, the share of entries each layer
 * holds is added to it. When r reads selected pages in decode, scoring decodes one token at a time, as a
 * user would. Reports and returns an exit status. */
int reading_take(reading *out, const reading_plan *plan, const ftk_reduction *r, const ftk_token *ids, float *logits,
                 double *layers);

/* How rows of one reading agree with those of the dense one, over documents. */
typedef struct agreement {
    tally nll, nll_dense, difference, kl;
    double largest_kl;
    size_t same_top;
} agreement;

/* Adds a document's rows [n][n_vocab]; targets [n]. dense_facts [n] are row_of of the dense rows. */
void agreement_add(agreement *a, const float *logits, const float *dense, const row_facts *dense_facts,
                   const ftk_token *targets, size_t n, size_t n_vocab);
double agreement_top1(const agreement *a);      /* share of tokens */
double agreement_loss(const agreement *a);      /* perplexity over the dense one, minus 1 */
/* The 95 % interval of that. */
void agreement_interval(const agreement *a, double *low, double *high);

double median_of(double *values, size_t n);            /* sorts them; 0 of none */
double percentile_of(double *values, size_t n, double share); /* nearest rank; sorts them */

#endif

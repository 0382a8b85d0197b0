// SPDX-License-Identifier: Apache-2.0
/* Finding a model's own reduction: how much each layer and KV head can lose, which of them read only what
 * is near, and after which layer the prompt is no longer needed. tune.c measures and remembers,
 * tune_search.c decides.
 *
 * Everything is measured as KL divergence from the dense model on a few windows of text, whose dense logits are
 * computed once; the result is verified on other windows. What was measured is kept in a state file, a
 * line each, so that an interrupted run goes on where it stopped. */
#ifndef FREETOKEN_TOOLS_TUNE_H
#define FREETOKEN_TOOLS_TUNE_H

#include "perplexity.h"
#include "reading.h"

typedef enum tune_goal { TUNE_MEMORY, TUNE_TTFT, TUNE_DECODE } tune_goal;

/* "ppl 1%", "kl 0.02" or "top1 97%". */
typedef enum tune_measure { BOUND_PPL, BOUND_KL, BOUND_TOP1 } tune_measure;
typedef struct tune_bound {
    tune_measure what;
    double value; /* loss of perplexity, KL in nats, or share of equal top tokens */
} tune_bound;
/* NULL or why the text is no bound, static. */
const char *tune_read_bound(const char *text, tune_bound *out);

typedef struct tune_figures {
    double kl, loss, low, high, top1; /* against dense; loss of perplexity with its 95 % interval */
    double kv_keep, work;             /* shares of dense: entries, multiply-adds of prefill */
} tune_figures;
bool tune_meets(const tune_bound *b, const tune_figures *f);
/* How far a figure uses the bound up: 1 is all of it. */
double tune_use(const tune_bound *b, const tune_figures *f);

typedef struct tune_trial {
    uint64_t key;
    tune_figures figures;
} tune_trial;

typedef struct tuner {
    const ftk_model *model;
    ftk_model_info info;
    reading_plan plan;
    token_list docs;      /* [n_tune + n_check][context + score] */
    size_t n_tune, n_check;
    float *truth;         /* [n_tune][score][n_vocab] dense logits */
    row_facts *facts;     /* [n_tune][score] */
    float *logits, *other;/* [score][n_vocab] each */
    tune_trial *trials;   /* [n_trials] remembered */
    size_t n_trials;
    const char *state;    /* file of the same; NULL: none */
    uint64_t identity;    /* of model, text and plan: trials of another one are not taken */
    size_t measured, remembered;
    double seconds;       /* spent measuring */
} tuner;

/* Cuts the text, reads the tuning windows dense, takes over what the state file remembers. */
int tuner_open(tuner *t, const ftk_model *m, const ftk_session_opts *session, const char *word, const char *text_path,
               const perplexity_plan *plan, size_t n_tune, size_t n_check, const char *state);
void tuner_close(tuner *t);
/* The figures of r on the tuning windows, or with `check` on the others. */
int tuner_measure(tuner *t, const ftk_reduction *r, bool check, tune_figures *out);
/* Median seconds of `rounds` prefills of n tokens, dense and under r in turn, and the KV bytes of each. */
int tuner_time(const tuner *t, const ftk_reduction *r, size_t n, int rounds, double seconds[2], uint64_t bytes[2]);

/* ------------------------------------------------------------------ search */

typedef struct tune_result {
    ftk_reduction r;           /* lists point to the arrays below */
    float *budgets;            /* [n_layers][n_kv_heads] */
    int32_t *windows;          /* [n_layers][n_kv_heads] */
    int32_t let_go;            /* last layer that reads the prompt, 0: the model reads it to the end */
    size_t n_near;             /* heads with a window */
    double *layer_kl;          /* [n_layers] of cutting the layer's cache to a tenth */
    tune_figures tuned, checked;
    bool met;                  /* the bound, on the text not tuned on */
} tune_result;
/* Finds the most reduction that meets the bound. Progress on stderr. Reports and returns an exit status. */
int tune_search(tuner *t, tune_goal goal, const tune_bound *bound, tune_result *out);
void tune_result_close(tune_result *r);

#endif

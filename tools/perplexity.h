// SPDX-License-Identifier: Apache-2.0
/* Perplexity of the tokens that follow a long context, and how far two settings agree on them.
 *
 * The text is cut into documents of context + score tokens, one every `stride` tokens. In each,
 * the model reads `context` tokens (the begin token among them, if the model has one) and is
 * asked for the probability of the `score` that follow. */
#ifndef FREETOKEN_TOOLS_PERPLEXITY_H
#define FREETOKEN_TOOLS_PERPLEXITY_H

#include "logits.h"
#include "text.h"

typedef struct perplexity_plan {
    int64_t context, score; /* tokens */
    int64_t stride;         /* tokens; 0: context + score, no overlap */
    int64_t max_docs;       /* 0: as many as the text has */
} perplexity_plan;

typedef struct perplexity_side {
    const ftk_model *model;
    ftk_session_opts session; /* its context is set by the run */
} perplexity_side;

typedef struct perplexity {
    mean_error nll;  /* negative log-likelihood of a token, nats */
    size_t n, n_docs;
    double seconds;
} perplexity;

typedef struct comparison {
    perplexity other;
    mean_error difference; /* nll minus the other's, token by token */
    mean_error kl;         /* KL(other || this), nats */
    double largest_kl;
    double same_top;       /* share of tokens where both find the same one likeliest */
} comparison;

double perplexity_value(const perplexity *p);
/* Half the 95 % interval of the perplexity, as a factor: value/factor to value*factor. */
double perplexity_factor(const perplexity *p);
/* Measures `side` on a text file, and against `other` (NULL: alone; then compared is not filled).
 * Reports and returns an exit status, STATUS_GO_ON when done. */
int perplexity_run(const perplexity_plan *plan, const char *path, const perplexity_side *side,
                   const perplexity_side *other, perplexity *out, comparison *compared);

/* The documents' tokens, context + score each, one after another in `docs`, and their number.
 * Reports what is wrong and returns an exit status. */
int perplexity_cut(const perplexity_plan *plan, const ftk_model *m, const char *path, token_list *docs, size_t *n_docs);

#endif

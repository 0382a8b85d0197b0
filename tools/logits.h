// SPDX-License-Identifier: Apache-2.0
/* What rows of logits say: likeliest token, log of the sum, divergence of two rows; and sums of such
 * quantities over tokens and documents with the error of their mean. Sums are in double. */
#ifndef FREETOKEN_TOOLS_LOGITS_H
#define FREETOKEN_TOOLS_LOGITS_H

#include <stddef.h>

typedef struct row_facts {
    double log_sum; /* log of the sum of exp(logit) */
    size_t top;     /* likeliest token, the first of several */
} row_facts;

row_facts row_of(const float *logits, size_t n);
/* KL(p || q) in nats: the sum over tokens of p (log p - log q); exactly 0 for equal rows. */
double kl_of(const float *p, row_facts pf, const float *q, row_facts qf, size_t n);

/* Sums of one quantity over tokens and over documents' means. */
typedef struct tally {
    double sum, squares;          /* tokens */
    double doc_sum, doc_squares;  /* documents' means */
    double doc_start;             /* sum when the document began */
    size_t n, n_docs, doc_first;
} tally;

/* Mean of a quantity with the standard error of that mean: over documents when there are at
 * least five (tokens of one document are not independent), over tokens otherwise. */
typedef struct mean_error {
    double mean, error;
} mean_error;

void tally_add(tally *t, double value);
void tally_close_document(tally *t);
mean_error tally_mean(const tally *t);

#endif

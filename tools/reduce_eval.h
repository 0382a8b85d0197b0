// SPDX-License-Identifier: Apache-2.0
/* `eval --reduce` and `eval --sweep`: what reduced contexts cost in quality and save in time and memory,
 * one row per setting, each document read dense and under every setting in turn. */
#ifndef FREETOKEN_TOOLS_REDUCE_EVAL_H
#define FREETOKEN_TOOLS_REDUCE_EVAL_H

#include "perplexity.h"
#include "reduce_flags.h"

typedef struct reduce_eval {
    const char *word, *path;        /* model and text, as the user named them */
    perplexity_plan plan;
    int64_t decode;                 /* tokens decoded for their time, 0: none */
    perplexity_side side;
    const reduce_setting *settings; /* [n] */
    size_t n;
    bool sweep;                     /* several were asked for: a table even if one came of it */
    bool json;                      /* instead of the table, on stdout */
    const char *csv, *svg;          /* files; NULL: none */
} reduce_eval;

/* Measures and prints. Reports and returns an exit status, STATUS_GO_ON when done. */
int reduce_eval_run(const reduce_eval *e);

#endif

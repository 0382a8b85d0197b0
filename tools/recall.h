// SPDX-License-Identifier: Apache-2.0
/* `eval --recall`: facts hidden in a long text, asked for at its end, dense and reduced side by side.
 *
 * Tasks: `passkey` (one number), `pairs` (eight names with codes, one asked for), `needles` (three of them in one
 * question), and texts that are all facts: `arithmetic` and `code`. The fact lies at 0, 25, 50, 75 or 100 % of
 * the text; the filler is the user's text. The FIRST question is read together with the text, as in `run -f`; the
 * SECOND, about something else, comes after the first was answered. An answer is right when every token of it
 * is the likeliest one. */
#ifndef FREETOKEN_TOOLS_RECALL_H
#define FREETOKEN_TOOLS_RECALL_H

#include "args.h"
#include "perplexity.h"
#include "reduce_flags.h"

typedef struct recall_plan {
    const char *word, *path;     /* model and filler text, as the user named them */
    const ftk_model *model;
    ftk_session_opts session;
    const count_list *lengths;   /* tokens of the text with its first question */
    int64_t trials;              /* texts for each task, length and depth */
    const reduce_setting *settings; /* [n] */
    size_t n;
    bool json;
} recall_plan;

/* Measures and prints. Reports and returns an exit status, STATUS_GO_ON when done. */
int recall_run(const recall_plan *p);

#endif

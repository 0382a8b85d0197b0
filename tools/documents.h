// SPDX-License-Identifier: Apache-2.0
/* `eval --documents`: questions about long documents, answered dense and reduced.
 *
 * The file holds a JSON object a line: `input` the document, `instructions` a list of questions, `outputs` their
 * answers. A question that offers (A), (B), ... is a choice: the option with the highest mean log-probability of its
 * tokens is taken. Of other questions the reference answer's likelihood counts. A document is read once and all
 * its questions come after it, as in a conversation about it. */
#ifndef FREETOKEN_TOOLS_DOCUMENTS_H
#define FREETOKEN_TOOLS_DOCUMENTS_H

#include "reading.h"
#include "reduce_flags.h"

typedef struct documents_plan {
    const char *word, *path;
    const ftk_model *model;
    ftk_session_opts session;
    int64_t max_docs;   /* 0: all */
    int64_t max_tokens; /* documents longer than this are passed over; 0: the model's training context */
    int64_t answer;     /* tokens of answers generated and shown side by side; 0: none */
    const reduce_setting *settings; /* [n] */
    size_t n;
    bool json;
} documents_plan;

/* Measures and prints. Reports and returns an exit status, STATUS_GO_ON when done. */
int documents_run(const documents_plan *p);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The page of --explain: what became of each token, layer by layer, over the input it came from. One HTML file
 * that needs nothing else. */
#ifndef FREETOKEN_TOOLS_EXPLAIN_H
#define FREETOKEN_TOOLS_EXPLAIN_H

#include <stdio.h>

#include "encode.h"

void explain_begin(FILE *out);
/* One card: the result `done` of the encoder's last call and the scores top [k]. */
void explain_add(FILE *out, const encode_job *job, const encode_item *item, const ftk_score_of *top, size_t k,
                 const ftk_encoded *done);
void explain_end(FILE *out);

#endif

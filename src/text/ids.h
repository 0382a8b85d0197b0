// SPDX-License-Identifier: Apache-2.0
/* What both tokenizers share beside merging: the list they append to and what they remember. */
#ifndef FTKI_TEXT_IDS_H
#define FTKI_TEXT_IDS_H

#include <stdatomic.h>

#include "base/status.h"

/* A growing list of ids. Zero it; free with ftki_free(ids). */
typedef struct ftki_ids {
    ftk_token *ids;
    size_t n, room;
} ftki_ids;
ftk_status ftki_ids_add(ftki_ids *list, ftk_token id, ftk_error *e);

/* For every token, whether its own bytes merge to it: what most words of a text are. Found out
 * when first asked and remembered; threads may find out the same thing at the same time. */
typedef _Atomic unsigned char ftki_memo; /* 0: not known yet, 1: they do, 2: they do not */

#endif

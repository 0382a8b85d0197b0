// SPDX-License-Identifier: Apache-2.0
/* Finding special tokens written in text: control tokens where the caller allows them, and
 * user-defined ones everywhere. Leftmost first, the longest of those that start there, as
 * Hugging Face's tokenizers match. Owns a sorted index over the vocabulary. */
#ifndef FTKI_TEXT_SPECIALS_H
#define FTKI_TEXT_SPECIALS_H

#include "text/tokenizer.h"
#include "text/vocab.h"

typedef struct ftki_specials {
    ftk_token *sorted;         /* ids by their bytes, a prefix before what it begins */
    size_t count;
    uint32_t first[257];       /* sorted[first[b]..first[b + 1]) start with byte b */
    unsigned char starts[256]; /* bit 0: a user-defined token starts so, bit 1: a control token */
} ftki_specials;

ftk_status ftki_specials_open(ftki_specials *out, const ftki_vocab *v, ftk_error *e);
void ftki_specials_close(ftki_specials *s);

/* Where the search stands in one text: the plain runs are ascending and do not overlap. */
typedef struct ftki_special_scan {
    const ftki_specials *specials;
    const ftki_vocab *vocab;
    const char *text;
    size_t len;
    bool control;               /* look for control tokens too */
    const ftki_plain *plain;    /* [n_plain] where control tokens are just text */
    size_t n_plain, plain_at;
} ftki_special_scan;

/* The next special token at or after `from`: its id and place, -1 when there is none. */
ftk_token ftki_specials_next(ftki_special_scan *scan, size_t from, size_t *start, size_t *len);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Pre-tokenizers of byte-level BPE: cutting text into words before merging. Owns the compiled
 * pattern, which threads share, and the scratch of one walk over a text. */
#ifndef FTKI_TEXT_SPLIT_H
#define FTKI_TEXT_SPLIT_H

#include "format/gguf.h"

typedef struct ftki_splitter ftki_splitter;

/* What a file's tokenizer.ggml.pre asks for, beside the pattern. */
typedef struct ftki_split_rules {
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    bool add_bos;       /* default of add_bos_token */
} ftki_split_rules;

/* `name` is the value of tokenizer.ggml.pre. Unknown ones are FTK_UNSUPPORTED with the list of
 * those that are known. */
ftk_status ftki_splitter_open(ftki_splitter **out, ftki_text name, ftki_split_rules *rules,
                              ftk_error *e);
void ftki_splitter_close(ftki_splitter *s);

/* One walk. Zero it, begin as often as wanted, end once. */
typedef struct ftki_split {
    const ftki_splitter *splitter;
    const char *text;
    size_t len;
    const char *classes; /* what the pattern sees: one byte a character */
    size_t n_classes;
    size_t at, class_at; /* where the next word starts, in bytes and in characters */
    bool ascii;
    char *buffer;
    size_t buffer_size;
    void *match; /* pcre2_match_data */
} ftki_split;

/* text [len] is valid UTF-8 and stays in place while words are taken. */
ftk_status ftki_split_begin(ftki_split *s, const ftki_splitter *splitter, const char *text,
                            size_t len, ftk_error *e);
/* The next word, the words together being the text; *len 0 at the end. */
ftk_status ftki_split_next(ftki_split *s, const char **word, size_t *len, ftk_error *e);
void ftki_split_end(ftki_split *s);

#endif

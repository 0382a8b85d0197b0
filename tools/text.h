// SPDX-License-Identifier: Apache-2.0
/* Texts: reading them whole, checking and showing them. Buffers grow on the heap and belong to
 * the caller. */
#ifndef FREETOKEN_TOOLS_TEXT_H
#define FREETOKEN_TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "freetoken/freetoken.h"

typedef struct text_buffer {
    char *data; /* NUL-terminated, NULL while empty */
    size_t len;
} text_buffer;

void text_free(text_buffer *t);
bool text_add(text_buffer *t, const char *data, size_t len); /* false: no memory */
/* The whole of a file, "-" is standard input; a byte-order mark in front is dropped. Reports
 * what is wrong and returns an exit status, else STATUS_GO_ON. */
int text_read(text_buffer *t, const char *path);
/* Refuses NUL and invalid UTF-8 with the byte's position, naming `what` ("--prompt", a file). */
int text_check(const char *what, const char *data, size_t len);

/* The length of the valid character at data [len], 0 when it is none. */
size_t text_character(const char *data, size_t len);
/* Position of the first invalid byte, `len` when there is none. */
size_t text_invalid(const char *data, size_t len);
/* Appends data with invalid bytes replaced by U+FFFD. */
bool text_add_valid(text_buffer *t, const char *data, size_t len);
/* Writes text that a model made: on a terminal, control characters other than newline and tab
 * become U+FFFD, so that no answer can move the cursor or retitle the window. */
void text_show(FILE *stream, const char *data, size_t len);
/* Writes data in double quotes, \n \t \" \\ and other controls and invalid bytes escaped. */
void text_quote(FILE *stream, const char *data, size_t len);

typedef struct token_list {
    ftk_token *ids; /* [n] */
    size_t n;
} token_list;
void tokens_free(token_list *t);
/* Replaces *t by the ids of a text, or appends them. Reports and returns an exit status. */
int tokens_of(token_list *t, const ftk_model *m, const char *what, const char *data, size_t len, int flags);
/* Whether the model's file asks for a begin token in front of a text. */
bool tokens_want_bos(const ftk_model *m);
bool tokens_add(token_list *t, const ftk_token *ids, size_t n);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the user sees beside the result: messages, progress, styles, sizes and times in words.
 * All of it goes to stderr. Styles are off when the stream is no terminal, TERM is "dumb" or
 * NO_COLOR is set. */
#ifndef FREETOKEN_TOOLS_UI_H
#define FREETOKEN_TOOLS_UI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "freetoken/freetoken.h"

typedef enum ui_look { UI_PLAIN, UI_BOLD, UI_DIM, UI_RED, UI_YELLOW, UI_GREEN, UI_CYAN } ui_look;

/* The escape sequence for a look on `stream`, "" where styles are off. */
const char *ui_style(FILE *stream, ui_look look);
void ui_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ui_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line of figures or a remark, dim. */
void ui_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "SUBJECT: the library's message" and the exit status that goes with it. subject NULL: none. */
int ui_fail(const char *subject, const ftk_error *e);

/* Every error's text also goes to `fn`, for output that programs read. */
void ui_on_error(void (*fn)(const char *message));
/* No notes and no progress from here on; errors and warnings still come. */
void ui_quiet(void);

/* Sizes and times in words, into the caller's buffer, which is returned. */
enum { UI_WORD = 32 };
char *ui_bytes(char word[UI_WORD], double bytes);     /* "21.3 MiB" */
char *ui_seconds(char word[UI_WORD], double seconds); /* "830 ms", "3.1 s", "2 min 05 s" */
char *ui_number(char word[UI_WORD], double value);    /* three significant digits: "61.2", "1321" */

double ui_now(void); /* seconds of a clock that never jumps */

/* One long piece of work. Drawn over itself on a terminal, at most one line in ten seconds
 * otherwise, and only once the work has taken over half a second. */
typedef struct ui_progress {
    const char *phase; /* what is being done; a new one starts afresh */
    const char *unit;  /* "tokens" (with a rate), "bytes" (likewise), NULL: percentage only */
    double started, drawn;
    uint64_t first;    /* done when it started: no part of the rate */
    bool on_screen;
} ui_progress;
void ui_progress_draw(ui_progress *p, const char *phase, uint64_t done, uint64_t total);
/* Takes the line off the terminal. */
void ui_progress_clear(ui_progress *p);
/* An ftk_progress_fn whose ctx is a ui_progress; cancels after Ctrl-C. */
bool ui_on_progress(void *ctx, const char *phase, uint64_t done, uint64_t total);

#endif

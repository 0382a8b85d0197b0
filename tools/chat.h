// SPDX-License-Identifier: Apache-2.0
/* The interactive chat of `freetoken run`. */
#ifndef FREETOKEN_TOOLS_CHAT_H
#define FREETOKEN_TOOLS_CHAT_H

#include "talk.h"

/* Reads turns from standard input, with line editing and history on a terminal, and answers them
 * until /quit or the end of the input. `first`: a turn to answer before, NULL: none.
 * session_file: the default of /save and /load, may be NULL. Returns an exit status. */
int chat(talk *t, const char *first, const char *session_file);

#endif

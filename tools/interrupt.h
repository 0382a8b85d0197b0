// SPDX-License-Identifier: Apache-2.0
/* Ctrl-C. The first one ends the work at hand, a second one before the first was dealt with
 * ends the program with status 130. */
#ifndef FREETOKEN_TOOLS_INTERRUPT_H
#define FREETOKEN_TOOLS_INTERRUPT_H

#include "freetoken/freetoken.h"

void interrupt_install(void);
/* The session whose running call Ctrl-C cancels; NULL: none. Set it around calls only. */
void interrupt_watch(ftk_session *s);
int interrupt_count(void); /* since the last interrupt_clear */
void interrupt_clear(void);
/* A descriptor that becomes readable with Ctrl-C and is emptied by interrupt_clear, for waiting
 * on it beside others: a signal may be taken by any thread, or come just before a read. */
int interrupt_descriptor(void);

#endif

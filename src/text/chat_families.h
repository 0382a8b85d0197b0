// SPDX-License-Identifier: Apache-2.0
/* The table of chat families: how each writes a conversation. Shared by chat.c, which checks the
 * messages and picks one, and chat_families.c, which has the writing. */
#ifndef FTKI_TEXT_CHAT_FAMILIES_H
#define FTKI_TEXT_CHAT_FAMILIES_H

#include "text/chat.h"

/* A conversation being written. The first failed write sticks in `status`. */
typedef struct ftki_chat {
    const char *family;
    const char *bos, *eos;
    const ftk_message *messages; /* [n], checked: no NULL, valid UTF-8 */
    size_t n;
    bool add_generation_prompt;
    ftki_chat_text out;
    ftk_status status;
    ftk_error *e;
} ftki_chat;

void ftki_chat_put(ftki_chat *c, const char *template_text);
void ftki_chat_put_plain(ftki_chat *c, const char *text, size_t len); /* from a message */

typedef struct ftki_chat_family_entry {
    const char *name;
    void (*write)(ftki_chat *c);
} ftki_chat_family_entry;

extern const ftki_chat_family_entry ftki_chat_table[];
extern const size_t ftki_chat_table_size;

#endif

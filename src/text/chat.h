// SPDX-License-Identifier: Apache-2.0
/* Chat templates: the common families, recognised from the template text a model carries and
 * rendered exactly as it would be. Unknown ones are refused, never guessed. */
#ifndef FTKI_TEXT_CHAT_H
#define FTKI_TEXT_CHAT_H

#include "text/tokenizer.h"

/* Static name of the family the template text [len] belongs to, NULL: unknown. */
const char *ftki_chat_recognise(const char *template_text, size_t len);
/* The static name equal to `name`, NULL: no such family. */
const char *ftki_chat_family(const char *name);
/* "chatml, smollm2, qwen2, ...": static, for messages. */
const char *ftki_chat_families(void);

/* A rendered conversation: text [len], not NUL-terminated, and in plain [n_plain] the runs that
 * came from the messages, roles included. Everything else is the template's own. Zero it; free it
 * with ftki_chat_free. */
typedef struct ftki_chat_text {
    char *text;
    size_t len, room;
    ftki_plain *plain;
    size_t n_plain, plain_room;
} ftki_chat_text;

/* Renders messages [n], n > 0, as `family` (one of the names above) would. bos and eos: texts of
 * those tokens for templates that print them, or "". Where the template raises an error, it is
 * FTK_INVALID_ARGUMENT with the template's own words; so is a message the template would leave
 * out. *out is untouched on failure. */
ftk_status ftki_chat_render(ftki_chat_text *out, const char *family, const char *bos,
                            const char *eos, const ftk_message *messages, size_t n,
                            bool add_generation_prompt, ftk_error *e);
void ftki_chat_free(ftki_chat_text *text);

/* Removes one trailing incomplete UTF-8 sequence: the length of the longest prefix of text [len]
 * that ends at a character border (an invalid byte counts as a border). */
size_t ftki_utf8_complete(const char *text, size_t len);

#endif

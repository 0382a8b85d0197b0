// SPDX-License-Identifier: Apache-2.0
/* Chat templates: the common families, recognised from the template text a model carries and
 * rendered exactly as it would be. Unknown ones are refused, never guessed. */
#ifndef FTKI_TEXT_CHAT_H
#define FTKI_TEXT_CHAT_H

#include "format/gguf.h"

/* Static name of the family the template text [len] belongs to, NULL: unknown. */
const char *ftki_chat_recognise(const char *template_text, size_t len);
/* The static name equal to `name`, NULL: no such family. */
const char *ftki_chat_family(const char *name);
/* "chatml, gemma, llama2, llama3, ...": static, for messages. */
const char *ftki_chat_families(void);
/* Same contract as ftk_chat_render; family as returned by the functions above. bos: text of the
 * BOS token for templates that print it, or "". */
ftk_status ftki_chat_render(const char *family, const char *bos, const ftk_message *messages,
                            size_t n, bool add_generation_prompt, char *text, size_t cap,
                            size_t *len, ftk_error *e);
/* Removes one trailing incomplete UTF-8 sequence: the length of the longest prefix of text [len]
 * that ends at a character border (an invalid byte counts as a border). */
size_t ftki_utf8_complete(const char *text, size_t len);

#endif

// SPDX-License-Identifier: Apache-2.0
/* UTF-8: checking, reading and writing characters, and what Python calls white space (chat
 * templates trim by it). Owns nothing. */
#ifndef FTKI_TEXT_UTF8_H
#define FTKI_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offset of the first byte that does not belong to valid UTF-8 (overlong forms, surrogates and
 * values past U+10FFFF are invalid; NUL is a character), or len when all is well. */
size_t ftki_utf8_invalid(const char *text, size_t len);

/* Bytes of the character that starts with `lead`; text known to be valid. */
static inline size_t ftki_utf8_size(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The character at text[0], known to be valid; its length goes to *size. */
uint32_t ftki_utf8_read(const char *text, size_t *size);

/* Writes a character as 1..4 bytes and returns how many. */
size_t ftki_utf8_write(uint32_t character, char out[4]);

/* What Python's str.isspace() says, which decides what `trim` removes. */
bool ftki_utf8_is_space(uint32_t character);

/* Narrows text [*len], valid UTF-8, to what Python's str.strip() leaves. */
const char *ftki_utf8_trim(const char *text, size_t *len);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Making and forwarding errors. Owns nothing; ftk_error objects belong to the caller. */
#ifndef FTKI_BASE_STATUS_H
#define FTKI_BASE_STATUS_H

#include "freetoken/freetoken.h"

/* Forwards a failure. For functions without resources; others jump to one fail: label. */
#define FTKI_TRY(expr)                            \
    do {                                          \
        ftk_status ftki_try_ = (expr);            \
        if (ftki_try_ != FTK_OK) return ftki_try_;\
    } while (0)

/* ftki_fail(e, code, format, ...), ftki_fail_at(e, code, offset, ...) and
 * ftki_fail_layer(e, code, layer, ...) fill *e (may be NULL) and give back `code`. offset -1 and
 * layer -1: none. The message is cut at a character border when too long; what is not printable
 * UTF-8 in it becomes '?'. Macros, so that the compiler sees that a failing path returns a failure. */
#define FTKI_NOTE_(e, code, offset, layer, ...)                          \
    __extension__({                                                      \
        const ftk_status ftki_code_ = (code);                            \
        ftki_note((e), ftki_code_, (offset), (layer), __VA_ARGS__);      \
        ftki_code_;                                                      \
    })
#define ftki_fail(e, code, ...) FTKI_NOTE_(e, code, -1, -1, __VA_ARGS__)
#define ftki_fail_at(e, code, offset, ...) FTKI_NOTE_(e, code, offset, -1, __VA_ARGS__)
#define ftki_fail_layer(e, code, layer, ...) FTKI_NOTE_(e, code, -1, layer, __VA_ARGS__)
void ftki_note(ftk_error *e, ftk_status code, int64_t offset, int32_t layer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Bytes of a file or a user made fit for a message: at most 92 bytes shown, the rest as "...",
 * anything that is not printable UTF-8 as '?'. Use as ftki_quote(data, len).text. */
typedef struct ftki_quoted {
    char text[96];
} ftki_quoted;
ftki_quoted ftki_quote(const char *data, size_t len);
/* The same for a path, which keeps its end: the name of the file. */
ftki_quoted ftki_quote_path(const char *path);

/* Strict UTF-8: length of the character at text (1..4) and its code point; 0 when the bytes are
 * not a whole, shortest-form character or len is 0. */
size_t ftki_utf8_next(const char *text, size_t len, uint32_t *code);
/* False for control characters, line separators and direction overrides. */
bool ftki_is_printable(uint32_t code);

#endif

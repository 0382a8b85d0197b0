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

/* Fills *e (may be NULL) and returns `code`. offset -1 and layer -1: none. The message is cut
 * at a character border when too long; control characters in it are replaced by '?'. */
ftk_status ftki_fail(ftk_error *e, ftk_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
ftk_status ftki_fail_at(ftk_error *e, ftk_status code, int64_t offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
ftk_status ftki_fail_layer(ftk_error *e, ftk_status code, int32_t layer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif

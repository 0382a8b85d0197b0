// SPDX-License-Identifier: Apache-2.0
/* Reading an option struct of the public header: its first field is the size the caller was
 * compiled with, so that a program built against an older header keeps its meaning. */
#ifndef FTKI_BASE_OPTIONS_H
#define FTKI_BASE_OPTIONS_H

#include <stddef.h>
#include <string.h>

/* Copies what the caller's struct `in` has (NULL: nothing) into *out [bytes]; fields it does not
 * have are zero, which means their defaults. */
static inline void ftki_options_read(void *out, size_t bytes, const void *in) {
    size_t size = 0;
    memset(out, 0, bytes);
    if (!in) return;
    memcpy(&size, in, sizeof size);
    memcpy(out, in, size == 0 || size > bytes ? bytes : size);
}

#endif

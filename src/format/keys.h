// SPDX-License-Identifier: Apache-2.0
/* The value types of GGUF keys: sizes and names. Inside src/format only. */
#ifndef FTKI_FORMAT_KEYS_H
#define FTKI_FORMAT_KEYS_H

#include "format/gguf.h"

size_t ftki_key_type_size(ftki_key_type type);      /* bytes of one value; 0: string or array */
const char *ftki_key_type_name(ftki_key_type type); /* "u32", "string"; static */
const char *ftki_key_array_name(ftki_key_type element); /* "array of u32"; static */

/* A scalar number or bool at p, widened: integers and bools to *i (true), floats to *f (false). */
bool ftki_key_number(ftki_key_type type, const unsigned char *p, int64_t *i, double *f);

#endif

// SPDX-License-Identifier: Apache-2.0
/* JSON that is valid whatever it is fed: invalid UTF-8 becomes U+FFFD, NaN and infinity null. */
#ifndef FREETOKEN_TOOLS_JSON_OUT_H
#define FREETOKEN_TOOLS_JSON_OUT_H

#include <jansson.h>

#include "freetoken/freetoken.h"

json_t *json_text(const char *s);
json_t *json_text_of(const char *data, size_t len);
json_t *json_number(double value); /* at most six significant digits after rounding */
/* One object on one line of stdout, flushed; frees it. Returns an exit status. */
int json_line(json_t *object);
/* The same over several lines, for documents. */
int json_document(json_t *object);
/* From here on every error is also a line {"type":"error","message":...} of stdout. */
void json_report_errors(void);

#endif

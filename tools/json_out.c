// SPDX-License-Identifier: Apache-2.0
/* Values and lines of JSON through jansson. */
#include "json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "text.h"
#include "ui.h"

json_t *json_text_of(const char *data, size_t len)
{
    text_buffer valid = {0};
    json_t *j = text_add_valid(&valid, data, len) ? json_stringn(valid.data, valid.len) : NULL;
    text_free(&valid);
    return j;
}

json_t *json_text(const char *s)
{
    return json_text_of(s, strlen(s));
}

json_t *json_number(double value)
{
    if (!isfinite(value)) return json_null();
    double size = value == 0 ? 1 : pow(10, 5 - floor(log10(fabs(value))));
    double rounded = isfinite(size) && size > 0 ? round(value * size) / size : value;
    return json_real(isfinite(rounded) ? rounded : value);
}

static int dump(json_t *object, size_t flags)
{
    int failed = !object || json_dumpf(object, stdout, flags | JSON_REAL_PRECISION(9)) != 0;
    json_decref(object);
    putchar('\n');
    fflush(stdout);
    if (failed) fprintf(stderr, "error: the JSON output could not be written\n");
    return failed ? STATUS_FAILURE : STATUS_OK;
}

int json_line(json_t *object)
{
    return dump(object, JSON_COMPACT);
}

int json_document(json_t *object)
{
    return dump(object, JSON_INDENT(2));
}

static void print_error(const char *message)
{
    json_t *j = json_object();
    json_object_set_new(j, "type", json_string("error"));
    json_object_set_new(j, "message", json_text(message));
    json_line(j);
}

void json_report_errors(void)
{
    ui_on_error(print_error);
}

// SPDX-License-Identifier: Apache-2.0
/* Reading, checking and showing texts; growing token lists. */
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "interrupt.h"
#include "ui.h"

void text_free(text_buffer *t)
{
    free(t->data);
    *t = (text_buffer){0};
}

bool text_add(text_buffer *t, const char *data, size_t len)
{
    char *grown = realloc(t->data, t->len + len + 1);
    if (!grown) return false;
    if (len) memcpy(grown + t->len, data, len);
    t->data = grown;
    t->len += len;
    grown[t->len] = 0;
    return true;
}

int text_read(text_buffer *t, const char *path)
{
    text_free(t);
    bool from_stdin = strcmp(path, "-") == 0;
    const char *name = from_stdin ? "standard input" : path;
    FILE *f = from_stdin ? stdin : fopen(path, "rb");
    struct stat info;
    if (!f) {
        ui_error("%s: %s", name, strerror(errno));
        return STATUS_FAILURE;
    }
    int status = STATUS_GO_ON;
    size_t cap = 0;
    if (fstat(fileno(f), &info) == 0 && S_ISDIR(info.st_mode)) {
        ui_error("%s: is a directory, not a text", name);
        status = STATUS_FAILURE;
    }
    while (status == STATUS_GO_ON) {
        if (t->len + 1 >= cap) {
            cap = cap ? 2 * cap : 65536;
            char *grown = realloc(t->data, cap);
            if (!grown) {
                ui_error("%s: out of memory after %zu bytes", name, t->len);
                status = STATUS_FAILURE;
                break;
            }
            t->data = grown;
        }
        size_t got = fread(t->data + t->len, 1, cap - 1 - t->len, f);
        t->len += got;
        if (got == 0) break;
    }
    if (status == STATUS_GO_ON && ferror(f)) {
        status = interrupt_count() ? STATUS_INTERRUPTED : STATUS_FAILURE;
        if (status == STATUS_FAILURE) ui_error("%s: %s", name, strerror(errno));
    }
    if (!from_stdin) fclose(f);
    if (status != STATUS_GO_ON) {
        text_free(t);
        return status;
    }
    t->data[t->len] = 0;
    if (t->len >= 3 && memcmp(t->data, "\xef\xbb\xbf", 3) == 0) {
        memmove(t->data, t->data + 3, t->len - 2);
        t->len -= 3;
    }
    return STATUS_GO_ON;
}

/* ------------------------------------------------------------------- UTF-8 */

size_t text_character(const char *data, size_t len)
{
    const unsigned char *s = (const unsigned char *)data;
    if (len == 0) return 0;
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] > 0x9f;
    bool too_large = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || too_large ? 0 : n;
}

size_t text_invalid(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len) {
        size_t n = text_character(data + at, len - at);
        if (n == 0) return at;
        at += n;
    }
    return len;
}

int text_check(const char *what, const char *data, size_t len)
{
    size_t bad = text_invalid(data, len);
    const char *nul = len ? memchr(data, 0, len) : NULL;
    if (len >= 2 && (memcmp(data, "\xff\xfe", 2) == 0 || memcmp(data, "\xfe\xff", 2) == 0)) {
        ui_error("%s: looks like UTF-16; convert it first: iconv -f UTF-16 -t UTF-8", what);
        return STATUS_FAILURE;
    }
    if (nul && (size_t)(nul - data) < bad) {
        ui_error("%s: byte %zu is NUL: this is no text", what, (size_t)(nul - data));
        return STATUS_FAILURE;
    }
    if (bad < len) {
        ui_error("%s: byte %zu (0x%02x) is not valid UTF-8; convert the text first, for example: "
                 "iconv -f LATIN1 -t UTF-8", what, bad, (unsigned char)data[bad]);
        return STATUS_FAILURE;
    }
    return STATUS_GO_ON;
}

bool text_add_valid(text_buffer *t, const char *data, size_t len)
{
    size_t at = 0;
    if (len == 0) return text_add(t, "", 0);
    while (at < len) {
        size_t good = text_invalid(data + at, len - at);
        if (!text_add(t, data + at, good)) return false;
        at += good;
        if (at < len) {
            if (!text_add(t, "\xef\xbf\xbd", 3)) return false;
            at++;
        }
    }
    return true;
}

/* Whether the valid character at s [n] could steer a terminal: C0, DEL, C1. */
static bool is_control(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0];
    if (n == 1) return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    return n == 2 && c == 0xc2 && (unsigned char)s[1] < 0xa0;
}

void text_show(FILE *stream, const char *data, size_t len)
{
    if (!isatty(fileno(stream))) {
        fwrite(data, 1, len, stream);
        return;
    }
    for (size_t at = 0; at < len;) {
        size_t n = text_character(data + at, len - at);
        if (n == 0 || is_control(data + at, n)) fputs("\xef\xbf\xbd", stream);
        else fwrite(data + at, 1, n, stream);
        at += n ? n : 1;
    }
}

void text_quote(FILE *stream, const char *data, size_t len)
{
    putc('"', stream);
    for (size_t at = 0; at < len;) {
        size_t n = text_character(data + at, len - at);
        unsigned char c = (unsigned char)data[at];
        if (c == '\n') fputs("\\n", stream);
        else if (c == '\t') fputs("\\t", stream);
        else if (c == '\r') fputs("\\r", stream);
        else if (c == '"' || c == '\\') fprintf(stream, "\\%c", c);
        else if (n == 0 || is_control(data + at, n))
            for (size_t i = 0; i < (n ? n : 1); i++) fprintf(stream, "\\x%02x", (unsigned char)data[at + i]);
        else fwrite(data + at, 1, n, stream);
        at += n ? n : 1;
    }
    putc('"', stream);
}

/* ------------------------------------------------------------------ tokens */

void tokens_free(token_list *t)
{
    free(t->ids);
    *t = (token_list){0};
}

bool tokens_add(token_list *t, const ftk_token *ids, size_t n)
{
    ftk_token *grown = realloc(t->ids, (t->n + n + 1) * sizeof *grown);
    if (!grown) return false;
    if (n) memcpy(grown + t->n, ids, n * sizeof *ids);
    t->ids = grown;
    t->n += n;
    return true;
}

bool tokens_want_bos(const ftk_model *m)
{
    ftk_token first[4] = {-1, -1, -1, -1};
    size_t n = 0;
    return ftk_tokenize(m, "", 0, FTK_TOKENIZE_BOS_EOS, first, 4, &n, NULL) == FTK_OK && n > 0 &&
           first[0] == ftk_token_bos(m) && first[0] >= 0;
}

int tokens_of(token_list *t, const ftk_model *m, const char *what, const char *data, size_t len, int flags)
{
    /* One token stands for a byte or more, save for the ones put in front and behind. */
    size_t cap = len + 16, n = 0;
    ftk_error e = {0};
    ftk_token *ids = malloc(cap * sizeof *ids);
    if (!ids) {
        ui_error("out of memory for %zu bytes of text", len);
        return STATUS_FAILURE;
    }
    ftk_status s = ftk_tokenize(m, data, len, flags, ids, cap, &n, &e);
    int status = s == FTK_OK ? STATUS_GO_ON : ui_fail(what, &e);
    if (s == FTK_OK && (n > cap || !tokens_add(t, ids, n))) {
        ui_error("%s: %zu tokens do not fit into memory", what, n);
        status = STATUS_FAILURE;
    }
    free(ids);
    return status;
}

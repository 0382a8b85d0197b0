// SPDX-License-Identifier: Apache-2.0
/* Inspection of a GGUF file through the public header: its directory as names and text. */
#include "base/memory.h"
#include "format/keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 5 }; /* of an array */

struct ftk_file {
    ftki_gguf gguf;
    const char **names; /* [n_keys], NUL-terminated copies in `text` */
    char *text;
};

static ftk_status copy_names(ftk_file *f, ftk_error *e) {
    size_t bytes = 1;
    for (size_t i = 0; i < f->gguf.n_keys; i++) bytes += f->gguf.keys[i].name.len + 1;
    f->names = ftki_alloc(f->gguf.n_keys, sizeof f->names[0]);
    f->text = ftki_alloc(bytes, 1);
    if (f->names == NULL || f->text == NULL)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %zu key names", f->gguf.n_keys);
    char *at = f->text;
    for (size_t i = 0; i < f->gguf.n_keys; i++) {
        ftki_text name = f->gguf.keys[i].name;
        memcpy(at, name.data, name.len);
        f->names[i] = at;
        at += name.len + 1;
    }
    return FTK_OK;
}

ftk_status ftk_file_open(ftk_file **out, const char *path, ftk_error *e) {
    if (out == NULL || path == NULL)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "out and path must not be NULL");
    ftk_file *f = ftki_alloc(1, sizeof *f);
    if (f == NULL) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a file's directory");
    ftk_status status = ftki_gguf_open(&f->gguf, path, e);
    if (status == FTK_OK) status = copy_names(f, e);
    if (status != FTK_OK) {
        ftk_file_close(f);
        return status;
    }
    *out = f;
    return FTK_OK;
}

void ftk_file_close(ftk_file *f) {
    if (f == NULL) return;
    ftki_gguf_close(&f->gguf);
    ftki_free(f->names);
    ftki_free(f->text);
    ftki_free(f);
}

uint32_t ftk_file_version(const ftk_file *f) { return f->gguf.version; }
size_t ftk_file_n_keys(const ftk_file *f) { return f->gguf.n_keys; }
size_t ftk_file_n_tensors(const ftk_file *f) { return f->gguf.n_tensors; }

bool ftk_file_get_tensor(const ftk_file *f, size_t i, ftk_file_tensor *out) {
    if (i >= f->gguf.n_tensors) return false;
    const ftki_tensor *t = &f->gguf.tensors[i];
    *out = (ftk_file_tensor){.name = t->name,
                             .type = ftki_type_name_of((uint32_t)t->type),
                             .n_dims = (int32_t)t->n_dims,
                             .dims = {t->dims[0], t->dims[1], t->dims[2], t->dims[3]},
                             .offset = t->offset,
                             .bytes = t->bytes};
    return true;
}

/* ------------------------------------------------------------- value as text */

/* Text of at most cap - 1 bytes; what does not fit is left out piece by piece, so that no
 * character is ever cut. */
typedef struct sink {
    char *text;
    size_t cap, used;
    bool full;
} sink;

static void put(sink *s, const char *piece, size_t len) {
    if (s->full || s->used + len + 1 > s->cap) {
        s->full = true;
        return;
    }
    memcpy(s->text + s->used, piece, len);
    s->used += len;
}

static void put_format(sink *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_format(sink *s, const char *format, ...) {
    char piece[64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    put(s, piece, n < 0 ? 0 : (size_t)n);
}

/* Printable characters as they are, the rest as \n, \t or \xNN. */
static void put_escaped(sink *s, ftki_text text) {
    for (size_t at = 0; at < text.len && !s->full;) {
        const char *p = text.data + at;
        uint32_t code = 0;
        size_t n = ftki_utf8_next(p, text.len - at, &code);
        if (n > 0 && ftki_is_printable(code)) put(s, p, n);
        else if (*p == '\n') put(s, "\\n", 2);
        else if (*p == '\t') put(s, "\\t", 2);
        else put_format(s, "\\x%02x", (unsigned)(unsigned char)*p), n = 1;
        at += n;
    }
}

static void put_number(sink *s, ftki_key_type type, const unsigned char *p) {
    int64_t i = 0;
    double f = 0;
    if (!ftki_key_number(type, p, &i, &f)) put_format(s, "%.9g", f);
    else if (type == FTKI_KEY_BOOL) put_format(s, "%s", i != 0 ? "true" : "false");
    else if (type == FTKI_KEY_U64) put_format(s, "%llu", (unsigned long long)i);
    else put_format(s, "%lld", (long long)i);
}

static void put_array(sink *s, const ftki_key *k) {
    size_t size = ftki_key_type_size(k->element), at = 0;
    put(s, "[", 1);
    for (uint64_t i = 0; i < k->count && i < SHOWN_ELEMENTS; i++) {
        if (i > 0) put(s, ", ", 2);
        if (k->element == FTKI_KEY_STRING) {
            put(s, "\"", 1);
            put_escaped(s, ftki_key_next_text(k, &at));
            put(s, "\"", 1);
        } else {
            put_number(s, k->element, k->data + i * size);
        }
    }
    if (k->count > SHOWN_ELEMENTS) put_format(s, ", ... %llu in all", (unsigned long long)k->count);
    put(s, "]", 1);
}

const char *ftk_file_key(const ftk_file *f, size_t i, const char **type, char *text, size_t cap) {
    if (i >= f->gguf.n_keys) return NULL;
    const ftki_key *k = &f->gguf.keys[i];
    if (type != NULL)
        *type = k->type == FTKI_KEY_ARRAY ? ftki_key_array_name(k->element)
                                          : ftki_key_type_name(k->type);
    if (text != NULL && cap > 0) {
        /* Room for "..." is kept back for values that do not fit. */
        sink s = {.text = text, .cap = cap > 4 ? cap - 3 : cap};
        size_t at = 0;
        if (k->type == FTKI_KEY_ARRAY) put_array(&s, k);
        else if (k->type == FTKI_KEY_STRING) put_escaped(&s, ftki_key_next_text(k, &at));
        else put_number(&s, k->type, k->data);
        if (s.full && cap > 4) {
            memcpy(text + s.used, "...", 3);
            s.used += 3;
        }
        text[s.used] = '\0';
    }
    return f->names[i];
}

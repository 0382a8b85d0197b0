// SPDX-License-Identifier: Apache-2.0
/* The GGUF loader. Two passes over the directory: the first only reads and checks, so that the
 * counts in the header are proven by bytes before anything of their size is allocated; the second
 * fills the tables. Lookups go through sorted indices, which also show duplicates, and whose cost
 * no chosen names can drive up. Leaves typed reading of keys to keys.c, types to types.c.
 *
 *   header   magic "GGUF" | u32 version | u64 n_tensors | u64 n_keys
 *   keys     string name | u32 type | value            string: u64 length | bytes
 *   tensors  string name | u32 n_dims | u64 dims[n_dims] | u32 type | u64 offset
 *   padding to `general.alignment` (32 unless given)
 *   data     tensor t at data start + offset
 */
#include "format/gguf.h"

#include "base/cursor.h"
#include "base/memory.h"
#include "format/keys.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_KEY_NAME = 65535, /* by the format's description */
    MAX_TENSOR_NAME = 255,
    LEAST_KEY_BYTES = 8 + 1 + 4 + 1,
    LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
    LEAST_ALIGNMENT = 8,
    MOST_ALIGNMENT = 1 << 20
};

/* What g->names points to: one block, freed with the g. */
typedef struct directory {
    const ftki_key **keys;       /* [n_keys] sorted by name */
    const ftki_tensor **tensors; /* [n_tensors] sorted by name */
    char *text;                  /* tensor names, NUL-terminated, in file order */
} directory;

/* ------------------------------------------------------------ single entries */

static ftk_status read_string(ftki_cursor *c, ftki_text *out, const char *what, ftk_error *e) {
    size_t start = c->pos;
    uint64_t len;
    const unsigned char *bytes;
    FTKI_TRY(ftki_read_u64(c, &len, what, e));
    if (len > ftki_cursor_left(c))
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "the %s at byte %zu claims %llu bytes, but only %zu are left; the file "
                            "is cut short or damaged",
                            what, start, (unsigned long long)len, ftki_cursor_left(c));
    FTKI_TRY(ftki_read_bytes(c, (size_t)len, &bytes, what, e));
    *out = (ftki_text){(const char *)bytes, (size_t)len};
    return FTK_OK;
}

static ftk_status read_name(ftki_cursor *c, size_t most, ftki_text *out, const char *what,
                            ftk_error *e) {
    size_t start = c->pos;
    FTKI_TRY(read_string(c, out, what, e));
    if (out->len == 0)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start, "the %s at byte %zu is empty", what,
                            start);
    if (out->len > most)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "the %s at byte %zu has %zu bytes; at most %zu are allowed: '%s'", what,
                            start, out->len, most, ftki_quote(out->data, out->len).text);
    for (size_t at = 0, n; at < out->len; at += n) {
        uint32_t code = 0;
        n = 1;
        if (out->data[at] >= 0x20 && out->data[at] < 0x7F) continue; /* nearly all are ASCII */
        n = ftki_utf8_next(out->data + at, out->len - at, &code);
        if (n == 0 || !ftki_is_printable(code))
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)(start + 8 + at),
                                "the %s at byte %zu is not printable UTF-8: '%s'", what, start,
                                ftki_quote(out->data, out->len).text);
    }
    return FTK_OK;
}

static ftk_status check_bools(const ftki_key *k, size_t start, ftk_error *e) {
    for (size_t i = 0; i < k->bytes; i++)
        if (k->data[i] > 1)
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)(start + i),
                                "key '%s' holds %d where a bool (0 or 1) is due, at byte %zu",
                                ftki_quote(k->name.data, k->name.len).text, k->data[i], start + i);
    return FTK_OK;
}

/* Reads `count` values of type `element`, filling data and bytes. */
static ftk_status read_values(ftki_cursor *c, ftki_key *k, ftk_error *e) {
    size_t start = c->pos, size = ftki_key_type_size(k->element);
    size_t least = size > 0 ? size : 8; /* a string is at least its length */
    if (k->count > ftki_cursor_left(c) / least)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "key '%s' claims %llu values of type %s at byte %zu, but only %zu bytes "
                            "are left; the file is cut short or damaged",
                            ftki_quote(k->name.data, k->name.len).text,
                            (unsigned long long)k->count, ftki_key_type_name(k->element), start,
                            ftki_cursor_left(c));
    if (size > 0) {
        FTKI_TRY(ftki_read_bytes(c, (size_t)k->count * size, &k->data, "value", e));
    } else {
        for (uint64_t i = 0; i < k->count; i++) {
            ftki_text ignored;
            FTKI_TRY(read_string(c, &ignored, "string value", e));
        }
        k->data = c->data + start;
    }
    k->bytes = c->pos - start;
    return k->element == FTKI_KEY_BOOL ? check_bools(k, start, e) : FTK_OK;
}

static ftk_status read_key_type(ftki_cursor *c, const ftki_key *k, ftki_key_type *out,
                                ftk_error *e) {
    size_t start = c->pos;
    uint32_t type;
    FTKI_TRY(ftki_read_u32(c, &type, "key type", e));
    if (type > FTKI_KEY_F64)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "key '%s' has type %u at byte %zu; GGUF knows 0 to 12",
                            ftki_quote(k->name.data, k->name.len).text, type, start);
    *out = (ftki_key_type)type;
    return FTK_OK;
}

static ftk_status read_key(ftki_cursor *c, ftki_key *k, ftk_error *e) {
    *k = (ftki_key){.count = 1};
    FTKI_TRY(read_name(c, MAX_KEY_NAME, &k->name, "key name", e));
    FTKI_TRY(read_key_type(c, k, &k->type, e));
    k->element = k->type;
    if (k->type == FTKI_KEY_ARRAY) {
        size_t start = c->pos;
        FTKI_TRY(read_key_type(c, k, &k->element, e));
        if (k->element == FTKI_KEY_ARRAY)
            return ftki_fail_at(e, FTK_UNSUPPORTED, (int64_t)start,
                                "key '%s' is an array of arrays, at byte %zu; arrays of numbers, "
                                "bools and strings are supported",
                                ftki_quote(k->name.data, k->name.len).text, start);
        FTKI_TRY(ftki_read_u64(c, &k->count, "array length", e));
    }
    return read_values(c, k, e);
}

/* The supported types in words, for messages. */
#define SUPPORTED "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K"

/* Checks dims and type and computes the tensor's bytes. `start` is the entry's first byte. */
static ftk_status size_tensor(ftki_tensor *t, const char *shown, uint32_t type, size_t start,
                              ftk_error *e) {
    const ftki_type_info *info = ftki_type_find(type);
    if (info == NULL)
        return ftki_fail_at(e, FTK_UNSUPPORTED, (int64_t)start,
                            "tensor '%s' has type %s (%u), which is not supported; supported: "
                            SUPPORTED, shown, ftki_type_name_of(type), type);
    t->type = info->type;
    if (t->dims[0] % info->block != 0)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "tensor '%s' has rows of %llu weights, not a multiple of the %u in a "
                            "%s block", shown, (unsigned long long)t->dims[0], info->block,
                            info->name);
    uint64_t blocks = t->dims[0] / info->block;
    bool fits = true;
    for (int i = 1; i < 4; i++) fits = fits && !__builtin_mul_overflow(blocks, t->dims[i], &blocks);
    fits = fits && !__builtin_mul_overflow(blocks, info->block_bytes, &t->bytes);
    /* The number of weights must fit as well, and signed, for whoever counts them. */
    if (!fits || blocks > (uint64_t)INT64_MAX / info->block)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                            "tensor '%s' has %llu x %llu x %llu x %llu weights, more than 64 bits "
                            "count", shown, (unsigned long long)t->dims[0],
                            (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                            (unsigned long long)t->dims[3]);
    return FTK_OK;
}

/* t->offset comes out relative to the data section; t->name and t->data are left NULL. */
static ftk_status read_tensor(ftki_cursor *c, ftki_tensor *t, ftki_text *name, ftk_error *e) {
    *t = (ftki_tensor){.dims = {1, 1, 1, 1}};
    size_t start = c->pos;
    FTKI_TRY(read_name(c, MAX_TENSOR_NAME, name, "tensor name", e));
    ftki_quoted shown = ftki_quote(name->data, name->len);
    size_t at = c->pos;
    FTKI_TRY(ftki_read_u32(c, &t->n_dims, "number of dimensions", e));
    if (t->n_dims < 1 || t->n_dims > 4)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)at,
                            "tensor '%s' has %u dimensions at byte %zu; 1 to 4 are possible",
                            shown.text, t->n_dims, at);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        at = c->pos;
        FTKI_TRY(ftki_read_u64(c, &t->dims[i], "dimension", e));
        if (t->dims[i] == 0)
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)at,
                                "tensor '%s' has a dimension of zero at byte %zu", shown.text, at);
    }
    uint32_t type;
    at = c->pos;
    FTKI_TRY(ftki_read_u32(c, &type, "tensor type", e));
    FTKI_TRY(size_tensor(t, shown.text, type, ftki_type_find(type) == NULL ? at : start, e));
    return ftki_read_u64(c, &t->offset, "tensor offset", e);
}

/* ----------------------------------------------------------------- sections */

static ftk_status read_header(ftki_cursor *c, ftki_gguf *g, uint64_t *n_keys, uint64_t *n_tensors,
                              ftk_error *e) {
    const unsigned char *magic;
    FTKI_TRY(ftki_read_bytes(c, 4, &magic, "header", e));
    if (memcmp(magic, "GGUF", 4) != 0)
        return ftki_fail_at(e, FTK_FORMAT, 0,
                            "not a GGUF file: it starts with '%s' instead of 'GGUF'",
                            ftki_quote((const char *)magic, 4).text);
    if (ftki_cursor_left(c) < 20)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)c->len,
                            "truncated header: a GGUF header has 24 bytes, the file has %zu",
                            c->len);
    FTKI_TRY(ftki_read_u32(c, &g->version, "version", e));
    if (g->version != 2 && g->version != 3) {
        if (g->version != 0 && (g->version & 0xFFFF) == 0)
            return ftki_fail_at(e, FTK_UNSUPPORTED, 4,
                                "a big-endian GGUF file (version reads 0x%08x); convert it to "
                                "little-endian", g->version);
        return ftki_fail_at(e, FTK_UNSUPPORTED, 4,
                            "GGUF version %u; versions 2 and 3 are supported: convert the model "
                            "again with a current converter", g->version);
    }
    FTKI_TRY(ftki_read_u64(c, n_tensors, "tensor count", e));
    FTKI_TRY(ftki_read_u64(c, n_keys, "key count", e));
    if (*n_tensors > ftki_cursor_left(c) / LEAST_TENSOR_BYTES)
        return ftki_fail_at(e, FTK_FORMAT, 8,
                            "the header claims %llu tensors, more than %zu bytes can hold; the "
                            "file is cut short or damaged",
                            (unsigned long long)*n_tensors, ftki_cursor_left(c));
    if (*n_keys > ftki_cursor_left(c) / LEAST_KEY_BYTES)
        return ftki_fail_at(e, FTK_FORMAT, 16,
                            "the header claims %llu keys, more than %zu bytes can hold; the file "
                            "is cut short or damaged",
                            (unsigned long long)*n_keys, ftki_cursor_left(c));
    return FTK_OK;
}

/* First pass: reads every entry and keeps nothing but the bytes the names need. */
static ftk_status prove(ftki_cursor c, uint64_t n_keys, uint64_t n_tensors, size_t *name_bytes,
                        ftk_error *e) {
    *name_bytes = 0;
    for (uint64_t i = 0; i < n_keys; i++) {
        ftki_key k;
        FTKI_TRY(read_key(&c, &k, e));
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        ftki_tensor t;
        ftki_text name;
        FTKI_TRY(read_tensor(&c, &t, &name, e));
        *name_bytes += name.len + 1;
    }
    return FTK_OK;
}

static ftk_status allocate(ftki_gguf *g, size_t name_bytes, ftk_error *e) {
    /* No overflow: the first pass proved at least 14 and 33 bytes of file for each entry. */
    size_t key_bytes = g->n_keys * sizeof(ftki_key *);
    size_t tensor_bytes = g->n_tensors * sizeof(ftki_tensor *);
    directory *d = ftki_alloc(1, sizeof *d + key_bytes + tensor_bytes + name_bytes);
    g->names = d;
    g->keys = ftki_alloc(g->n_keys, sizeof g->keys[0]);
    g->tensors = ftki_alloc(g->n_tensors, sizeof g->tensors[0]);
    if (d == NULL || g->keys == NULL || g->tensors == NULL)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a directory of %zu keys and %zu "
                         "tensors", g->n_keys, g->n_tensors);
    d->keys = (const ftki_key **)(d + 1);
    d->tensors = (const ftki_tensor **)(void *)((char *)(d + 1) + key_bytes);
    d->text = (char *)(d + 1) + key_bytes + tensor_bytes;
    return FTK_OK;
}

/* Second pass. A file that somebody changes between the passes is caught by the same checks. */
static ftk_status fill_tables(ftki_cursor *c, ftki_gguf *g, size_t name_bytes, ftk_error *e) {
    directory *d = g->names;
    for (size_t i = 0; i < g->n_keys; i++) {
        FTKI_TRY(read_key(c, &g->keys[i], e));
        d->keys[i] = &g->keys[i];
    }
    char *text = d->text;
    for (size_t i = 0; i < g->n_tensors; i++) {
        ftki_text name;
        FTKI_TRY(read_tensor(c, &g->tensors[i], &name, e));
        if (name.len >= name_bytes - (size_t)(text - d->text))
            return ftki_fail(e, FTK_FORMAT, "the file changed while it was read");
        memcpy(text, name.data, name.len);
        text[name.len] = '\0';
        g->tensors[i].name = text;
        d->tensors[i] = &g->tensors[i];
        text += name.len + 1;
    }
    return FTK_OK;
}

/* ------------------------------------------------------------------ indices */

static int compare_texts(ftki_text a, ftki_text b) {
    int order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_keys(const void *a, const void *b) {
    return compare_texts((*(const ftki_key *const *)a)->name, (*(const ftki_key *const *)b)->name);
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const ftki_tensor *const *)a)->name, (*(const ftki_tensor *const *)b)->name);
}

static ftk_status build_indices(ftki_gguf *g, ftk_error *e) {
    directory *d = g->names;
    if (g->n_keys > 1) qsort(d->keys, g->n_keys, sizeof d->keys[0], compare_keys);
    for (size_t i = 1; i < g->n_keys; i++)
        if (compare_keys(&d->keys[i - 1], &d->keys[i]) == 0)
            return ftki_fail(e, FTK_FORMAT, "key '%s' appears twice",
                             ftki_quote(d->keys[i]->name.data, d->keys[i]->name.len).text);
    if (g->n_tensors > 1) qsort(d->tensors, g->n_tensors, sizeof d->tensors[0], compare_tensors);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (compare_tensors(&d->tensors[i - 1], &d->tensors[i]) == 0)
            return ftki_fail(e, FTK_FORMAT, "tensor '%s' appears twice",
                             ftki_quote(d->tensors[i]->name, strlen(d->tensors[i]->name)).text);
    return FTK_OK;
}

const ftki_key *ftki_gguf_key(const ftki_gguf *g, const char *name) {
    const directory *d = g->names;
    const ftki_key wanted = {.name = {name, strlen(name)}}, *p = &wanted;
    if (g->n_keys == 0) return NULL;
    const ftki_key **hit = bsearch(&p, d->keys, g->n_keys, sizeof d->keys[0], compare_keys);
    return hit == NULL ? NULL : *hit;
}

const ftki_tensor *ftki_gguf_tensor(const ftki_gguf *g, const char *name) {
    const directory *d = g->names;
    const ftki_tensor wanted = {.name = name}, *p = &wanted;
    if (g->n_tensors == 0) return NULL;
    const ftki_tensor **hit =
        bsearch(&p, d->tensors, g->n_tensors, sizeof d->tensors[0], compare_tensors);
    return hit == NULL ? NULL : *hit;
}

/* --------------------------------------------------------------------- data */

static ftk_status place_tensors(ftki_gguf *g, const ftki_cursor *c, ftk_error *e) {
    uint32_t alignment = DEFAULT_ALIGNMENT;
    FTKI_TRY(ftki_gguf_u32_or(g, "general.alignment", &alignment, e));
    if (alignment < LEAST_ALIGNMENT || alignment > MOST_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0) {
        size_t at = (size_t)(ftki_gguf_key(g, "general.alignment")->data - c->data);
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)at,
                            "general.alignment is %u at byte %zu; it must be a power of two from "
                            "%d to %d", alignment, at, LEAST_ALIGNMENT, MOST_ALIGNMENT);
    }
    size_t padding = (alignment - c->pos % alignment) % alignment;
    size_t left = ftki_cursor_left(c);
    size_t start = padding < left ? c->pos + padding : c->len, room = c->len - start;
    for (size_t i = 0; i < g->n_tensors; i++) {
        ftki_tensor *t = &g->tensors[i];
        ftki_quoted shown = ftki_quote(t->name, strlen(t->name));
        if (t->offset % alignment != 0)
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                                "tensor '%s' starts %llu bytes into the data, not a multiple of "
                                "the alignment %u",
                                shown.text, (unsigned long long)t->offset, alignment);
        if (t->offset > room || t->bytes > room - t->offset)
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)start,
                                "tensor '%s' needs %llu bytes at offset %llu of the data, which "
                                "has %zu bytes; the file is cut short or damaged",
                                shown.text, (unsigned long long)t->bytes,
                                (unsigned long long)t->offset, room);
        t->data = c->data + start + t->offset;
        t->offset += start;
    }
    return FTK_OK;
}

ftk_status ftki_gguf_parse(ftki_gguf *out, const unsigned char *data, size_t len, ftk_error *e) {
    ftki_gguf g = {0};
    ftki_cursor c = {data, len, 0};
    uint64_t n_keys, n_tensors;
    size_t name_bytes;
    FTKI_TRY(read_header(&c, &g, &n_keys, &n_tensors, e));
    FTKI_TRY(prove(c, n_keys, n_tensors, &name_bytes, e));
    g.n_keys = (size_t)n_keys;
    g.n_tensors = (size_t)n_tensors;

    ftk_status status = allocate(&g, name_bytes, e);
    if (status == FTK_OK) status = fill_tables(&c, &g, name_bytes, e);
    if (status == FTK_OK) status = build_indices(&g, e);
    if (status == FTK_OK) status = place_tensors(&g, &c, e);
    if (status != FTK_OK) {
        ftki_gguf_close(&g);
        return status;
    }
    *out = g;
    return FTK_OK;
}

ftk_status ftki_gguf_open(ftki_gguf *out, const char *path, ftk_error *e) {
    ftki_mapfile file = {0};
    FTKI_TRY(ftki_mapfile_open(&file, path, e));
    ftk_status status = ftki_gguf_parse(out, file.data, file.len, e);
    if (status != FTK_OK) ftki_mapfile_close(&file);
    else out->file = file;
    return status;
}

void ftki_gguf_close(ftki_gguf *g) {
    ftki_free(g->keys);
    ftki_free(g->tensors);
    ftki_free(g->names);
    ftki_mapfile_close(&g->file);
    *g = (ftki_gguf){0};
}

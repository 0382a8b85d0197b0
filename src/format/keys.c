// SPDX-License-Identifier: Apache-2.0
/* Typed reads of GGUF keys. Integers are taken from any integer type whose value fits, since
 * converters do not agree on the width; everything else must have its own type. */
#include "format/keys.h"

#include <string.h>

static const struct {
    const char *array; /* "array of <name>" */
    size_t size;
} key_types[] = {
    [FTKI_KEY_U8] = {"array of u8", 1},
    [FTKI_KEY_I8] = {"array of i8", 1},
    [FTKI_KEY_U16] = {"array of u16", 2},
    [FTKI_KEY_I16] = {"array of i16", 2},
    [FTKI_KEY_U32] = {"array of u32", 4},
    [FTKI_KEY_I32] = {"array of i32", 4},
    [FTKI_KEY_F32] = {"array of f32", 4},
    [FTKI_KEY_BOOL] = {"array of bool", 1},
    [FTKI_KEY_STRING] = {"array of string", 0},
    [FTKI_KEY_ARRAY] = {"array of array", 0},
    [FTKI_KEY_U64] = {"array of u64", 8},
    [FTKI_KEY_I64] = {"array of i64", 8},
    [FTKI_KEY_F64] = {"array of f64", 8},
};

size_t ftki_key_type_size(ftki_key_type type) { return key_types[type].size; }
const char *ftki_key_array_name(ftki_key_type element) { return key_types[element].array; }
const char *ftki_key_type_name(ftki_key_type type) {
    return key_types[type].array + sizeof "array of " - 1;
}

static uint64_t little_endian(const unsigned char *p, size_t size) {
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

bool ftki_key_number(ftki_key_type type, const unsigned char *p, int64_t *i, double *f) {
    uint64_t v = little_endian(p, key_types[type].size);
    switch (type) {
    case FTKI_KEY_I8: *i = (int8_t)v; return true;
    case FTKI_KEY_I16: *i = (int16_t)v; return true;
    case FTKI_KEY_I32: *i = (int32_t)v; return true;
    case FTKI_KEY_F32: {
        uint32_t bits = (uint32_t)v;
        float x;
        memcpy(&x, &bits, sizeof x);
        *f = x;
        return false;
    }
    case FTKI_KEY_F64: memcpy(f, &v, sizeof *f); return false;
    default: *i = (int64_t)v; return true;
    }
}

static ftk_status wrong_type(const ftki_key *k, const char *wanted, ftk_error *e) {
    return ftki_fail(e, FTK_FORMAT, "key '%s' has type %s where %s is due",
                     ftki_quote(k->name.data, k->name.len).text,
                     k->type == FTKI_KEY_ARRAY ? ftki_key_array_name(k->element)
                                               : ftki_key_type_name(k->type),
                     wanted);
}

static ftk_status missing(const char *name, ftk_error *e) {
    return ftki_fail(e, FTK_FORMAT, "key '%s' is missing; the file is not a complete model", name);
}

static bool is_integer(ftki_key_type type) {
    return type != FTKI_KEY_F32 && type != FTKI_KEY_F64 && type != FTKI_KEY_BOOL &&
           type != FTKI_KEY_STRING && type != FTKI_KEY_ARRAY;
}

ftk_status ftki_gguf_u32_or(const ftki_gguf *g, const char *name, uint32_t *out, ftk_error *e) {
    const ftki_key *k = ftki_gguf_key(g, name);
    if (k == NULL) return FTK_OK;
    if (!is_integer(k->type)) return wrong_type(k, "an integer", e);
    int64_t v = 0;
    double unused;
    ftki_key_number(k->type, k->data, &v, &unused);
    if (v < 0 || v > UINT32_MAX)
        return ftki_fail(e, FTK_FORMAT, "key '%s' is out of range: 0 to 4294967295 is possible",
                         name);
    *out = (uint32_t)v;
    return FTK_OK;
}

ftk_status ftki_gguf_u32(const ftki_gguf *g, const char *name, uint32_t *out, ftk_error *e) {
    return ftki_gguf_key(g, name) == NULL ? missing(name, e) : ftki_gguf_u32_or(g, name, out, e);
}

ftk_status ftki_gguf_f32_or(const ftki_gguf *g, const char *name, float *out, ftk_error *e) {
    const ftki_key *k = ftki_gguf_key(g, name);
    if (k == NULL) return FTK_OK;
    if (k->type != FTKI_KEY_F32 && k->type != FTKI_KEY_F64) return wrong_type(k, "a float", e);
    int64_t unused;
    double v = 0;
    ftki_key_number(k->type, k->data, &unused, &v);
    *out = (float)v;
    return FTK_OK;
}

ftk_status ftki_gguf_bool_or(const ftki_gguf *g, const char *name, bool *out, ftk_error *e) {
    const ftki_key *k = ftki_gguf_key(g, name);
    if (k == NULL) return FTK_OK;
    if (k->type != FTKI_KEY_BOOL) return wrong_type(k, "a bool", e);
    *out = k->data[0] != 0;
    return FTK_OK;
}

ftk_status ftki_gguf_text_or(const ftki_gguf *g, const char *name, ftki_text *out, ftk_error *e) {
    const ftki_key *k = ftki_gguf_key(g, name);
    if (k == NULL) return FTK_OK;
    if (k->type != FTKI_KEY_STRING) return wrong_type(k, "a string", e);
    size_t at = 0;
    *out = ftki_key_next_text(k, &at);
    return FTK_OK;
}

ftk_status ftki_gguf_text(const ftki_gguf *g, const char *name, ftki_text *out, ftk_error *e) {
    return ftki_gguf_key(g, name) == NULL ? missing(name, e) : ftki_gguf_text_or(g, name, out, e);
}

ftk_status ftki_gguf_array(const ftki_gguf *g, const char *name, ftki_key_type element,
                           const ftki_key **out, ftk_error *e) {
    const ftki_key *k = ftki_gguf_key(g, name);
    if (k != NULL && (k->type != FTKI_KEY_ARRAY || k->element != element))
        return wrong_type(k, ftki_key_array_name(element), e);
    *out = k;
    return FTK_OK;
}

ftki_text ftki_key_next_text(const ftki_key *k, size_t *at) {
    if (k->element != FTKI_KEY_STRING || *at >= k->bytes || k->bytes - *at < 8)
        return (ftki_text){NULL, 0};
    uint64_t len = little_endian(k->data + *at, 8);
    if (len > k->bytes - *at - 8) return (ftki_text){NULL, 0};
    ftki_text text = {(const char *)k->data + *at + 8, (size_t)len};
    *at += 8 + (size_t)len;
    return text;
}

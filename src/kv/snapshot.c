// SPDX-License-Identifier: Apache-2.0
/* The snapshot body of the cache (its format is in kv.h): entries as they are held, written
 * one by one so that the file does not depend on the page layout. Loading walks the bytes twice:
 * once to check everything, once to fill, when nothing can fail any more. The frame around the
 * body (magic, checksum, model) is the session's. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kv_layout.h"
#include "kv/kv.h"

enum { VERSION = 1, HEADER_FIELDS = 5, MAX_ENTRY = 12 + 2 * 4 * FTKI_MAX_HEAD_DIM };

static void put_u32(unsigned char *to, uint32_t x) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(x >> (8 * i));
}
static uint32_t get_u32(const unsigned char *from) {
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}
static float get_f32(const unsigned char *from) {
    uint32_t bits = get_u32(from);
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static size_t codes_at(ftki_kv_format format) { return format == FTKI_KV_INT8 ? 12 : 4; }
/* Rotated keys fill their padding. */
static int32_t key_elements(const ftki_kv *kv) {
    return kv->format == FTKI_KV_INT8 ? ftki_kv_dim(kv->head_dim) : kv->head_dim;
}
static size_t entry_bytes(const ftki_kv *kv) {
    return codes_at(kv->format) +
           (size_t)(key_elements(kv) + kv->head_dim) * ftki_kv_element_bytes(kv->format);
}

/* Where element d of an entry's key or value lies in its page. */
static size_t key_offset(ftki_kv_format format, int32_t head_dim, int32_t slot, int32_t d) {
    size_t element = format == FTKI_KV_INT8 ? ftki_k_code(ftki_kv_dim(head_dim), slot, d)
                                            : (size_t)(d * FTKI_PAGE + slot);
    return ftki_kv_k_offset(format) + element * ftki_kv_element_bytes(format);
}
static size_t value_offset(ftki_kv_format format, int32_t head_dim, int32_t slot, int32_t d) {
    size_t element = format == FTKI_KV_INT8 ? ftki_v_code(slot, d)
                                            : (size_t)(slot * ftki_kv_dim(head_dim) + d);
    return ftki_kv_v_offset(format, head_dim) + element * ftki_kv_element_bytes(format);
}

/* An element's bytes, which on a little-endian machine are those of the file. */
static void put_element(unsigned char *to, const unsigned char *from, size_t bytes) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(to, from, bytes);
#else
    for (size_t i = 0; i < bytes; i++) to[i] = from[bytes - 1 - i];
#endif
}

static void pack_entry(const ftki_kv *kv, unsigned char *page, int32_t slot, unsigned char *to) {
    size_t bytes = ftki_kv_element_bytes(kv->format);
    put_u32(to, (uint32_t)ftki_kv_positions(page)[slot]);
    if (kv->format == FTKI_KV_INT8) {
        put_element(to + 4, (unsigned char *)&ftki_page_k_scale(page)[slot], 4);
        put_element(to + 8, (unsigned char *)&ftki_page_v_log(page)[slot], 4);
    }
    to += codes_at(kv->format);
    for (int32_t d = 0; d < key_elements(kv); d++, to += bytes)
        put_element(to, page + key_offset(kv->format, kv->head_dim, slot, d), bytes);
    for (int32_t d = 0; d < kv->head_dim; d++, to += bytes)
        put_element(to, page + value_offset(kv->format, kv->head_dim, slot, d), bytes);
}

static void unpack_entry(const ftki_kv *kv, unsigned char *page, int32_t slot,
                         const unsigned char *from) {
    size_t bytes = ftki_kv_element_bytes(kv->format);
    static const unsigned char zero[4];
    int32_t sum = 0, dim = ftki_kv_dim(kv->head_dim);
    ftki_kv_positions(page)[slot] = (int32_t)get_u32(from);
    if (kv->format == FTKI_KV_INT8) {
        ftki_page_k_scale(page)[slot] = get_f32(from + 4);
        ftki_page_v_log(page)[slot] = get_f32(from + 8);
    }
    from += codes_at(kv->format);
    for (int32_t d = 0; d < dim; d++) {
        bool held = d < key_elements(kv);
        put_element(page + key_offset(kv->format, kv->head_dim, slot, d), held ? from : zero, bytes);
        if (held) sum += (int8_t)from[0], from += bytes;
    }
    for (int32_t d = 0; d < dim; d++) {
        bool held = d < kv->head_dim;
        put_element(page + value_offset(kv->format, kv->head_dim, slot, d), held ? from : zero, bytes);
        if (held) from += bytes;
    }
    if (kv->format == FTKI_KV_INT8) ftki_page_k_start(page)[slot] = -128 * sum;
}

ftk_status ftki_kv_save(const ftki_kv *kv, ftki_writer *w, ftk_error *e) {
    unsigned char header[4 * HEADER_FIELDS], entry[MAX_ENTRY];
    const uint32_t fields[HEADER_FIELDS] = {VERSION, (uint32_t)kv->format, (uint32_t)kv->n_layers,
                                            (uint32_t)kv->n_kv_heads, (uint32_t)kv->head_dim};
    for (int i = 0; i < HEADER_FIELDS; i++) put_u32(header + 4 * i, fields[i]);
    FTKI_TRY(ftki_writer_write(w, header, sizeof header, e));
    for (int32_t i = 0; i < kv->n_layers * kv->n_kv_heads; i++) {
        const ftki_kv_list *l = &kv->lists[i];
        put_u32(header, (uint32_t)l->n_entries);
        FTKI_TRY(ftki_writer_write(w, header, 4, e));
        for (int32_t n = 0; n < l->n_entries; n++) {
            pack_entry(kv, ftki_kv_page(l, n), n % FTKI_PAGE, entry);
            FTKI_TRY(ftki_writer_write(w, entry, entry_bytes(kv), e));
        }
    }
    return FTK_OK;
}

/* ----------------------------------------------------------------- loading */

static ftk_status check_header(const ftki_kv *kv, ftki_cursor *c, ftk_error *e) {
    static const char *const names[HEADER_FIELDS] = {"version", "format", "layers", "KV heads",
                                                     "head size"};
    const uint32_t want[HEADER_FIELDS] = {VERSION, (uint32_t)kv->format, (uint32_t)kv->n_layers,
                                          (uint32_t)kv->n_kv_heads, (uint32_t)kv->head_dim};
    for (int i = 0; i < HEADER_FIELDS; i++) {
        int64_t at = (int64_t)c->pos;
        uint32_t got;
        FTKI_TRY(ftki_read_u32(c, &got, names[i], e));
        if (got != want[i])
            return ftki_fail_at(e, FTK_MISMATCH, at, "KV snapshot: %s is %u, this session has %u",
                                names[i], got, want[i]);
    }
    return FTK_OK;
}

static bool element_is_sound(ftki_kv_format format, const unsigned char *at) {
    if (format == FTKI_KV_INT8) return at[0] != 0x80;
    if (format == FTKI_KV_F16) return (at[1] & 0x7c) != 0x7c;
    return isfinite(get_f32(at));
}

static ftk_status check_entry(const ftki_kv *kv, const unsigned char *entry, int64_t offset,
                              int64_t previous, int32_t end, ftk_error *e) {
    int64_t position = (int32_t)get_u32(entry);
    if (position <= previous)
        return ftki_fail_at(e, FTK_FORMAT, offset,
                            "KV snapshot: position %lld does not lie after %lld", (long long)position,
                            (long long)previous);
    if (position >= end)
        return ftki_fail_at(e, FTK_FORMAT, offset,
                            "KV snapshot: position %lld is not one of the %d tokens held",
                            (long long)position, end);
    if (kv->format == FTKI_KV_INT8 &&
        !(get_f32(entry + 4) >= 0.0f && get_f32(entry + 4) <= FLT_MAX && fabsf(get_f32(entry + 8)) < 126.0f))
        return ftki_fail_at(e, FTK_FORMAT, offset + 4, "KV snapshot: a scale is out of range");
    for (size_t i = codes_at(kv->format); i < entry_bytes(kv); i += ftki_kv_element_bytes(kv->format))
        if (!element_is_sound(kv->format, entry + i))
            return ftki_fail_at(e, FTK_FORMAT, offset + (int64_t)i,
                                "KV snapshot: a key or value is not a number the cache can hold");
    return FTK_OK;
}

static ftk_status check_list(const ftki_kv *kv, ftki_cursor *c, int32_t end, ftk_error *e) {
    int64_t at = (int64_t)c->pos, previous = -1;
    uint32_t n;
    FTKI_TRY(ftki_read_u32(c, &n, "number of KV entries", e));
    if (n > (uint32_t)kv->max_pages * FTKI_PAGE)
        return ftki_fail_at(e, FTK_MISMATCH, at,
                            "KV snapshot: a list of %u entries, this session's context holds %d", n,
                            kv->max_pages * FTKI_PAGE);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *entry;
        at = (int64_t)c->pos;
        FTKI_TRY(ftki_read_bytes(c, entry_bytes(kv), &entry, "KV entry", e));
        FTKI_TRY(check_entry(kv, entry, at, previous, end, e));
        previous = (int32_t)get_u32(entry);
    }
    return FTK_OK;
}

ftk_status ftki_kv_load(ftki_kv *kv, ftki_cursor *c, int32_t end, ftk_error *e) {
    ftki_cursor check = *c;
    FTKI_TRY(check_header(kv, &check, e));
    for (int32_t i = 0; i < kv->n_layers * kv->n_kv_heads; i++) FTKI_TRY(check_list(kv, &check, end, e));

    const unsigned char *from = c->data + c->pos + 4 * HEADER_FIELDS;
    ftki_kv_clear(kv);
    for (int32_t i = 0; i < kv->n_layers * kv->n_kv_heads; i++) {
        ftki_kv_list *l = &kv->lists[i];
        ftki_kv_take(kv, l, (int32_t)get_u32(from));
        from += 4;
        for (int32_t n = 0; n < l->n_entries; n++, from += entry_bytes(kv))
            unpack_entry(kv, ftki_kv_page(l, n), n % FTKI_PAGE, from);
    }
    c->pos = check.pos;
    return FTK_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* Bounded little-endian reads. Assembles numbers byte by byte, so alignment and the machine's
 * byte order do not matter. */
#include "base/cursor.h"

#include <string.h>

ftk_status ftki_read_bytes(ftki_cursor *c, size_t len, const unsigned char **out, const char *what,
                           ftk_error *e) {
    if (len > ftki_cursor_left(c))
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)c->pos,
                            "the data ends inside the %s at byte %zu: %zu bytes needed, %zu left; "
                            "the file is cut short or damaged",
                            what, c->pos, len, ftki_cursor_left(c));
    *out = c->data + c->pos;
    c->pos += len;
    return FTK_OK;
}

static ftk_status read_number(ftki_cursor *c, size_t len, uint64_t *out, const char *what,
                              ftk_error *e) {
    const unsigned char *p;
    FTKI_TRY(ftki_read_bytes(c, len, &p, what, e));
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++) v |= (uint64_t)p[i] << (8 * i);
    *out = v;
    return FTK_OK;
}

ftk_status ftki_read_u8(ftki_cursor *c, uint8_t *out, const char *what, ftk_error *e) {
    uint64_t v;
    FTKI_TRY(read_number(c, 1, &v, what, e));
    *out = (uint8_t)v;
    return FTK_OK;
}

ftk_status ftki_read_u16(ftki_cursor *c, uint16_t *out, const char *what, ftk_error *e) {
    uint64_t v;
    FTKI_TRY(read_number(c, 2, &v, what, e));
    *out = (uint16_t)v;
    return FTK_OK;
}

ftk_status ftki_read_u32(ftki_cursor *c, uint32_t *out, const char *what, ftk_error *e) {
    uint64_t v;
    FTKI_TRY(read_number(c, 4, &v, what, e));
    *out = (uint32_t)v;
    return FTK_OK;
}

ftk_status ftki_read_u64(ftki_cursor *c, uint64_t *out, const char *what, ftk_error *e) {
    return read_number(c, 8, out, what, e);
}

ftk_status ftki_read_f32(ftki_cursor *c, float *out, const char *what, ftk_error *e) {
    uint32_t bits;
    FTKI_TRY(ftki_read_u32(c, &bits, what, e));
    memcpy(out, &bits, sizeof *out);
    return FTK_OK;
}

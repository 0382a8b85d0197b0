// SPDX-License-Identifier: Apache-2.0
/* Bounded cursor: the only way untrusted bytes are read. Little-endian. Never reads outside
 * [data, data + len); a failed read leaves the position and fills the error with the offset. */
#ifndef FTKI_BASE_CURSOR_H
#define FTKI_BASE_CURSOR_H

#include "base/status.h"

typedef struct ftki_cursor {
    const unsigned char *data; /* [len], borrowed */
    size_t len;
    size_t pos;
} ftki_cursor;

static inline size_t ftki_cursor_left(const ftki_cursor *c) { return c->len - c->pos; }

/* `what` names the thing being read in the message: "tensor count". */
ftk_status ftki_read_u8(ftki_cursor *c, uint8_t *out, const char *what, ftk_error *e);
ftk_status ftki_read_u16(ftki_cursor *c, uint16_t *out, const char *what, ftk_error *e);
ftk_status ftki_read_u32(ftki_cursor *c, uint32_t *out, const char *what, ftk_error *e);
ftk_status ftki_read_u64(ftki_cursor *c, uint64_t *out, const char *what, ftk_error *e);
ftk_status ftki_read_f32(ftki_cursor *c, float *out, const char *what, ftk_error *e);
/* Borrows len bytes in place. */
ftk_status ftki_read_bytes(ftki_cursor *c, size_t len, const unsigned char **out, const char *what,
                           ftk_error *e);

#endif

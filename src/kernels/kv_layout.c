// SPDX-License-Identifier: Apache-2.0
/* The KV page as bytes: sizes, offsets, moving an entry. Reading and writing numbers is the
 * table's work (kv_write, kv_read). */
#include "kernels/kv_layout.h"

#include <string.h>

size_t ftki_kv_k_offset(ftki_kv_format format) {
    return format == FTKI_KV_INT8 ? FTKI_PAGE_INT8_CODES : FTKI_PAGE_FLOATS;
}

static size_t codes_bytes(ftki_kv_format format, int32_t head_dim) {
    return (size_t)FTKI_PAGE * (size_t)ftki_kv_dim(head_dim) * ftki_kv_element_bytes(format);
}

size_t ftki_kv_v_offset(ftki_kv_format format, int32_t head_dim) {
    return ftki_kv_k_offset(format) + codes_bytes(format, head_dim);
}

size_t ftki_kv_page_bytes(ftki_kv_format format, int32_t head_dim) {
    return ftki_kv_v_offset(format, head_dim) + codes_bytes(format, head_dim);
}

size_t ftki_attn_prepared_bytes(ftki_kv_format format, int32_t head_dim, int32_t rows) {
    size_t rows16 = (size_t)ftki_attn_rows16(rows), dim = (size_t)ftki_kv_dim(head_dim);
    return format == FTKI_KV_INT8 ? rows16 * (4 + dim) : rows16 * dim * 4;
}

static void copy_word(unsigned char *to, int32_t to_slot, const unsigned char *from,
                      int32_t from_slot) {
    memcpy(to + 4 * to_slot, from + 4 * from_slot, 4);
}

void ftki_kv_copy_entry(ftki_kv_format format, int32_t head_dim, unsigned char *to, int32_t to_slot,
                        const unsigned char *from, int32_t from_slot) {
    int32_t dim = ftki_kv_dim(head_dim);
    size_t k = ftki_kv_k_offset(format), v = ftki_kv_v_offset(format, head_dim);
    copy_word(to, to_slot, from, from_slot);
    if (format == FTKI_KV_INT8) {
        copy_word(to + FTKI_PAGE_K_SCALE, to_slot, from + FTKI_PAGE_K_SCALE, from_slot);
        copy_word(to + FTKI_PAGE_V_LOG, to_slot, from + FTKI_PAGE_V_LOG, from_slot);
        copy_word(to + FTKI_PAGE_K_START, to_slot, from + FTKI_PAGE_K_START, from_slot);
        for (int32_t d = 0; d < dim; d += 4)
            memcpy(to + k + ftki_k_code(dim, to_slot, d), from + k + ftki_k_code(dim, from_slot, d), 4);
        for (int32_t d = 0; d < dim; d++)
            to[v + ftki_v_code(to_slot, d)] = from[v + ftki_v_code(from_slot, d)];
        return;
    }
    size_t bytes = ftki_kv_element_bytes(format), row = (size_t)dim * bytes;
    for (int32_t d = 0; d < dim; d++)
        memcpy(to + k + ((size_t)d * FTKI_PAGE + (size_t)to_slot) * bytes,
               from + k + ((size_t)d * FTKI_PAGE + (size_t)from_slot) * bytes, bytes);
    memcpy(to + v + (size_t)to_slot * row, from + v + (size_t)from_slot * row, row);
}

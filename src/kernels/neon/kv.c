// SPDX-License-Identifier: Apache-2.0
/* Writing one INT8 entry on NEON. Float formats keep the scalar way. */
#include "kernels/neon/quantise.h"
#include "kernels/tables.h"

static void write_int8(int32_t head_dim, unsigned char *page, int32_t slot, const float *key,
                       const float *value) {
    const int32_t dim = ftki_kv_dim(head_dim);
    unsigned char *k = page + ftki_kv_k_offset(FTKI_KV_INT8), *v = page + ftki_kv_v_offset(FTKI_KV_INT8, head_dim);
    quantised x;
    quantise_neon(&x, key, head_dim, true);
    for (int32_t d = 0; d < dim; d += 4) memcpy(k + ftki_k_code(dim, slot, d), x.codes + d, 4);
    ftki_page_k_scale(page)[slot] = x.largest / 127.0f;
    ftki_page_k_start(page)[slot] = -128 * x.sum;
    quantise_neon(&x, value, head_dim, false);
    for (int32_t d = 0; d < dim; d++) v[ftki_v_code(slot, d)] = (unsigned char)x.codes[d];
    ftki_page_v_log(page)[slot] = x.largest > 0.0f ? log2f(x.largest / 127.0f) : FTKI_KV_ZERO_LOG;
}

void ftki_kv_write_neon(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                        const float *key, const float *value) {
    if (format == FTKI_KV_INT8) write_int8(head_dim, page, slot, key, value);
    else ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
}

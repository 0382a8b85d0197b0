// SPDX-License-Identifier: Apache-2.0
/* Writing and reading one KV entry in plain C: the specification of the codes. */
#include "kernels/kv_layout.h"

#include <float.h>

#include "format/quants.h"
#include "kernels/exp.h"
#include "kernels/tables.h"

/* codes [head_dim] = round-to-nearest-even(x * (127 / max|x|)); returns max|x| / 127, 0 when all
 * codes are 0. */
static float quantise(const float *x, int32_t head_dim, int8_t *codes) {
    float largest = 0.0f;
    for (int32_t d = 0; d < head_dim; d++) {
        float magnitude = fabsf(ftki_finite(x[d], FLT_MAX));
        largest = magnitude > largest ? magnitude : largest;
    }
    bool zero = largest < FTKI_KV_TINY;
    float inverse = zero ? 0.0f : 127.0f / largest;
    for (int32_t d = 0; d < head_dim; d++)
        codes[d] = (int8_t)rintf(ftki_finite(x[d], FLT_MAX) * inverse);
    return zero ? 0.0f : largest / 127.0f;
}

static void write_int8(int32_t head_dim, unsigned char *page, int32_t slot, const float *key,
                       const float *value) {
    int32_t dim = ftki_kv_dim(head_dim), sum = 0;
    int8_t *k = (int8_t *)page + ftki_kv_k_offset(FTKI_KV_INT8);
    int8_t *v = (int8_t *)page + ftki_kv_v_offset(FTKI_KV_INT8, head_dim);
    int8_t codes[FTKI_MAX_HEAD_DIM] = {0};
    ftki_page_k_scale(page)[slot] = quantise(key, head_dim, codes);
    for (int32_t d = 0; d < dim; d++) {
        k[ftki_k_code(dim, slot, d)] = codes[d];
        sum += codes[d];
    }
    ftki_page_k_start(page)[slot] = -128 * sum;
    float v_scale = quantise(value, head_dim, codes);
    ftki_page_v_log(page)[slot] = v_scale > 0.0f ? log2f(v_scale) : FTKI_KV_ZERO_LOG;
    for (int32_t d = 0; d < dim; d++) v[ftki_v_code(slot, d)] = codes[d];
}

static void write_floats(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                         const float *key, const float *value) {
    int32_t dim = ftki_kv_dim(head_dim);
    unsigned char *k = page + ftki_kv_k_offset(format), *v = page + ftki_kv_v_offset(format, head_dim);
    for (int32_t d = 0; d < dim; d++) {
        float key_d = d < head_dim ? key[d] : 0.0f, value_d = d < head_dim ? value[d] : 0.0f;
        if (format == FTKI_KV_F16) {
            ((uint16_t *)(void *)k)[d * FTKI_PAGE + slot] = ftki_f32_to_f16(ftki_finite(key_d, FTKI_F16_MAX));
            ((uint16_t *)(void *)v)[slot * dim + d] = ftki_f32_to_f16(ftki_finite(value_d, FTKI_F16_MAX));
        } else {
            ((float *)(void *)k)[d * FTKI_PAGE + slot] = ftki_finite(key_d, FLT_MAX);
            ((float *)(void *)v)[slot * dim + d] = ftki_finite(value_d, FLT_MAX);
        }
    }
}

void ftki_kv_write_scalar(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                          const float *key, const float *value) {
    if (format == FTKI_KV_INT8) write_int8(head_dim, page, slot, key, value);
    else write_floats(format, head_dim, page, slot, key, value);
}

void ftki_kv_read_scalar(ftki_kv_format format, int32_t head_dim, const unsigned char *page,
                         int32_t slot, float *key, float *value) {
    int32_t dim = ftki_kv_dim(head_dim);
    const unsigned char *k = page + ftki_kv_k_offset(format);
    const unsigned char *v = page + ftki_kv_v_offset(format, head_dim);
    for (int32_t d = 0; key && d < head_dim; d++) {
        int32_t at = d * FTKI_PAGE + slot;
        key[d] = format == FTKI_KV_F32   ? ((const float *)(const void *)k)[at]
                 : format == FTKI_KV_F16 ? ftki_f16_to_f32(((const uint16_t *)(const void *)k)[at])
                 : ftki_page_k_scale(page)[slot] * (float)(int8_t)k[ftki_k_code(dim, slot, d)];
    }
    for (int32_t d = 0; value && d < head_dim; d++) {
        int32_t at = slot * dim + d;
        value[d] = format == FTKI_KV_F32   ? ((const float *)(const void *)v)[at]
                   : format == FTKI_KV_F16 ? ftki_f16_to_f32(((const uint16_t *)(const void *)v)[at])
                   : ftki_exp2(ftki_page_v_log(page)[slot]) *
                         (float)(int8_t)v[ftki_v_code(slot, d)];
    }
}

/* INT8: v_scale * sqrt(sum of squared codes), exact inside. Floats: 16 partial sums (element d in
 * partial d % 16, fma), added as a tree of halves, as in rms_norm. */
static float norm_of(ftki_kv_format format, int32_t head_dim, const unsigned char *page, int32_t slot) {
    const unsigned char *v = page + ftki_kv_v_offset(format, head_dim);
    int32_t dim = ftki_kv_dim(head_dim), sum = 0;
    float partial[16] = {0};
    for (int32_t d = 0; d < dim; d++) {
        int32_t at = slot * dim + d;
        if (format == FTKI_KV_INT8) {
            int32_t code = (int8_t)v[ftki_v_code(slot, d)];
            sum += code * code;
            continue;
        }
        float x = format == FTKI_KV_F32 ? ((const float *)(const void *)v)[at]
                                        : ftki_f16_to_f32(((const uint16_t *)(const void *)v)[at]);
        partial[d % 16] = fmaf(x, x, partial[d % 16]);
    }
    if (format == FTKI_KV_INT8) return ftki_exp2(ftki_page_v_log(page)[slot]) * sqrtf((float)sum);
    for (int32_t half = 8; half > 0; half /= 2)
        for (int32_t i = 0; i < half; i++) partial[i] += partial[i + half];
    return sqrtf(partial[0]);
}

void ftki_value_norms_scalar(ftki_kv_format format, int32_t head_dim,
                             const unsigned char *const *pages, int32_t n_entries, float *norms) {
    for (int32_t e = 0; e < n_entries; e++)
        norms[e] = norm_of(format, head_dim, pages[e / FTKI_PAGE], e % FTKI_PAGE);
}

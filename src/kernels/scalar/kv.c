// SPDX-License-Identifier: Apache-2.0
/* Writing and reading one KV entry in plain C: the specification of the codes. */
#include "kernels/kv_layout.h"

#include <float.h>

#include "format/quants.h"
#include "kernels/exp.h"
#include "kernels/rotate.h"
#include "kernels/tables.h"

/* codes [dim] = round-to-nearest-even(x * (127 / max|x|)); returns max|x| / 127, 0 when all codes
 * are 0. x [dim] is finite. */
static float quantise(const float *x, int32_t dim, int8_t *codes) {
    float largest = 0.0f;
    for (int32_t d = 0; d < dim; d++) largest = fabsf(x[d]) > largest ? fabsf(x[d]) : largest;
    bool zero = largest < FTKI_KV_TINY;
    float inverse = zero ? 0.0f : 127.0f / largest;
    for (int32_t d = 0; d < dim; d++) codes[d] = (int8_t)rintf(x[d] * inverse);
    return zero ? 0.0f : largest / 127.0f;
}

/* x [head_dim] made finite and padded to [dim]. */
static void load(const float *x, int32_t head_dim, float *to) {
    for (int32_t d = 0; d < ftki_kv_dim(head_dim); d++)
        to[d] = d < head_dim ? ftki_finite(x[d], FLT_MAX) : 0.0f;
}

static void write_int8(int32_t head_dim, unsigned char *page, int32_t slot, const float *key,
                       const float *value) {
    int32_t dim = ftki_kv_dim(head_dim), sum = 0;
    int8_t *k = (int8_t *)page + ftki_kv_k_offset(FTKI_KV_INT8), codes[FTKI_MAX_HEAD_DIM];
    int8_t *v = (int8_t *)page + ftki_kv_v_offset(FTKI_KV_INT8, head_dim);
    float x[FTKI_MAX_HEAD_DIM];
    load(key, head_dim, x);
    ftki_rotate(x, dim);
    load(x, dim, x);
    ftki_page_k_scale(page)[slot] = quantise(x, dim, codes);
    for (int32_t d = 0; d < dim; d++) {
        k[ftki_k_code(dim, slot, d)] = codes[d];
        sum += codes[d];
    }
    ftki_page_k_start(page)[slot] = -128 * sum;
    load(value, head_dim, x);
    float v_scale = quantise(x, dim, codes);
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

static void read_int8(int32_t head_dim, const unsigned char *page, int32_t slot, float *key, float *value) {
    int32_t dim = ftki_kv_dim(head_dim);
    const int8_t *k = (const int8_t *)page + ftki_kv_k_offset(FTKI_KV_INT8);
    const int8_t *v = (const int8_t *)page + ftki_kv_v_offset(FTKI_KV_INT8, head_dim);
    float x[FTKI_MAX_HEAD_DIM];
    for (int32_t d = 0; d < dim; d++) x[d] = ftki_page_k_scale(page)[slot] * (float)k[ftki_k_code(dim, slot, d)];
    ftki_rotate(x, dim);
    if (key) memcpy(key, x, (size_t)head_dim * sizeof(float));
    float v_scale = ftki_exp2(ftki_page_v_log(page)[slot]);
    for (int32_t d = 0; value && d < head_dim; d++) value[d] = v_scale * (float)v[ftki_v_code(slot, d)];
}

static float element(ftki_kv_format format, const unsigned char *data, int32_t i) {
    return format == FTKI_KV_F32 ? ((const float *)(const void *)data)[i]
                                 : ftki_f16_to_f32(((const uint16_t *)(const void *)data)[i]);
}

void ftki_kv_read_scalar(ftki_kv_format format, int32_t head_dim, const unsigned char *page,
                         int32_t slot, float *key, float *value) {
    const unsigned char *k = page + ftki_kv_k_offset(format), *v = page + ftki_kv_v_offset(format, head_dim);
    if (format == FTKI_KV_INT8) {
        read_int8(head_dim, page, slot, key, value);
        return;
    }
    for (int32_t d = 0; key && d < head_dim; d++) key[d] = element(format, k, d * FTKI_PAGE + slot);
    for (int32_t d = 0; value && d < head_dim; d++) value[d] = element(format, v, slot * ftki_kv_dim(head_dim) + d);
}

/* INT8: v_scale * sqrt(sum of squared codes), exact inside. Floats: 16 partial sums (element d in
 * partial d % 16, fma), added as a tree of halves, as in rms_norm. */
static float norm_of(ftki_kv_format format, int32_t head_dim, const unsigned char *page, int32_t slot) {
    const unsigned char *v = page + ftki_kv_v_offset(format, head_dim);
    int32_t dim = ftki_kv_dim(head_dim), sum = 0;
    float partial[16] = {0};
    for (int32_t d = 0; d < dim; d++) {
        if (format == FTKI_KV_INT8) {
            int32_t code = (int8_t)v[ftki_v_code(slot, d)];
            sum += code * code;
            continue;
        }
        float x = element(format, v, slot * dim + d);
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

// SPDX-License-Identifier: Apache-2.0
/* Writing one INT8 entry, and value norms, on AVX-512. Float formats keep the scalar way. */
#include <float.h>

#include "kernels/avx512/exp.h"
#include "kernels/kv_layout.h"
#include "kernels/tables.h"

static __mmask16 lanes_left(int32_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

/* NaN as 0, infinities as the largest finite value; lanes past n as 0. */
static __m512 load_finite(const float *x, int32_t n) {
    __m512 v = _mm512_maskz_loadu_ps(lanes_left(n), x), largest = _mm512_set1_ps(FLT_MAX);
    v = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
    return _mm512_max_ps(_mm512_min_ps(v, largest), _mm512_sub_ps(_mm512_setzero_ps(), largest));
}

static float largest_of(const float *x, int32_t head_dim) {
    __m512 top = _mm512_setzero_ps();
    for (int32_t d = 0; d < head_dim; d += 16)
        top = _mm512_max_ps(top, _mm512_abs_ps(load_finite(x + d, head_dim - d)));
    return max16_avx512(top);
}

static __m512i codes_of(const float *x, int32_t n, float inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(load_finite(x, n), _mm512_set1_ps(inverse)));
}

static void write_int8(int32_t head_dim, unsigned char *page, int32_t slot, const float *key,
                       const float *value) {
    const int32_t dim = ftki_kv_dim(head_dim);
    unsigned char *k = page + ftki_kv_k_offset(FTKI_KV_INT8), *v = page + ftki_kv_v_offset(FTKI_KV_INT8, head_dim);
    const float k_top = largest_of(key, head_dim), v_top = largest_of(value, head_dim);
    const float k_inverse = k_top < FTKI_KV_TINY ? 0.0f : 127.0f / k_top;
    const float v_inverse = v_top < FTKI_KV_TINY ? 0.0f : 127.0f / v_top;
    __m512i sum = _mm512_setzero_si512();
    for (int32_t d = 0; d < dim; d += 16) {
        unsigned char bytes[16];
        __m512i codes = codes_of(key + d, head_dim - d, k_inverse);
        sum = _mm512_add_epi32(sum, codes);
        _mm_storeu_si128((__m128i *)(void *)bytes, _mm512_cvtepi32_epi8(codes));
        for (int32_t i = 0; i < 16; i += 4) memcpy(k + ftki_k_code(dim, slot, d + i), bytes + i, 4);
        codes = codes_of(value + d, head_dim - d, v_inverse);
        _mm_storeu_si128((__m128i *)(void *)bytes, _mm512_cvtepi32_epi8(codes));
        for (int32_t i = 0; i < 16; i++) v[ftki_v_code(slot, d + i)] = bytes[i];
    }
    ftki_page_k_scale(page)[slot] = k_top < FTKI_KV_TINY ? 0.0f : k_top / 127.0f;
    ftki_page_k_start(page)[slot] = -128 * _mm512_reduce_add_epi32(sum);
    ftki_page_v_log(page)[slot] = v_top < FTKI_KV_TINY ? FTKI_KV_ZERO_LOG : log2f(v_top / 127.0f);
}

void ftki_kv_write_avx512(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                          const float *key, const float *value) {
    if (format == FTKI_KV_INT8) write_int8(head_dim, page, slot, key, value);
    else ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
}

// SPDX-License-Identifier: Apache-2.0
/* The forms of attention on AVX2, chosen by attn.c. Rows [row, row + n) of the call, pages
 * [page_begin, page_end); state rows are overwritten. */
#ifndef FTKI_KERNELS_AVX2_ATTN_H
#define FTKI_KERNELS_AVX2_ATTN_H

#include <immintrin.h>
#include <math.h>

#include "kernels/tables.h"

/* What all rows of a segment need of its INT8 pages besides the codes. */
typedef struct attn_sides {
    float log[FTKI_SEGMENT][FTKI_PAGE];     /* v_log + bias in units of log 2 */
    float inverse[FTKI_SEGMENT][FTKI_PAGE]; /* exp2(-v_log) */
} __attribute__((aligned(32))) attn_sides;

void ftki_attn_int8_avx2(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                         int32_t page_begin, int32_t page_end, const attn_sides *sides,
                         const ftki_attn_state *state);
void ftki_attn_float_avx2(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                          int32_t page_begin, int32_t page_end, const ftki_attn_state *state);

void ftki_attn_int8_columns_avx2(const ftki_attn *a, const void *prepared,
                                 const ftki_attn_state *state, int32_t n_entries, float *columns);
void ftki_attn_float_columns_avx2(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns);

/* Bit j: entry first + j of a page is in [begin, end). */
static inline uint32_t attn_seen(int32_t begin, int32_t end, int32_t first) {
    int64_t from = (int64_t)begin - first, to = (int64_t)end - first;
    from = from < 0 ? 0 : from > FTKI_PAGE ? FTKI_PAGE : from;
    to = to < 0 ? 0 : to > FTKI_PAGE ? FTKI_PAGE : to;
    return (uint32_t)((((uint64_t)1 << to) - 1) & ~(((uint64_t)1 << from) - 1));
}

/* x in lanes whose bit of `seen` is set, -INFINITY in the others. */
static inline __m256 attn_hide(__m256 x, uint32_t seen) {
    const __m256i bits = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    __m256i here = _mm256_and_si256(_mm256_set1_epi32((int32_t)(seen & 255)), bits);
    __m256i hidden = _mm256_cmpeq_epi32(here, _mm256_setzero_si256());
    return _mm256_blendv_ps(x, _mm256_set1_ps(-INFINITY), _mm256_castsi256_ps(hidden));
}

/* Adds p * factor to columns [8] where seen. */
static inline void attn_add_columns(float *columns, __m256 p, __m256 factor, uint32_t seen) {
    const __m256i bits = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    __m256i here = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int32_t)(seen & 255)), bits), bits);
    _mm256_maskstore_ps(columns, here, _mm256_fmadd_ps(p, factor, _mm256_maskload_ps(columns, here)));
}

#endif

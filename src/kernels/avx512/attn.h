// SPDX-License-Identifier: Apache-2.0
/* The forms of attn_segment on AVX-512, chosen by attn.c; all give the bits of the scalar path.
 * Rows [row, row + n) of the call, pages [page_begin, page_end); state rows are overwritten. */
#ifndef FTKI_KERNELS_AVX512_ATTN_H
#define FTKI_KERNELS_AVX512_ATTN_H

#include "kernels/tables.h"

/* What all rows of a segment need of its INT8 pages besides the codes. */
typedef struct attn_sides {
    float log[FTKI_SEGMENT][FTKI_PAGE];     /* v_log + bias in units of log 2 */
    float inverse[FTKI_SEGMENT][FTKI_PAGE]; /* exp2(-v_log) */
} __attribute__((aligned(64))) attn_sides;

/* INT8, lanes are the 16 rows of block row / 16: for prefill. */
void ftki_attn_block_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                            int32_t page_begin, int32_t page_end, const attn_sides *sides,
                            const ftki_attn_state *state);
/* INT8, lanes are keys, then value dimensions: for few rows. */
void ftki_attn_few_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                          int32_t page_begin, int32_t page_end, const attn_sides *sides,
                          const ftki_attn_state *state);
/* F16 and F32, lanes as in few. */
void ftki_attn_float_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                            int32_t page_begin, int32_t page_end, const ftki_attn_state *state);

/* attn_columns for INT8, and for F16 and F32. */
void ftki_attn_few_columns_avx512(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns);
void ftki_attn_float_columns_avx512(const ftki_attn *a, const void *prepared,
                                    const ftki_attn_state *state, int32_t n_entries, float *columns);

/* Bit j: entry first + j of a page is in [begin, end). */
static inline uint32_t attn_seen(int32_t begin, int32_t end, int32_t first) {
    int64_t from = (int64_t)begin - first, to = (int64_t)end - first;
    from = from < 0 ? 0 : from > FTKI_PAGE ? FTKI_PAGE : from;
    to = to < 0 ? 0 : to > FTKI_PAGE ? FTKI_PAGE : to;
    return (uint32_t)((((uint64_t)1 << to) - 1) & ~(((uint64_t)1 << from) - 1));
}

#endif

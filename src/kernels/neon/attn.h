// SPDX-License-Identifier: Apache-2.0
/* The forms of attention on NEON, chosen by attn.c; state rows are overwritten. */
#ifndef FTKI_KERNELS_NEON_ATTN_H
#define FTKI_KERNELS_NEON_ATTN_H

#include <arm_neon.h>
#include <math.h>

#include "kernels/tables.h"

/* What all rows of a segment need of its INT8 pages besides the codes. */
typedef struct attn_sides {
    float log[FTKI_SEGMENT][FTKI_PAGE];     /* v_log + bias in units of log 2 */
    float inverse[FTKI_SEGMENT][FTKI_PAGE]; /* exp2(-v_log) */
} attn_sides;

void ftki_attn_int8_neon(const ftki_attn *a, const void *prepared, int32_t page_begin,
                         int32_t page_end, const attn_sides *sides, const ftki_attn_state *state);
void ftki_attn_float_neon(const ftki_attn *a, const void *prepared, int32_t page_begin,
                          int32_t page_end, const ftki_attn_state *state);

void ftki_attn_int8_columns_neon(const ftki_attn *a, const void *prepared,
                                 const ftki_attn_state *state, int32_t n_entries, float *columns);
void ftki_attn_float_columns_neon(const ftki_attn *a, const void *prepared,
                                  const ftki_attn_state *state, int32_t n_entries, float *columns);

/* Bit j: entry first + j of a page is in [begin, end). */
static inline uint32_t attn_seen(int32_t begin, int32_t end, int32_t first) {
    int64_t from = (int64_t)begin - first, to = (int64_t)end - first;
    from = from < 0 ? 0 : from > FTKI_PAGE ? FTKI_PAGE : from;
    to = to < 0 ? 0 : to > FTKI_PAGE ? FTKI_PAGE : to;
    return (uint32_t)((((uint64_t)1 << to) - 1) & ~(((uint64_t)1 << from) - 1));
}

/* All bits set in lanes whose bit of `seen` is set. */
static inline uint32x4_t attn_lanes(uint32_t seen) {
    const uint32x4_t bits = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(seen), bits);
}
static inline float32x4_t attn_hide(float32x4_t x, uint32_t seen) {
    return vbslq_f32(attn_lanes(seen), x, vdupq_n_f32(-INFINITY));
}

/* Adds p * factor to columns [4] where seen. */
static inline void attn_add_columns(float *columns, float32x4_t p, float32x4_t factor, uint32_t seen) {
    for (int32_t i = 0; i < 4; i++, seen >>= 1)
        if (seen & 1) columns[i] = fmaf(p[i], factor[i], columns[i]);
}

/* Of a page's 32 weights the largest score, 8 vectors. */
static inline float attn_top(const float32x4_t *t) {
    float32x4_t top = t[0];
    for (int32_t i = 1; i < 8; i++) top = vmaxq_f32(top, t[i]);
    return vmaxvq_f32(top);
}

#endif

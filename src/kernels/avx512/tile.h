// SPDX-License-Identifier: Apache-2.0
/* What the matrix products of this level share: where a tile's results go. */
#ifndef FTKI_KERNELS_AVX512_TILE_H
#define FTKI_KERNELS_AVX512_TILE_H

#include <immintrin.h>

#include "kernels/tables.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* y [rows][stride]: the 16 outputs of a panel under `mask`. */
typedef struct target {
    float *y;
    size_t stride;
    __mmask16 mask;
    bool add;
} target;

INLINE target target_at(const ftki_matrix *w, int32_t panel, float *y, size_t y_stride, bool add) {
    int32_t outputs = w->rows - panel * FTKI_PANEL;
    __mmask16 mask = (__mmask16)(outputs < FTKI_PANEL ? (1 << outputs) - 1 : 0xffff);
    return (target){y + (size_t)panel * FTKI_PANEL, y_stride, mask, add};
}

INLINE void store(const target *t, const int rows, const __m512 *acc) {
    UNROLL for (int r = 0; r < rows; r++) {
        float *y = t->y + (size_t)r * t->stride;
        __m512 v = acc[r];
        if (t->add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(t->mask, y), v);
        _mm512_mask_storeu_ps(y, t->mask, v);
    }
}

/* The product with float weights, floats.c. */
void ftki_matmul_floats_avx512(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                               int32_t panel_end, float *y, size_t y_stride, bool add);

#endif

// SPDX-License-Identifier: Apache-2.0
/* What the matrix products of this level share: where a tile's results go. A panel of 16 outputs
 * is two vectors of 8, its columns. */
#ifndef FTKI_KERNELS_AVX2_TILE_H
#define FTKI_KERNELS_AVX2_TILE_H

#include <immintrin.h>

#include "kernels/tables.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* y [rows][stride] at the panel's first output, of which `outputs` exist. */
typedef struct target {
    float *y;
    size_t stride;
    int32_t outputs;
    bool add;
} target;

INLINE target target_at(const ftki_matrix *w, int32_t panel, float *y, size_t y_stride, bool add) {
    int32_t outputs = w->rows - panel * FTKI_PANEL;
    if (outputs > FTKI_PANEL) outputs = FTKI_PANEL;
    return (target){y + (size_t)panel * FTKI_PANEL, y_stride, outputs, add};
}

/* Outputs [8 * column, 8 * column + 8) of row `row`. */
INLINE void store8(const target *t, int row, int column, __m256 v) {
    int32_t left = t->outputs - column * 8;
    float *y = t->y + (size_t)row * t->stride + column * 8;
    if (left >= 8) {
        if (t->add) v = _mm256_add_ps(_mm256_loadu_ps(y), v);
        _mm256_storeu_ps(y, v);
    } else if (left > 0) {
        __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes);
        if (t->add) v = _mm256_add_ps(_mm256_maskload_ps(y, mask), v);
        _mm256_maskstore_ps(y, mask, v);
    }
}

INLINE __m256 load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Compilers turn a chain of integer additions into a tree, which needs more registers than there
 * are: this ends their knowledge of how v came about. */
INLINE void keep_order(__m256i *v) { __asm__("" : "+x"(*v)); }

/* The product of whole groups of 4 rows with quantised weights, matmul_many.c; acts
 * [n_groups][cols / 32], y [4 * n_groups][y_stride]. */
void ftki_matmul_many_avx2(const ftki_matrix *m, const ftki_act_block *acts, int32_t n_groups,
                           int32_t panel_begin, int32_t panel_end, float *y, size_t y_stride, bool add);
/* The product with float weights, floats.c. */
void ftki_matmul_floats_avx2(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The rotation of queries and keys before they become codes: a Walsh-Hadamard transform, which
 * spreads a strong channel over all of them so that one scale per vector serves all elements, and
 * which leaves q . k as it is because it is orthogonal (as in QuaRot, Ashkboos et al. 2024).
 * Its own inverse. Owns the scalar form; vector forms are in <level>/rotate.h.
 *
 * x [dim], dim a multiple of 16, is cut into pieces of powers of two, the largest first (80 =
 * 64 + 16). A piece of n: for h = 1, 2, 4, ... n/2 all pairs (a, b) of elements h apart become
 * (a + b, a - b), then every element is multiplied by 1 / sqrt(n). */
#ifndef FTKI_KERNELS_ROTATE_H
#define FTKI_KERNELS_ROTATE_H

#include <math.h>
#include <stdint.h>

/* Size of the first piece of n elements, n >= 16. */
static inline int32_t ftki_rotate_piece(int32_t n) { return (int32_t)1 << (31 - __builtin_clz((uint32_t)n)); }

static inline void ftki_rotate(float *x, int32_t dim) {
    while (dim > 0) {
        int32_t n = ftki_rotate_piece(dim);
        for (int32_t h = 1; h < n; h *= 2)
            for (int32_t i = 0; i < n; i++) {
                if (i & h) continue;
                float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
        float factor = 1.0f / sqrtf((float)n);
        for (int32_t i = 0; i < n; i++) x[i] *= factor;
        x += n;
        dim -= n;
    }
}

#endif

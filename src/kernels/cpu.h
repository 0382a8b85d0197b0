// SPDX-License-Identifier: Apache-2.0
/* What the processor and the operating system together allow. Detected once; thread-safe. */
#ifndef FTKI_KERNELS_CPU_H
#define FTKI_KERNELS_CPU_H

#include <stdbool.h>

typedef struct ftki_cpu {
    bool avx2;   /* AVX2, FMA, F16C, and the system saves YMM registers */
    bool avx512; /* also F, BW, DQ, VL, VNNI, and the system saves ZMM and mask registers */
    bool neon;   /* ASIMD with dot product and half precision */
    bool i8mm;   /* also the INT8 matrix product */
    char features[96]; /* in words, for reports */
} ftki_cpu;

const ftki_cpu *ftki_cpu_get(void);

#endif

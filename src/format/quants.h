// SPDX-License-Identifier: Apache-2.0
/* The block formats of GGUF as numbers: the readable specification the packers are tested with.
 * Rows of n weights; n is a multiple of the type's block. */
#ifndef FTKI_FORMAT_QUANTS_H
#define FTKI_FORMAT_QUANTS_H

#include "format/gguf.h"

float ftki_f16_to_f32(uint16_t h);
uint16_t ftki_f32_to_f16(float f); /* round to nearest even, overflow to infinity */

/* src: the row's blocks; dst [n]. */
void ftki_dequantize_row(ftki_type type, const void *src, float *dst, size_t n);
/* Only F32, F16, BF16, Q8_0, Q4_0, Q4_K; false for others. */
bool ftki_can_quantize(ftki_type type);
void ftki_quantize_row(ftki_type type, const float *src, void *dst, size_t n);

#endif

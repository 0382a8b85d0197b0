// SPDX-License-Identifier: Apache-2.0
/* The numbers of the exact gelu, x/2 (1 + erf(x / sqrt 2)) = max(x, 0) - |x|/2 erfc(|x| / sqrt 2), with
 * erfc(z) = t (a1 + t (a2 + t (a3 + t (a4 + t a5)))) exp(-z^2), t = 1 / (1 + p z)
 * (Abramowitz and Stegun 7.1.26: erf within 1.5e-7). The halves and roots are in the constants. */
#ifndef FTKI_KERNELS_ERF_H
#define FTKI_KERNELS_ERF_H

#include "kernels/exp.h"

#define FTKI_ERF_P (0.3275911f * 0.70710678f)
#define FTKI_ERF_A1 (0.5f * 0.254829592f)
#define FTKI_ERF_A2 (0.5f * -0.284496736f)
#define FTKI_ERF_A3 (0.5f * 1.421413741f)
#define FTKI_ERF_A4 (0.5f * -1.453152027f)
#define FTKI_ERF_A5 (0.5f * 1.061405429f)
#define FTKI_ERF_EXPONENT (-0.5f * FTKI_LOG2E)
/* Beyond, erfc is 0 in floats; infinities stop here. */
#define FTKI_ERF_FAR 16.0f

#endif

// SPDX-License-Identifier: Apache-2.0
/* Overlays the slots that slots.def lists. */
#include "kernels/tables.h"

void ftki_table_avx512(ftki_kernels *t) {
    (void)t;
#define X(slot) t->slot = ftki_##slot##_avx512;
#include "kernels/avx512/slots.def"
}

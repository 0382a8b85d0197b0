// SPDX-License-Identifier: Apache-2.0
/* Overlays the slots that slots.def lists. */
#include "kernels/tables.h"

void ftki_table_avx2(ftki_kernels *t) {
    (void)t;
#define X(slot) t->slot = ftki_##slot##_avx2;
#include "kernels/avx2/slots.def"
}

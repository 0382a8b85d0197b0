// SPDX-License-Identifier: Apache-2.0
/* Overlays the slots that slots.def lists. */
#include "kernels/tables.h"

void ftki_table_i8mm(ftki_kernels *t) {
    (void)t;
#define X(slot) t->slot = ftki_##slot##_i8mm;
#include "kernels/neon/slots_i8mm.def"
}

// SPDX-License-Identifier: Apache-2.0
/* The kernels behind the tables: ftki_<slot>_<isa>, declared for every slot and level from
 * kernels.def, and the tables' fillers. Which of them exist is said by the slots.def of each ISA
 * folder; a filler replaces only those slots. */
#ifndef FTKI_KERNELS_TABLES_H
#define FTKI_KERNELS_TABLES_H

#include "kernels/kernels.h"

#define FTKI_SLOT_TYPE(slot) __typeof__(*((ftki_kernels *)0)->slot)

#define X(slot) FTKI_SLOT_TYPE(slot) ftki_##slot##_scalar;
#include "kernels/kernels.def"
#define X(slot) FTKI_SLOT_TYPE(slot) ftki_##slot##_avx2;
#include "kernels/kernels.def"
#define X(slot) FTKI_SLOT_TYPE(slot) ftki_##slot##_avx512;
#include "kernels/kernels.def"
#define X(slot) FTKI_SLOT_TYPE(slot) ftki_##slot##_neon;
#include "kernels/kernels.def"
#define X(slot) FTKI_SLOT_TYPE(slot) ftki_##slot##_i8mm;
#include "kernels/kernels.def"

void ftki_table_scalar(ftki_kernels *t);
void ftki_table_avx2(ftki_kernels *t);
void ftki_table_avx512(ftki_kernels *t);
void ftki_table_neon(ftki_kernels *t);
void ftki_table_i8mm(ftki_kernels *t);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The scalar table: the specification, complete. */
#include "kernels/tables.h"

/* A slot of the struct that kernels.def does not list would stay empty. */
enum {
#define X(slot) COUNT_##slot,
#include "kernels/kernels.def"
    N_SLOTS
};
_Static_assert(sizeof(ftki_kernels) == sizeof(char *) + N_SLOTS * sizeof(void (*)(void)),
               "kernels.def must list every slot of ftki_kernels");

void ftki_table_scalar(ftki_kernels *t) {
#define X(slot) t->slot = ftki_##slot##_scalar;
#include "kernels/kernels.def"
}

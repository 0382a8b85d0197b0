// SPDX-License-Identifier: Apache-2.0
/* The harness is trusted only because it catches planted bugs: every mutant of mutants.def must
 * fail its slot's check within a few seeds, and the scalar kernels must pass all of them. */
#include <string.h>

#include "kernels/harness.h"

#define X(slot, name, as_scalar) FTKI_SLOT_TYPE(slot) mutant_##name;
#include "kernels/mutants.def"

static void (*check_named(const char *slot))(ht *) {
    for (const ht_check *c = ht_checks; c->name; c++)
        if (!strcmp(c->name, slot)) return c->run;
    return NULL;
}

enum { SEEDS = 4 };

/* Fails at some seed, as an optimised level or as the specification. */
static bool caught(ht *t, void (*check)(ht *), const ftki_kernels *mutant, bool as_scalar) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (ht_run(t, check, mutant, as_scalar ? mutant : ftki_kernels_at(0), seed)) return true;
    return false;
}

static int examine(ht *t, const char *slot, const char *name, const ftki_kernels *mutant, bool as_scalar) {
    int survived = 0;
    for (int mode = 0; mode <= as_scalar; mode++) {
        if (caught(t, check_named(slot), mutant, mode)) {
            printf("caught   %s%s: %s\n", name, mode ? " as the specification" : "", t->message);
        } else {
            printf("SURVIVED %s%s\n", name, mode ? " as the specification" : "");
            survived++;
        }
    }
    return survived;
}

int main(void) {
    static ht t;
    const ftki_kernels *scalar = ftki_kernels_at(0);
    int bad = 0, n = 0;
    for (const ht_check *c = ht_checks; c->name; c++) {
        if (caught(&t, c->run, scalar, true)) {
            printf("FALSE ALARM %s: %s\n", c->name, t.message);
            bad++;
        }
    }
#define X(slot_, name, as_scalar)                                   \
    {                                                               \
        ftki_kernels mutant = *scalar;                              \
        mutant.slot_ = mutant_##name;                               \
        bad += examine(&t, #slot_, #name, &mutant, as_scalar);      \
        n++;                                                        \
    }
#include "kernels/mutants.def"
    printf("%d mutants, %d problems\n", n, bad);
    return bad != 0;
}

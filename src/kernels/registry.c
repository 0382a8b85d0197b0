// SPDX-License-Identifier: Apache-2.0
/* The registry of kernel tables. Plain C fills every slot of every table; then an ascending
 * ladder of fillers replaces slots, so a level inherits what it does not improve. Tables of
 * levels this machine cannot run do not exist. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernels/cpu.h"
#include "kernels/tables.h"

enum { MAX_LEVELS = 4 };

static const char *const level_names[] = {"scalar", "avx2", "avx512", "neon", "i8mm"};
static ftki_kernels tables[MAX_LEVELS];
static size_t n_tables;

/* The new level starts as a copy of the one below it. */
#if defined(__x86_64__) || defined(__aarch64__)
static void climb(bool runs, const char *name, void (*fill)(ftki_kernels *)) {
    if (!runs) return;
    tables[n_tables] = tables[n_tables - 1];
    fill(&tables[n_tables]);
    tables[n_tables++].name = name;
}
#endif

static void build(void) {
    ftki_table_scalar(&tables[0]);
    tables[0].name = level_names[0];
    n_tables = 1;
#if defined(__x86_64__)
    climb(ftki_cpu_get()->avx2, level_names[1], ftki_table_avx2);
    climb(ftki_cpu_get()->avx512, level_names[2], ftki_table_avx512);
#elif defined(__aarch64__)
    climb(ftki_cpu_get()->neon, level_names[3], ftki_table_neon);
    climb(ftki_cpu_get()->i8mm, level_names[4], ftki_table_i8mm);
#endif
}

const ftki_kernels *ftki_kernels_at(size_t i) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    return i < n_tables ? &tables[i] : NULL;
}

static void describe_choices(char *text, size_t cap) {
    const ftki_kernels *t;
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; (t = ftki_kernels_at(i)) != NULL && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, i ? ", %s" : "%s", t->name);
}

ftk_status ftki_kernels_choose(const ftki_kernels **out, const char *name, ftk_error *e) {
    const char *origin = "isa";
    if (!name) {
        name = getenv("FREETOKEN_ISA");
        origin = "FREETOKEN_ISA";
    }
    const ftki_kernels *t, *best = NULL;
    for (size_t i = 0; (t = ftki_kernels_at(i)) != NULL; i++) {
        best = t;
        if (name && !strcmp(name, t->name)) {
            *out = t;
            return FTK_OK;
        }
    }
    if (!name || !name[0]) {
        *out = best;
        return FTK_OK;
    }
    char choices[64];
    describe_choices(choices, sizeof choices);
    for (size_t i = 0; i < sizeof level_names / sizeof level_names[0]; i++)
        if (!strcmp(name, level_names[i]))
            return ftki_fail(e, FTK_UNSUPPORTED,
                             "%s: this machine cannot run \"%s\"; it can run %s", origin, name,
                             choices);
    return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s: unknown level \"%s\"; choose one of %s", origin,
                     name, choices);
}

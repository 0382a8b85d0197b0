// SPDX-License-Identifier: Apache-2.0
/* Runs the checks of the kernels: every level this machine has against the scalar one.
 *
 *   kernels_test [--list] [--seed N] [--rounds N] [--level NAME] [slot ...]
 *   kernels_test --bench [--threads N] [--only PART-OF-LABEL] [--level NAME] [slot ...]
 *
 * The seed is new in every run and printed; a failure prints the command that repeats it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/harness.h"

typedef struct options {
    uint64_t seed;
    int rounds;
    const char *level;
    bool bench;
    int32_t threads;
    const char *only;
    char **slots;
    int n_slots;
} options;

static bool wanted(const options *o, const char *slot) {
    for (int i = 0; i < o->n_slots; i++)
        if (strstr(slot, o->slots[i])) return true;
    return o->n_slots == 0;
}

static int usage(void) {
    fprintf(stderr, "usage: kernels_test [--list] [--seed N] [--rounds N] [--level NAME] "
                    "[--bench [--threads N] [--only PART-OF-LABEL]] [part of a slot's name ...]\n");
    return 2;
}

static int list(void) {
    const ftki_kernels *k;
    printf("levels:");
    for (size_t i = 0; (k = ftki_kernels_at(i)) != NULL; i++) printf(" %s", k->name);
    printf("\nslots:");
    for (const ht_check *c = ht_checks; c->name; c++) printf(" %s", c->name);
    printf("\n");
    return 0;
}

/* 0: all well; 1: the check failed. */
static int run_check(const options *o, const ht_check *check, const ftki_kernels *table) {
    static ht t;
    t.bench = o->bench;
    t.only = o->only;
    if (o->bench && !t.team && ftki_team_open(&t.team, o->threads, NULL) != FTK_OK) return 1;
    for (int round = 0; round < (o->bench ? 1 : o->rounds); round++) {
        uint64_t seed = o->seed + (uint64_t)round;
        if (ht_run(&t, check->run, table, ftki_kernels_at(0), seed) == 0) continue;
        printf("FAILED %s %s: %s\n  repeat: kernels_test --seed %llu --rounds 1 --level %s %s\n",
               table->name, check->name, t.message, (unsigned long long)seed, table->name, check->name);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    options o = {.seed = (uint64_t)time(NULL) & 0xffffff, .rounds = 3, .threads = 1};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--list")) return list();
        if (!strcmp(argv[i], "--bench")) o.bench = true;
        else if (!strcmp(argv[i], "--seed") && more) o.seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--rounds") && more) o.rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--threads") && more) o.threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--only") && more) o.only = argv[++i];
        else if (!strcmp(argv[i], "--level") && more) o.level = argv[++i];
        else if (argv[i][0] == '-') return usage();
        else {
            o.slots = argv + i;
            o.n_slots = argc - i;
            break;
        }
    }
    printf("cpu: %s; seed %llu\n", ftki_cpu_features(), (unsigned long long)o.seed);
    int failed = 0, ran = 0;
    const ftki_kernels *table;
    for (size_t i = 0; (table = ftki_kernels_at(i)) != NULL; i++) {
        if (o.level && strcmp(o.level, table->name)) continue;
        int before = failed, count = 0;
        for (const ht_check *c = ht_checks; c->name; c++) {
            if (!wanted(&o, c->name)) continue;
            failed += run_check(&o, c, table);
            count++;
        }
        ran += count;
        printf("%s: %d of %d checks passed\n", table->name, count - (failed - before), count);
    }
    if (!ran) fprintf(stderr, "nothing to run: no such level or slot; see --list\n");
    return failed || !ran;
}

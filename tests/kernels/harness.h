// SPDX-License-Identifier: Apache-2.0
/* The harness of the kernels. Each slot of kernels.def has one check, check_<slot>, which runs the
 * slot of the table under test on adversarial inputs and compares it with the scalar one, and the
 * scalar one with an independent reference in double precision. A slot without a check does not
 * link. Owns guarded memory, random inputs, comparing, timing, and catching faults.
 *
 * A check reports through ht_fail and goes on or returns as it likes; only the first message is
 * kept. Memory from ht_alloc lives until the check ends. */
#ifndef FTK_TESTS_KERNELS_HARNESS_H
#define FTK_TESTS_KERNELS_HARNESS_H

#include <setjmp.h>
#include <stdio.h>

#include "base/rng.h"
#include "base/threads.h"
#include "kernels/tables.h"

typedef struct ht_region {
    unsigned char *map;   /* guard page, room, guard page */
    size_t map_bytes;
    unsigned char *begin; /* what the check got, [bytes] */
    size_t bytes;
} ht_region;

enum { HT_MAX_REGIONS = 64 };

typedef struct ht {
    const ftki_kernels *table;  /* under test */
    const ftki_kernels *scalar; /* what it is compared with; the same for the scalar level */
    ftki_rng rng;
    bool bench;                 /* also time the calls; sizes of interest instead of awkward ones */
    const char *only;           /* bench only: time what has this in its label; NULL: all */
    ftki_team *team;            /* bench only: for timing on several threads */
    int failures;
    char message[512];          /* the first failure */
    ht_region regions[HT_MAX_REGIONS];
    int n_regions;
    sigjmp_buf fault;
} ht;

#define X(slot) void check_##slot(ht *t);
#include "kernels/kernels.def"

void ht_fail(ht *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Memory whose end (rounded up to `align`, a power of two) lies against an inaccessible page, and
 * whose start has canaries and then one before it. Filled with canary bytes. Writing outside
 * `bytes` is found when the check ends, or faults at once. */
void *ht_alloc(ht *t, size_t bytes, size_t align);
#define HT_CANARY 0xa5
/* Ends the life of what was allocated so far, looking at its canaries. */
void ht_release(ht *t);

/* [0, n) */
int32_t ht_below(ht *t, int32_t n);

/* Patterns of floats for the inputs of kernels. */
typedef enum ht_pattern {
    HT_PLAIN,    /* -1..1 */
    HT_ZEROS,
    HT_DENORMAL, /* below the smallest normal number */
    HT_HUGE,     /* up to 1e30 */
    HT_SPIKES,   /* small with rare large ones */
    HT_SPECIAL,  /* plain with NaN, infinities and -0 sprinkled */
    HT_N_PATTERNS
} ht_pattern;
const char *ht_pattern_name(ht_pattern p);
void ht_floats(ht *t, float *x, size_t n, ht_pattern pattern);

/* Fails unless got [n] and want [n] have the same bits, NaN equal to NaN. `where` is for the
 * message. Returns whether they are equal. */
bool ht_same(ht *t, const float *got, const float *want, size_t n, const char *where);
bool ht_same_bytes(ht *t, const void *got, const void *want, size_t n, const char *where);
/* Fails unless |got - want| <= bound. */
bool ht_near(ht *t, double got, double want, double bound, const char *where);
/* Fails unless bytes [n] at p are still canaries. */
bool ht_untouched(ht *t, const void *p, size_t n, const char *where);

/* With --bench: repeats `call`, the one the check makes anyway, and prints the median of the time
 * of one, operations/s (`ops` each, 0: not said), the median share of the level's INT8 peak, which
 * is measured anew beside each sample since machines drift, and bytes/s. */
#define HT_BENCH(t, label, ops, bytes, call) HT_BENCH_THREADS(t, label, ops, bytes, 1, call)
#define HT_BENCH_THREADS(t, label, ops, bytes, n_threads, call)                            \
    do {                                                                                   \
        if (ht_timed(t, label)) {                                                          \
            ht_timer timer_ = ht_timer_open(t);                                            \
            while (ht_timer_next(&timer_)) { call; }                                       \
            ht_timer_report(t, &timer_, label, (double)(ops), (double)(bytes), n_threads); \
        }                                                                                  \
    } while (0)
bool ht_timed(const ht *t, const char *label);

enum { HT_SAMPLES = 31 };
typedef struct ht_timer {
    double sample[HT_SAMPLES]; /* seconds of a call */
    double peak[HT_SAMPLES];   /* operations/s of one thread */
    double started;
    int n;       /* samples taken */
    int inner;   /* calls of a sample */
    int left;    /* calls left in this one */
    ht *t;
} ht_timer;
ht_timer ht_timer_open(ht *t);
bool ht_timer_next(ht_timer *timer);
void ht_timer_report(ht *t, ht_timer *timer, const char *label, double ops, double bytes,
                     int32_t n_threads);

/* Runs one check: `table` against `scalar`, from `seed`; returns its failures, the first of which
 * is in t->message. */
int ht_run(ht *t, void (*check)(ht *), const ftki_kernels *table, const ftki_kernels *scalar,
           uint64_t seed);

typedef struct ht_check {
    const char *name;
    void (*run)(ht *);
} ht_check;
extern const ht_check ht_checks[]; /* one per slot, in kernels.def's order, then {NULL, NULL} */

#endif

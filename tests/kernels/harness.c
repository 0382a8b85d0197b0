// SPDX-License-Identifier: Apache-2.0
/* Guarded memory, inputs, comparing, timing and fault catching; see harness.h. */
#include "kernels/harness.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const ht_check ht_checks[] = {
#define X(slot) {#slot, check_##slot},
#include "kernels/kernels.def"
    {NULL, NULL}};

void ht_fail(ht *t, const char *format, ...) {
    if (t->failures++) return;
    va_list args;
    va_start(args, format);
    vsnprintf(t->message, sizeof t->message, format, args);
    va_end(args);
}

/* ----------------------------------------------------------------- memory */

void *ht_alloc(ht *t, size_t bytes, size_t align) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + align + page - 1) / page * page + page;
    if (t->n_regions == HT_MAX_REGIONS) {
        fprintf(stderr, "harness: too many regions in one check\n");
        exit(2);
    }
    ht_region *r = &t->regions[t->n_regions];
    r->map_bytes = room + 2 * page;
    r->map = mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->map == MAP_FAILED || mprotect(r->map, page, PROT_NONE) ||
        mprotect(r->map + page + room, page, PROT_NONE)) {
        fprintf(stderr, "harness: no memory\n");
        exit(2);
    }
    memset(r->map + page, HT_CANARY, room);
    r->begin = r->map + page + room - (bytes + align - 1) / align * align;
    r->bytes = bytes;
    t->n_regions++;
    return r->begin;
}

static void check_canaries(ht *t, const ht_region *r) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *end = r->map + r->map_bytes - page;
    for (const unsigned char *p = r->map + page; p < end; p++) {
        if (p == r->begin) p += r->bytes;
        if (p < end && *p != HT_CANARY) {
            ht_fail(t, "wrote outside a buffer of %zu bytes, at %td", r->bytes, p - r->begin);
            return;
        }
    }
}

void ht_release(ht *t) {
    for (int i = 0; i < t->n_regions; i++) {
        check_canaries(t, &t->regions[i]);
        munmap(t->regions[i].map, t->regions[i].map_bytes);
    }
    t->n_regions = 0;
}

/* ----------------------------------------------------------------- inputs */

int32_t ht_below(ht *t, int32_t n) { return (int32_t)(ftki_rng_u32(&t->rng) % (uint32_t)n); }

const char *ht_pattern_name(ht_pattern p) {
    static const char *const names[] = {"plain", "zeros", "denormal", "huge", "spikes", "special"};
    return names[p];
}

static float pattern_value(ht *t, ht_pattern pattern) {
    float u = ftki_rng_float(&t->rng) * 2.0f - 1.0f;
    switch (pattern) {
    case HT_ZEROS: return 0.0f;
    case HT_DENORMAL: return u * 1e-39f;
    case HT_HUGE: return u * 1e30f;
    case HT_SPIKES: return ht_below(t, 40) == 0 ? u * 100.0f : u * 0.01f;
    case HT_SPECIAL:
        switch (ht_below(t, 24)) {
        case 0: return NAN;
        case 1: return INFINITY;
        case 2: return -INFINITY;
        case 3: return -0.0f;
        default: return u;
        }
    default: return u;
    }
}

void ht_floats(ht *t, float *x, size_t n, ht_pattern pattern) {
    for (size_t i = 0; i < n; i++) x[i] = pattern_value(t, pattern);
}

/* -------------------------------------------------------------- comparing */

bool ht_same(ht *t, const float *got, const float *want, size_t n, const char *where) {
    for (size_t i = 0; i < n; i++) {
        if (!memcmp(got + i, want + i, sizeof *got) || (isnan(got[i]) && isnan(want[i]))) continue;
        ht_fail(t, "%s: [%zu] is %.9g (%a), should be %.9g (%a)", where, i, (double)got[i],
                (double)got[i], (double)want[i], (double)want[i]);
        return false;
    }
    return true;
}

bool ht_same_bytes(ht *t, const void *got, const void *want, size_t n, const char *where) {
    const unsigned char *a = got, *b = want;
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i]) continue;
        ht_fail(t, "%s: byte %zu is %d, should be %d", where, i, a[i], b[i]);
        return false;
    }
    return true;
}

bool ht_near(ht *t, double got, double want, double bound, const char *where) {
    if (fabs(got - want) <= bound) return true;
    ht_fail(t, "%s: %.9g, should be %.9g within %.3g", where, got, want, bound);
    return false;
}

bool ht_untouched(ht *t, const void *p, size_t n, const char *where) {
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == HT_CANARY) continue;
        ht_fail(t, "%s: wrote where nothing belongs, byte %zu of %zu", where, i, n);
        return false;
    }
    return true;
}

/* ----------------------------------------------------------------- timing */

ht_timer ht_timer_open(ht *t) { return (ht_timer){.t = t}; }

bool ht_timed(const ht *t, const char *label) {
    return t->bench && (!t->only || strstr(label, t->only));
}

static double peak_now(const ht *t) {
    t->table->dot_peak(100);
    double begin = ftki_seconds();
    uint64_t ops = t->table->dot_peak(5000);
    return (double)ops / (ftki_seconds() - begin);
}

/* The first sample finds out how many calls make a millisecond and is thrown away. */
bool ht_timer_next(ht_timer *timer) {
    if (timer->left > 0) {
        timer->left--;
        return true;
    }
    double now = ftki_seconds();
    if (timer->started > 0) {
        double each = (now - timer->started) / timer->inner;
        if (timer->inner == 1 && each < 1e-3) {
            timer->inner = (int)(1e-3 / (each > 1e-8 ? each : 1e-8)) + 1;
        } else {
            timer->peak[timer->n] = peak_now(timer->t);
            timer->sample[timer->n++] = each;
        }
        if (timer->n == HT_SAMPLES) return false;
    } else {
        timer->inner = 1;
    }
    timer->left = timer->inner - 1;
    timer->started = ftki_seconds();
    return true;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ht_timer_report(ht *t, ht_timer *timer, const char *label, double ops, double bytes,
                     int32_t n_threads) {
    double share[HT_SAMPLES];
    for (int i = 0; i < HT_SAMPLES; i++)
        share[i] = 100 * ops / timer->sample[i] / (timer->peak[i] * n_threads);
    qsort(share, HT_SAMPLES, sizeof share[0], by_value);
    qsort(timer->sample, HT_SAMPLES, sizeof timer->sample[0], by_value);
    double median = timer->sample[HT_SAMPLES / 2], best = timer->sample[0];
    printf("  %-7s %-40s %9.1f us (best %9.1f)", t->table->name, label, median * 1e6, best * 1e6);
    if (ops > 0)
        printf("  %7.1f GOP/s (best %7.1f)  %5.1f %% of peak", ops / median * 1e-9,
               ops / best * 1e-9, share[HT_SAMPLES / 2]);
    if (bytes > 0) printf("  %6.2f GB/s (best %6.2f)", bytes / median * 1e-9, bytes / best * 1e-9);
    printf("\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------- running */

static ht *running;

static void on_fault(int signal_number) {
    (void)signal_number;
    siglongjmp(running->fault, 1);
}

int ht_run(ht *t, void (*check)(ht *), const ftki_kernels *table, const ftki_kernels *scalar,
           uint64_t seed) {
    struct sigaction catch = {.sa_handler = on_fault, .sa_flags = SA_NODEFER}, old_segv, old_bus;
    t->table = table;
    t->scalar = scalar;
    t->failures = 0;
    t->message[0] = '\0';
    ftki_rng_seed(&t->rng, seed);
    running = t;
    sigaction(SIGSEGV, &catch, &old_segv);
    sigaction(SIGBUS, &catch, &old_bus);
    if (sigsetjmp(t->fault, 1) == 0) check(t);
    else ht_fail(t, "reached outside its memory (fault)");
    sigaction(SIGSEGV, &old_segv, NULL);
    sigaction(SIGBUS, &old_bus, NULL);
    ht_release(t);
    return t->failures;
}

// SPDX-License-Identifier: Apache-2.0
/* The machine: what it is, and its roofline measured with the kernels' own widest loads and dot
 * products. Owns nothing that outlives a call. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/kernels.h"

static uint64_t memory_available(uint64_t page) {
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (f) {
        char line[128];
        while (fgets(line, sizeof line, f)) {
            unsigned long long value;
            if (sscanf(line, "MemAvailable: %llu kB", &value) == 1) kib = value;
        }
        fclose(f);
    }
    if (kib) return kib * 1024;
#ifdef _SC_AVPHYS_PAGES
    long pages = sysconf(_SC_AVPHYS_PAGES);
    return pages > 0 ? (uint64_t)pages * page : 0;
#else
    return 0;
#endif
}

/* "always [madvise] never": the chosen one is in brackets. */
static bool huge_pages_by_madvise(void) {
    char text[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return strstr(text, "[always]") || strstr(text, "[madvise]");
}

void ftk_machine_get(ftk_machine *out) {
    const ftki_kernels *k = NULL;
    if (ftki_kernels_choose(&k, NULL, NULL) != FTK_OK) k = ftki_kernels_at(0);
    long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
    uint64_t page_bytes = page > 0 ? (uint64_t)page : 4096;
    *out = (ftk_machine){.cpu = ftki_cpu_features(),
                         .isa = k->name,
                         .n_cores = ftki_online_cores(),
                         .memory_bytes = pages > 0 ? (uint64_t)pages * page_bytes : 0,
                         .memory_free = memory_available(page_bytes),
                         .huge_pages = huge_pages_by_madvise()};
}

/* --------------------------------------------------------------- roofline */

enum { READ_BYTES = 96 << 20, READ_PIECE = 1 << 20 };

typedef struct measurement {
    const ftki_kernels *kernels;
    ftki_team *team;
    const unsigned char *data; /* [READ_BYTES] */
    int64_t iterations;        /* of the dot product, per worker */
    uint64_t done[256];        /* by each worker: operations, or sums that keep the reads alive */
} measurement;

static void touch(void *ctx, int32_t worker, int32_t n_workers) {
    measurement *m = ctx;
    (void)worker, (void)n_workers;
    for (int32_t piece; (piece = ftki_team_next(m->team)) < READ_BYTES / READ_PIECE;)
        memset((unsigned char *)(uintptr_t)m->data + (size_t)piece * READ_PIECE, 1, READ_PIECE);
}

static void read_all(void *ctx, int32_t worker, int32_t n_workers) {
    measurement *m = ctx;
    (void)n_workers;
    for (int32_t piece; (piece = ftki_team_next(m->team)) < READ_BYTES / READ_PIECE;)
        m->done[worker] += m->kernels->sum_words(
            (const uint64_t *)(const void *)(m->data + (size_t)piece * READ_PIECE), READ_PIECE / 8);
}

static void multiply(void *ctx, int32_t worker, int32_t n_workers) {
    measurement *m = ctx;
    (void)n_workers;
    m->done[worker] = m->kernels->dot_peak(m->iterations);
}

/* Runs fn again and again for about `seconds`; the time of the fastest run. */
static double fastest(measurement *m, ftki_team_fn fn, double seconds) {
    double best = INFINITY, begin = ftki_seconds(), now = begin;
    do {
        ftki_team_run(m->team, fn, m);
        double then = now;
        now = ftki_seconds();
        if (now - then < best) best = now - then;
    } while (now - begin < seconds);
    return best;
}

static void measure(measurement *m, double seconds, double *bandwidth, double *peak) {
    ftki_team_run(m->team, touch, m);
    *bandwidth = READ_BYTES / fastest(m, read_all, seconds);

    m->iterations = 1000;
    double each = fastest(m, multiply, 0.01) / 1000; /* long enough to outweigh starting the team */
    m->iterations = (int64_t)(0.01 / each) + 1;
    double run = fastest(m, multiply, seconds);
    uint64_t ops = 0;
    for (int32_t i = 0; i < ftki_team_size(m->team); i++) ops += m->done[i];
    *peak = (double)ops / run;
}

ftk_status ftk_machine_measure(int32_t n_threads, double seconds, double *bytes_per_second,
                               double *int8_ops_per_second, ftk_error *e) {
    if (!bytes_per_second || !int8_ops_per_second)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "measuring needs a place for both results");
    if (!(seconds >= 0 && seconds <= 60))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "seconds must be from 0 to 60");
    measurement m = {0};
    ftki_arena arena = {0};
    double bandwidth, peak;
    ftk_status s = ftki_kernels_choose(&m.kernels, NULL, e);
    if (s != FTK_OK) goto end;
    s = ftki_team_open(&m.team, n_threads, e);
    if (s != FTK_OK) goto end;
    size_t at = ftki_arena_plan(&arena, READ_BYTES, 1);
    s = ftki_arena_commit(&arena, e);
    if (s != FTK_OK) goto end;
    m.data = ftki_arena_at(&arena, at);
    measure(&m, seconds, &bandwidth, &peak);
    *bytes_per_second = bandwidth;
    *int8_ops_per_second = peak;
end:
    ftki_team_close(m.team);
    ftki_arena_close(&arena);
    return s;
}

// SPDX-License-Identifier: Apache-2.0
/* The team: every index once per stage, stages in order, more threads than cores, two teams side
 * by side, and no processor time when idle. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/memory.h"
#include "base/threads.h"
#include "sanitized.h"

enum { STAGES = 40, INDICES = 100 };

typedef struct board {
    ftki_team *team;
    atomic_int taken[STAGES][INDICES];
    int values[STAGES + 1][INDICES]; /* not atomic: the barrier must order these */
    atomic_int wrong;
    atomic_int calls;
    unsigned jitter;
} board;

static void pause_for(unsigned nanoseconds) {
    const struct timespec t = {0, (long)nanoseconds};
    if (nanoseconds > 0) nanosleep(&t, NULL);
}

static ftki_team *open_team(int32_t n_threads) {
    ftki_team *t = NULL;
    ftk_error e;
    if (ftki_team_open(&t, n_threads, &e) != FTK_OK) {
        print_error("%s\n", e.message);
        abort();
    }
    return t;
}

/* Stage s+1 of index i is made from stage s of indices i and i+1, so a worker that runs ahead of
 * the barrier, or sees old values, gives a wrong number. */
static void pascal(void *ctx, int32_t worker, int32_t n_workers) {
    board *b = ctx;
    atomic_fetch_add(&b->calls, 1);
    if (worker < 0 || worker >= n_workers) atomic_fetch_add(&b->wrong, 1);
    for (int s = 0; s < STAGES; s++) {
        for (int32_t i; (i = ftki_team_next(b->team)) < INDICES;) {
            atomic_fetch_add(&b->taken[s][i], 1);
            b->values[s + 1][i] = (b->values[s][i] + b->values[s][(i + 1) % INDICES]) % 10007;
            if (b->jitter != 0 && (i * 7 + s + worker) % 13 == 0) pause_for(b->jitter);
        }
        ftki_team_barrier(b->team);
    }
}

static void expected_values(int values[STAGES + 1][INDICES]) {
    for (int i = 0; i < INDICES; i++) values[0][i] = i * i % 97;
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < INDICES; i++)
            values[s + 1][i] = (values[s][i] + values[s][(i + 1) % INDICES]) % 10007;
}

static void check_runs(int32_t n_threads, int runs, unsigned jitter) {
    static int expected[STAGES + 1][INDICES];
    static board b;
    expected_values(expected);
    b.team = open_team(n_threads);
    assert_int_equal(ftki_team_size(b.team), n_threads);
    for (int r = 0; r < runs; r++) {
        memset(b.taken, 0, sizeof b.taken);
        memset(b.values, 0, sizeof b.values);
        memcpy(b.values[0], expected[0], sizeof b.values[0]);
        atomic_store(&b.calls, 0);
        atomic_store(&b.wrong, 0);
        b.jitter = jitter;
        ftki_team_run(b.team, pascal, &b);
        assert_int_equal(atomic_load(&b.calls), n_threads);
        assert_int_equal(atomic_load(&b.wrong), 0);
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < INDICES; i++) assert_int_equal(atomic_load(&b.taken[s][i]), 1);
        assert_memory_equal(b.values, expected, sizeof expected);
    }
    ftki_team_close(b.team);
}

static void one_thread(void **state) { (void)state; check_runs(1, 20, 0); }
static void two_threads(void **state) { (void)state; check_runs(2, 50, 0); }
static void more_threads_than_cores(void **state) {
    (void)state;
    check_runs(3, 10, 0);
    check_runs(ftki_online_cores() * 4 + 1, 4, 0);
}
static void threads_that_dawdle(void **state) {
    (void)state;
    check_runs(2, 2, 300000); /* past the spinning: sleeps and wakes */
    check_runs(5, 2, 300000);
}

static void count_calls(void *ctx, int32_t worker, int32_t n_workers) {
    (void)worker, (void)n_workers;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static void many_short_runs(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        ftki_team *t = open_team(n);
        atomic_int calls = 0;
        for (int r = 0; r < 3000; r++) {
            ftki_team_run(t, count_calls, &calls);
            if (r % 500 == 499) pause_for(1000000); /* let the workers fall asleep */
            assert_int_equal(atomic_load(&calls), (r + 1) * n);
        }
        ftki_team_close(t);
    }
    for (int i = 0; i < 50; i++) { /* opened and closed without a run */
        ftki_team *t = open_team(3);
        ftki_team_close(t);
    }
    ftki_team_close(NULL);
}

static void *side(void *arg) {
    board *b = arg;
    for (int r = 0; r < 10; r++) {
        memset(b->taken, 0, sizeof b->taken);
        ftki_team_run(b->team, pascal, b);
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < INDICES; i++)
                if (atomic_load(&b->taken[s][i]) != 1) atomic_fetch_add(&b->wrong, 1);
    }
    return NULL;
}

static void two_teams_side_by_side(void **state) {
    (void)state;
    static board boards[2];
    static int expected[STAGES + 1][INDICES];
    pthread_t threads[2];
    expected_values(expected);
    for (int k = 0; k < 2; k++) {
        memcpy(boards[k].values[0], expected[0], sizeof expected[0]);
        boards[k].team = open_team(2);
        assert_int_equal(pthread_create(&threads[k], NULL, side, &boards[k]), 0);
    }
    for (int k = 0; k < 2; k++) {
        pthread_join(threads[k], NULL);
        ftki_team_close(boards[k].team);
        assert_int_equal(atomic_load(&boards[k].wrong), 0);
        assert_memory_equal(boards[k].values, expected, sizeof expected);
    }
}

static void all_signals_blocked(void *ctx, int32_t worker, int32_t n_workers) {
    (void)n_workers;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (worker > 0 && sigismember(&mask, SIGINT) != 1) atomic_store((atomic_int *)ctx, 1);
    if (worker == 0 && sigismember(&mask, SIGINT) != 0) atomic_store((atomic_int *)ctx, 1);
}

static void signals_stay_with_the_program(void **state) {
    (void)state;
    ftki_team *t = open_team(3);
    atomic_int wrong = 0;
    ftki_team_run(t, all_signals_blocked, &wrong);
    ftki_team_close(t);
    assert_int_equal(atomic_load(&wrong), 0);
}

static double processor_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void an_idle_team_uses_no_processor_time(void **state) {
    (void)state;
    ftki_team *t = open_team(4);
    atomic_int calls = 0;
    ftki_team_run(t, count_calls, &calls);
    pause_for(50000000); /* longer than any spinning */
    double before = processor_seconds();
    pause_for(200000000);
    double used = processor_seconds() - before;
    ftki_team_close(t);
    /* One of the three workers spinning would use 0.2 s; clocks and sanitizers use a little. */
    assert_true(used < 0.02);
}

static void refused_sizes(void **state) {
    (void)state;
    ftki_team *t = NULL;
    ftk_error e;
    assert_int_equal(ftki_team_open(&t, -1, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "-1 threads"));
    assert_int_equal(ftki_team_open(&t, 257, &e), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftki_team_open(&t, INT32_MAX, &e), FTK_INVALID_ARGUMENT);
    ftki_alloc_fail_at(1);
    assert_int_equal(ftki_team_open(&t, 2, &e), FTK_OUT_OF_MEMORY);
    ftki_alloc_fail_at(0);
    assert_null(t);
    assert_int_equal(ftki_team_open(&t, 0, &e), FTK_OK);
    assert_int_equal(ftki_team_size(t), ftki_online_cores());
    ftki_team_close(t);
}

static void threads_that_cannot_be_started(void **state) {
    (void)state;
#ifdef SANITIZED
    skip(); /* the sanitizers' own memory does not fit the limit */
#else
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)256 << 20; /* room for some stacks of 8 MiB, not for 256 */
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    ftki_team *t = NULL;
    ftk_error e = {0};
    ftk_status s = ftki_team_open(&t, 256, &e);
    setrlimit(RLIMIT_AS, &old);
    assert_int_equal(s, FTK_OUT_OF_MEMORY);
    assert_null(t);
    assert_non_null(strstr(e.message, "of 256"));
    assert_non_null(strstr(e.message, "use fewer threads"));
#endif
}

static void the_clock_runs(void **state) {
    (void)state;
    double a = ftki_seconds();
    pause_for(2000000);
    double b = ftki_seconds();
    assert_true(b - a >= 0.002);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(more_threads_than_cores),
        cmocka_unit_test(threads_that_dawdle),
        cmocka_unit_test(many_short_runs),
        cmocka_unit_test(two_teams_side_by_side),
        cmocka_unit_test(signals_stay_with_the_program),
        cmocka_unit_test(an_idle_team_uses_no_processor_time),
        cmocka_unit_test(refused_sizes),
        cmocka_unit_test(threads_that_cannot_be_started),
        cmocka_unit_test(the_clock_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

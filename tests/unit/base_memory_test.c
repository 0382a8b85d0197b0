// SPDX-License-Identifier: Apache-2.0
/* Allocation, its test hooks, and the arena. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/threads.h"

static void checked_arithmetic(void **state) {
    (void)state;
    size_t r = 7;
    assert_false(ftki_mul_size(SIZE_MAX / 2 + 1, 2, &r));
    assert_false(ftki_add_size(SIZE_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_true(ftki_mul_size(SIZE_MAX / 2, 2, &r));
    assert_true(r == SIZE_MAX - 1);
    assert_true(ftki_add_size(r, 1, &r));
    assert_true(r == SIZE_MAX);
}

static void alloc_zeroes_and_refuses_overflow(void **state) {
    (void)state;
    unsigned char *p = ftki_alloc(1000, 3);
    assert_non_null(p);
    for (int i = 0; i < 3000; i++) assert_int_equal(p[i], 0);
    memset(p, 5, 3000);
    p = ftki_realloc(p, 2000, 3);
    assert_non_null(p);
    for (int i = 0; i < 3000; i++) assert_int_equal(p[i], 5);
    assert_null(ftki_realloc(p, SIZE_MAX / 2, 3));
    assert_int_equal(p[2999], 5); /* the old block stays */
    ftki_free(p);
    assert_null(ftki_alloc(SIZE_MAX / 2, 3));
    assert_null(ftki_alloc(SIZE_MAX, 1));
    p = ftki_alloc(0, 8);
    assert_non_null(p);
    ftki_free(p);
    ftki_free(NULL);
}

static void the_nth_allocation_fails(void **state) {
    (void)state;
    uint64_t before = ftki_alloc_count();
    ftki_alloc_fail_at(2);
    void *a = ftki_alloc(1, 1), *b = ftki_alloc(1, 1), *c = ftki_alloc(1, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    ftki_alloc_fail_at(1);
    assert_null(ftki_realloc(a, 2, 1));
    ftki_arena arena = {0};
    ftk_error e;
    ftki_alloc_fail_at(1);
    ftki_arena_plan(&arena, 1, 100);
    assert_int_equal(ftki_arena_commit(&arena, &e), FTK_OUT_OF_MEMORY);
    assert_non_null(strstr(e.message, "128 bytes"));
    ftki_arena_close(&arena);
    ftki_alloc_fail_at(1);
    ftki_alloc_fail_at(0);
    b = ftki_alloc(1, 1);
    assert_non_null(b);
    assert_int_equal(ftki_alloc_count() - before, 6);
    ftki_free(a);
    ftki_free(b);
    ftki_free(c);
}

/* Runs fn in a child; its exit status, or -signal. */
static int in_child(void (*fn)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        fn();
        _exit(ftki_no_alloc_violations() == 1 ? 10 : 11);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void allocate_in_zone(void) {
    ftki_no_alloc_enter();
    ftki_free(ftki_alloc(1, 1));
}
static void allocate_in_outer_zone(void) {
    ftki_no_alloc_enter();
    ftki_no_alloc_enter();
    ftki_no_alloc_leave();
    ftki_free(ftki_alloc(1, 1));
}
static void allocate_on_worker(void *ctx, int32_t worker, int32_t n) {
    (void)ctx, (void)n;
    if (worker == 1) ftki_free(ftki_alloc(1, 1));
}
static void allocate_in_team(void) {
    ftki_team *t;
    if (ftki_team_open(&t, 2, NULL) != FTK_OK) return;
    ftki_team_run(t, allocate_on_worker, NULL); /* outside: allowed */
    ftki_no_alloc_enter();
    ftki_team_run(t, allocate_on_worker, NULL);
    ftki_no_alloc_leave();
    ftki_team_run(t, allocate_on_worker, NULL);
    ftki_team_close(t);
}

static void a_zone_catches_allocations(void **state) {
    (void)state;
#ifdef NDEBUG
    const int caught = 10; /* counted */
#else
    const int caught = -SIGABRT;
#endif
    assert_int_equal(in_child(allocate_in_zone), caught);
    assert_int_equal(in_child(allocate_in_outer_zone), caught);
    assert_int_equal(in_child(allocate_in_team), caught);
}

static void *allocate_elsewhere(void *arg) {
    void *p = ftki_alloc(1, 1);
    *(bool *)arg = p != NULL;
    ftki_free(p);
    return NULL;
}

static void a_zone_leaves_other_threads_alone(void **state) {
    (void)state;
    pthread_t thread;
    bool allocated = false;
    assert_false(ftki_no_alloc_inside());
    ftki_no_alloc_enter();
    assert_true(ftki_no_alloc_inside());
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &allocated), 0);
    pthread_join(thread, NULL);
    ftki_no_alloc_leave();
    assert_false(ftki_no_alloc_inside());
    assert_true(allocated);
    assert_int_equal(ftki_no_alloc_violations(), 0);
}

static void arena_gives_aligned_zeroed_parts(void **state) {
    (void)state;
    ftki_arena a = {0};
    ftk_error e;
    size_t first = ftki_arena_plan(&a, 3, 7), second = ftki_arena_plan(&a, 0, 8),
           third = ftki_arena_plan(&a, 1 << 20, 5);
    assert_int_equal(first, 0);
    assert_int_equal(second, 64);
    assert_int_equal(third, 64);
    assert_int_equal(a.bytes, 64 + 5 * (1 << 20));
    assert_int_equal(ftki_arena_commit(&a, &e), FTK_OK);
    assert_int_equal((uintptr_t)a.base % (2u << 20), 0);
    unsigned char *p = ftki_arena_at(&a, third);
    assert_int_equal(p[0] | p[5 * (1 << 20) - 1], 0);
    memset(a.base, 1, a.bytes);
    ftki_arena_close(&a);
    assert_null(a.base);
    ftki_arena_close(&a);

    ftki_arena empty = {0};
    assert_int_equal(ftki_arena_commit_small(&empty, &e), FTK_OK);
    assert_non_null(empty.base);
    ftki_arena_close(&empty);
}

static void arena_overflow_shows_at_commit(void **state) {
    (void)state;
    static const size_t plans[][2] = {{SIZE_MAX, 2}, {SIZE_MAX, 1}, {PTRDIFF_MAX, 1}};
    for (size_t i = 0; i < 3; i++) {
        ftki_arena a = {0};
        ftk_error e;
        ftki_arena_plan(&a, 100, 1);
        ftki_arena_plan(&a, plans[i][0], plans[i][1]);
        ftki_arena_plan(&a, 100, 1);
        assert_true(a.overflow);
        assert_int_equal(ftki_arena_commit(&a, &e), FTK_OUT_OF_MEMORY);
        assert_non_null(strstr(e.message, "smaller context"));
        assert_null(a.base);
        ftki_arena_close(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked_arithmetic),
        cmocka_unit_test(alloc_zeroes_and_refuses_overflow),
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(a_zone_catches_allocations),
        cmocka_unit_test(a_zone_leaves_other_threads_alone),
        cmocka_unit_test(arena_gives_aligned_zeroed_parts),
        cmocka_unit_test(arena_overflow_shows_at_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Files that cannot be mapped, and one that can. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/mapfile.h"
#include "unit/scratch_dir.h"

static void expect_failure(const char *path, ftk_status status, const char *reason) {
    ftki_mapfile m = {NULL, 77};
    ftk_error e = {0};
    assert_int_equal(ftki_mapfile_open(&m, path, &e), status);
    assert_int_equal(e.code, status);
    assert_non_null(strstr(e.message, reason));
    assert_int_equal(m.len, 77); /* untouched */
}

static void maps_drops_and_closes(void **state) {
    (void)state;
    enum { LEN = 3 * 4096 + 100 };
    static unsigned char data[LEN];
    for (int i = 0; i < LEN; i++) data[i] = (unsigned char)(i * 7);
    scratch_write(scratch_path("f"), data, LEN);
    ftki_mapfile m;
    ftk_error e;
    assert_int_equal(ftki_mapfile_open(&m, scratch_path("f"), &e), FTK_OK);
    assert_int_equal(m.len, LEN);
    assert_memory_equal(m.data, data, LEN);
    static const size_t ranges[][2] = {{0, LEN}, {1, 5000}, {4096, 4096}, {0, SIZE_MAX},
                                       {LEN - 1, 1}, {LEN, 1}, {SIZE_MAX, SIZE_MAX}, {5, 0}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        ftki_mapfile_drop(&m, ranges[i][0], ranges[i][1]);
        assert_memory_equal(m.data, data, LEN);
    }
    ftki_mapfile_close(&m);
    assert_null(m.data);
    ftki_mapfile_close(&m);
    ftki_mapfile_drop(&m, 0, 1);
}

static void missing_empty_and_not_files(void **state) {
    (void)state;
    expect_failure(scratch_path("no-such"), FTK_IO, "no-such': No such file");
    expect_failure("", FTK_IO, "No such file");
    expect_failure(scratch_dir, FTK_IO, "is a directory");
    scratch_write(scratch_path("empty"), "", 0);
    expect_failure(scratch_path("empty"), FTK_FORMAT, "empty' is empty");
    expect_failure(scratch_path("empty/x"), FTK_IO, "Not a directory");
    expect_failure("/dev/null", FTK_IO, "not a regular file");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    expect_failure(scratch_path("pipe"), FTK_IO, "not a regular file"); /* and does not wait */
}

static void unreadable(void **state) {
    (void)state;
    scratch_write(scratch_path("secret"), "x", 1);
    assert_int_equal(chmod(scratch_path("secret"), 0), 0);
    assert_int_equal(chmod(scratch_dir, 0755), 0);
    pid_t pid = fork(); /* root reads everything: become somebody else in a child */
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
        ftki_mapfile m;
        ftk_error e = {0};
        ftk_status s = ftki_mapfile_open(&m, scratch_path("secret"), &e);
        _exit(s == FTK_IO && strstr(e.message, "secret': Permission denied") != NULL ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) skip(); /* not allowed to change user */
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_drops_and_closes),
        cmocka_unit_test(missing_empty_and_not_files),
        cmocka_unit_test(unreadable),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

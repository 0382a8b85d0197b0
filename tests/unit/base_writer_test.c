// SPDX-License-Identifier: Apache-2.0
/* The writer: a file appears whole or not at all, and a failure leaves the old one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/mapfile.h"
#include "base/memory.h"
#include "unit/scratch_dir.h"

static void expect_content(const char *path, const char *content) {
    size_t len;
    char *got = scratch_read(path, &len);
    assert_non_null(got);
    assert_int_equal(len, strlen(content));
    assert_string_equal(got, content);
    free(got);
}

static void write_text(const char *path, const char *text) {
    ftki_writer *w;
    ftk_error e;
    assert_int_equal(ftki_writer_open(&w, path, &e), FTK_OK);
    assert_int_equal(ftki_writer_write(w, text, strlen(text), &e), FTK_OK);
    assert_int_equal(ftki_writer_position(w), strlen(text));
    assert_int_equal(ftki_writer_commit(w, &e), FTK_OK);
    ftki_writer_close(w);
}

static void writes_and_replaces(void **state) {
    (void)state;
    int before = scratch_count();
    write_text(scratch_path("a"), "first");
    expect_content(scratch_path("a"), "first");
    assert_int_equal(chmod(scratch_path("a"), 0640), 0);
    write_text(scratch_path("a"), "");
    expect_content(scratch_path("a"), "");
    struct stat st;
    assert_int_equal(stat(scratch_path("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640); /* permissions are kept */
    assert_int_equal(scratch_count(), before + 1);
}

static void pieces_of_every_size(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 65535, 1, 65536, 65537, 3, 200000, 0, 65533};
    static unsigned char data[200000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 31 >> 3);
    ftki_writer *w;
    size_t total = 0;
    assert_int_equal(ftki_writer_open(&w, scratch_path("b"), NULL), FTK_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        assert_int_equal(ftki_writer_write(w, data, pieces[i], NULL), FTK_OK);
        total += pieces[i];
    }
    assert_int_equal(ftki_writer_position(w), total);
    assert_int_equal(ftki_writer_commit(w, NULL), FTK_OK);
    ftki_writer_close(w);
    size_t len, at = 0;
    char *got = scratch_read(scratch_path("b"), &len);
    assert_int_equal(len, total);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; at += pieces[i++])
        assert_memory_equal(got + at, data, pieces[i]);
    free(got);
}

static void close_without_commit_leaves_the_old_file(void **state) {
    (void)state;
    write_text(scratch_path("c"), "old");
    int before = scratch_count();
    ftki_writer *w;
    assert_int_equal(ftki_writer_open(&w, scratch_path("c"), NULL), FTK_OK);
    assert_int_equal(ftki_writer_write(w, "new", 3, NULL), FTK_OK);
    assert_int_equal(scratch_count(), before + 1);
    ftki_writer_close(w);
    expect_content(scratch_path("c"), "old");
    assert_int_equal(scratch_count(), before);
    ftki_writer_close(NULL);
}

static void a_full_disk_is_reported_and_harmless(void **state) {
    (void)state;
    static const unsigned char data[100000];
    write_text(scratch_path("d"), "old");
    int before = scratch_count();
    ftki_writer *w;
    ftk_error e = {0}, later = {0};
    assert_int_equal(ftki_writer_open(&w, scratch_path("d"), &e), FTK_OK);
    limit_file_size(150000);
    assert_int_equal(ftki_writer_write(w, data, sizeof data, &e), FTK_OK);
    ftk_status s = ftki_writer_write(w, data, sizeof data, &e);
    limit_file_size(RLIM_INFINITY);
    assert_int_equal(s, FTK_IO);
    assert_non_null(strstr(e.message, "/d': File too large"));
    /* The first failure is what every later call says, though writing would work again. */
    assert_int_equal(ftki_writer_write(w, data, 1, &later), FTK_IO);
    assert_string_equal(later.message, e.message);
    assert_int_equal(ftki_writer_commit(w, &later), FTK_IO);
    assert_string_equal(later.message, e.message);
    ftki_writer_close(w);
    expect_content(scratch_path("d"), "old");
    assert_int_equal(scratch_count(), before);
}

static void the_last_buffer_fails_at_commit(void **state) {
    (void)state;
    int before = scratch_count();
    ftki_writer *w;
    ftk_error e = {0};
    assert_int_equal(ftki_writer_open(&w, scratch_path("e"), &e), FTK_OK);
    assert_int_equal(ftki_writer_write(w, "tiny", 4, &e), FTK_OK);
    limit_file_size(0);
    ftk_status s = ftki_writer_commit(w, &e);
    limit_file_size(RLIM_INFINITY);
    assert_int_equal(s, FTK_IO);
    ftki_writer_close(w);
    assert_int_equal(scratch_count(), before);
}

static void expect_refusal(const char *path, const char *reason) {
    ftki_writer *w = NULL;
    ftk_error e = {0};
    assert_int_equal(ftki_writer_open(&w, path, &e), FTK_IO);
    assert_null(w);
    assert_non_null(strstr(e.message, reason));
}

static void targets_that_are_no_files(void **state) {
    (void)state;
    expect_refusal(scratch_dir, "is a directory");
    expect_refusal("/dev/null", "not a regular file");
    expect_refusal(scratch_path("no-such-directory/file"), "No such file");
    expect_refusal("", "cannot create");
}

static void a_link_is_followed(void **state) {
    (void)state;
    struct stat st;
    write_text(scratch_path("real"), "old");
    assert_int_equal(symlink("real", scratch_path("link")), 0);
    write_text(scratch_path("link"), "new");
    assert_int_equal(lstat(scratch_path("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    expect_content(scratch_path("real"), "new");
}

static void allocation_failures(void **state) {
    (void)state;
    int before = scratch_count();
    for (uint64_t n = 1; n <= 3; n++) {
        ftki_writer *w = NULL;
        ftk_error e = {0};
        ftki_alloc_fail_at(n);
        ftk_status s = ftki_writer_open(&w, scratch_path("f"), &e);
        ftki_alloc_fail_at(0);
        assert_int_equal(s, FTK_OUT_OF_MEMORY);
        assert_null(w);
    }
    assert_int_equal(scratch_count(), before);
}

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_replaces),
        cmocka_unit_test(pieces_of_every_size),
        cmocka_unit_test(close_without_commit_leaves_the_old_file),
        cmocka_unit_test(a_full_disk_is_reported_and_harmless),
        cmocka_unit_test(the_last_buffer_fails_at_commit),
        cmocka_unit_test(targets_that_are_no_files),
        cmocka_unit_test(a_link_is_followed),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

// SPDX-License-Identifier: Apache-2.0
/* The inspection functions of the public header. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "unit/gguf_bytes.h"
#include "unit/scratch_dir.h"

static const struct { const char *name, *type, *text; } expected[] = {
    {"general.architecture", "string", "llama"},
    {"i8", "i8", "-1"},
    {"u16", "u16", "65535"},
    {"i64", "i64", "-9223372036854775808"},
    {"u64", "u64", "18446744073709551615"},
    {"f32", "f32", "0.1"},
    {"f64", "f64", "1e+300"},
    {"yes", "bool", "true"},
    {"no", "bool", "false"},
    {"odd", "string", "a\\nb\\t\\x1b[31m\\xff \xe4\xbd\xa0"},
    {"empty", "string", ""},
    {"few", "array of i32", "[1, -2]"},
    {"many", "array of u8", "[0, 1, 2, 3, 4, ... 300 in all]"},
    {"texts", "array of string", "[\"a\", \"\", \"\\n\"]"},
    {"none", "array of f32", "[]"},
    {"flags", "array of bool", "[true, false]"},
};
enum { N_KEYS = sizeof expected / sizeof expected[0] };

static gguf_bytes file_with_all_types(void) {
    gguf_bytes b = {0};
    put_header(&b, 2, 2, N_KEYS);
    put_text_key(&b, "general.architecture", "llama");
    put_key(&b, "i8", 1), put_number(&b, 0xFF, 1);
    put_key(&b, "u16", 2), put_number(&b, 0xFFFF, 2);
    put_key(&b, "i64", 11), put_u64(&b, 1ull << 63);
    put_key(&b, "u64", 10), put_u64(&b, UINT64_MAX);
    put_key(&b, "f32", 6), put_f32(&b, 0.1f);
    put_key(&b, "f64", 12), put_u64(&b, 0x7E37E43C8800759Cull);
    put_key(&b, "yes", 7), put_number(&b, 1, 1);
    put_key(&b, "no", 7), put_number(&b, 0, 1);
    put_text_key(&b, "odd", "a\nb\t\x1b[31m\xff \xe4\xbd\xa0");
    put_text_key(&b, "empty", "");
    put_array_key(&b, "few", 5, 2), put_u32(&b, 1), put_u32(&b, (uint32_t)-2);
    put_array_key(&b, "many", 0, 300);
    for (int i = 0; i < 300; i++) put_number(&b, (uint64_t)i, 1);
    put_array_key(&b, "texts", 8, 3), put_text(&b, "a"), put_text(&b, ""), put_text(&b, "\n");
    put_array_key(&b, "none", 6, 0);
    put_array_key(&b, "flags", 7, 2), put_number(&b, 0x0001, 2);
    put_tensor(&b, "first", 2, (uint64_t[]){256, 2}, 12, 0);
    put_tensor(&b, "second", 3, (uint64_t[]){1, 2, 3}, 30, 288);
    pad_to(&b, 32);
    for (int i = 0; i < 300; i++) put_number(&b, 0, 1);
    return b;
}

static ftk_file *open_file(gguf_bytes *b) {
    ftk_file *f = NULL;
    ftk_error e;
    scratch_write(scratch_path("file.gguf"), b->data, b->len);
    if (ftk_file_open(&f, scratch_path("file.gguf"), &e) != FTK_OK) {
        print_error("%s\n", e.message);
        abort();
    }
    return f;
}

static void keys_as_text(void **state) {
    (void)state;
    gguf_bytes b = file_with_all_types();
    ftk_file *f = open_file(&b);
    assert_int_equal(ftk_file_version(f), 2);
    assert_int_equal(ftk_file_n_keys(f), N_KEYS);
    for (size_t i = 0; i < N_KEYS; i++) {
        char text[128];
        const char *type = NULL, *name = ftk_file_key(f, i, &type, text, sizeof text);
        assert_string_equal(name, expected[i].name);
        assert_string_equal(type, expected[i].type);
        if (i == 5) assert_true(strtof(text, NULL) == 0.1f);
        else assert_string_equal(text, expected[i].text);
        assert_string_equal(ftk_file_key(f, i, NULL, NULL, 0), expected[i].name);
    }
    assert_null(ftk_file_key(f, N_KEYS, NULL, NULL, 0));
    assert_null(ftk_file_key(f, SIZE_MAX, NULL, NULL, 0));
    ftk_file_close(f);
    ftk_file_close(NULL);
    free_bytes(&b);
}

static void short_buffers(void **state) {
    (void)state;
    gguf_bytes b = file_with_all_types();
    ftk_file *f = open_file(&b);
    for (size_t i = 0; i < N_KEYS; i++)
        for (size_t cap = 0; cap < 100; cap++) {
            char text[104];
            memset(text, 'Z', sizeof text);
            ftk_file_key(f, i, NULL, text, cap);
            for (size_t k = cap; k < sizeof text; k++) assert_int_equal(text[k], 'Z');
            if (cap == 0) continue;
            size_t len = strlen(text), full = strlen(expected[i].text);
            assert_true(len < cap);
            if (i == 5) continue;
            bool whole = strcmp(text, expected[i].text) == 0;
            if (cap > full + 3) assert_true(whole);
            if (!whole && cap > 4) { /* a beginning and three dots; characters are never cut */
                assert_string_equal(text + len - 3, "...");
                assert_memory_equal(text, expected[i].text, len - 3);
                assert_true(((unsigned char)expected[i].text[len - 3] & 0xC0) != 0x80);
            }
        }
    ftk_file_close(f);
    free_bytes(&b);
}

static void tensors(void **state) {
    (void)state;
    gguf_bytes b = file_with_all_types();
    ftk_file *f = open_file(&b);
    ftk_file_tensor t = {.n_dims = 9};
    assert_int_equal(ftk_file_n_tensors(f), 2);
    assert_false(ftk_file_get_tensor(f, 2, &t));
    assert_int_equal(t.n_dims, 9);
    assert_true(ftk_file_get_tensor(f, 0, &t));
    assert_string_equal(t.name, "first");
    assert_string_equal(t.type, "Q4_K");
    assert_int_equal(t.n_dims, 2);
    assert_true(t.dims[0] == 256 && t.dims[1] == 2 && t.dims[2] == 1 && t.dims[3] == 1);
    assert_int_equal(t.bytes, 288);
    assert_int_equal(t.offset, b.len - 300);
    assert_true(ftk_file_get_tensor(f, 1, &t));
    assert_string_equal(t.type, "BF16");
    assert_int_equal(t.bytes, 12);
    ftk_file_close(f);
    free_bytes(&b);
}

static void refusals(void **state) {
    (void)state;
    ftk_file *f = NULL;
    ftk_error e;
    assert_int_equal(ftk_file_open(NULL, "x", &e), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_file_open(&f, NULL, &e), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_file_open(&f, scratch_path("absent"), &e), FTK_IO);
    scratch_write(scratch_path("four"), "GGUF", 4);
    assert_int_equal(ftk_file_open(&f, scratch_path("four"), &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "truncated header"));
    gguf_bytes b = file_with_all_types();
    scratch_write(scratch_path("whole"), b.data, b.len);
    free_bytes(&b);
    uint64_t n = 0;
    ftk_status s;
    do { /* every allocation fails once */
        ftki_alloc_fail_at(++n);
        s = ftk_file_open(&f, scratch_path("whole"), &e);
        ftki_alloc_fail_at(0);
        assert_true(s == FTK_OK || (s == FTK_OUT_OF_MEMORY && f == NULL));
    } while (s != FTK_OK);
    assert_int_equal(n, 7);
    ftk_file_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_as_text),
        cmocka_unit_test(short_buffers),
        cmocka_unit_test(tensors),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

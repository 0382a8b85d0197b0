// SPDX-License-Identifier: Apache-2.0
/* Good GGUF files: everything in them is found, typed reads, sizes, and the time it takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/memory.h"
#include "cpu_time.h"
#include "format/gguf.h"
#include "sanitized.h"
#include "unit/gguf_bytes.h"
#include "unit/scratch_dir.h"

#ifdef SANITIZED
enum { SLOWER = 20 }; /* what a sanitizer may cost */
#else
enum { SLOWER = 1 };
#endif

static gguf_bytes all_kinds(uint32_t version) {
    gguf_bytes b = {0};
    put_header(&b, version, 3, 18);
    put_text_key(&b, "general.architecture", "llama");
    put_key(&b, "k.u8", 0), put_number(&b, 200, 1);
    put_key(&b, "k.i8", 1), put_number(&b, 0xFF, 1);
    put_key(&b, "k.u16", 2), put_number(&b, 60000, 2);
    put_key(&b, "k.i16", 3), put_number(&b, 0x8000, 2);
    put_key(&b, "k.u32", 4), put_u32(&b, 4000000000u);
    put_key(&b, "k.i32", 5), put_u32(&b, 7);
    put_key(&b, "k.f32", 6), put_f32(&b, 0.5f);
    put_key(&b, "k.true", 7), put_number(&b, 1, 1);
    put_text_key(&b, "k.text", "h\xc3\xa9llo");
    put_text_key(&b, "k.text.empty", "");
    put_key(&b, "k.u64", 10), put_u64(&b, 1ull << 33);
    put_key(&b, "k.i64", 11), put_u64(&b, 42);
    put_key(&b, "k.f64", 12), put_u64(&b, 0x4000000000000000u); /* 2.0 */
    put_array_key(&b, "k.numbers", 5, 3);
    put_u32(&b, 1), put_u32(&b, 2), put_u32(&b, (uint32_t)-3);
    put_array_key(&b, "k.texts", 8, 3);
    put_text(&b, "a"), put_text(&b, ""), put_text(&b, "ccc");
    put_array_key(&b, "k.none", 8, 0);
    put_array_key(&b, "k.bools", 7, 2), put_number(&b, 0x0001, 2);
    put_tensor(&b, "b.matrix", 2, (uint64_t[]){64, 3}, 2, 0);     /* Q4_0: 6 blocks, 108 bytes */
    put_tensor(&b, "a.vector", 1, (uint64_t[]){5}, 0, 128);       /* F32: 20 bytes */
    put_tensor(&b, "c.cube", 4, (uint64_t[]){2, 3, 1, 2}, 1, 160);/* F16: 24 bytes */
    pad_to(&b, 32);
    for (int i = 0; i < 184; i++) put_number(&b, (uint64_t)i, 1);
    return b;
}

static void every_key_and_tensor(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_bytes b = all_kinds(version);
        ftki_gguf g;
        ftk_error e;
        assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
        assert_int_equal(g.version, version);
        assert_int_equal(g.n_keys, 18);
        assert_int_equal(g.n_tensors, 3);
        assert_null(ftki_gguf_key(&g, "k.absent"));
        assert_null(ftki_gguf_key(&g, ""));
        assert_null(ftki_gguf_key(&g, "k.text.emptyish"));
        for (size_t i = 0; i < g.n_keys; i++) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)g.keys[i].name.len, g.keys[i].name.data);
            assert_ptr_equal(ftki_gguf_key(&g, name), &g.keys[i]);
        }
        const ftki_tensor *t = ftki_gguf_tensor(&g, "b.matrix");
        assert_ptr_equal(t, &g.tensors[0]);
        assert_int_equal(t->type, FTKI_Q4_0);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->bytes, 108);
        assert_int_equal(t->dims[0] * 10000 + t->dims[1] * 100 + t->dims[2] * 10 + t->dims[3],
                         640311);
        assert_int_equal(t->data[5], 5);
        assert_ptr_equal(t->data, b.data + t->offset);
        assert_int_equal(t->offset % 32, 0);
        t = ftki_gguf_tensor(&g, "a.vector");
        assert_ptr_equal(t, &g.tensors[1]);
        assert_int_equal(t->bytes, 20);
        assert_int_equal(t->data[0], 128);
        t = ftki_gguf_tensor(&g, "c.cube");
        assert_int_equal(t->bytes, 24);
        assert_ptr_equal(t->data + t->bytes, b.data + b.len);
        assert_null(ftki_gguf_tensor(&g, "a"));
        ftki_gguf_close(&g);
        ftki_gguf_close(&g);
        free_bytes(&b);
    }
}

static void typed_reads(void **state) {
    (void)state;
    gguf_bytes b = all_kinds(3);
    ftki_gguf g;
    ftk_error e;
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);

    uint32_t u = 11;
    static const struct { const char *key; uint32_t value; } integers[] = {
        {"k.u8", 200}, {"k.u16", 60000}, {"k.u32", 4000000000u}, {"k.i32", 7}, {"k.i64", 42}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ftki_gguf_u32(&g, integers[i].key, &u, &e), FTK_OK);
        assert_int_equal(u, integers[i].value);
    }
    u = 11;
    static const char *const out_of_range[] = {"k.i8", "k.i16", "k.u64"};
    static const char *const not_integers[] = {"k.f32", "k.f64", "k.true", "k.text", "k.numbers"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ftki_gguf_u32(&g, out_of_range[i], &u, &e), FTK_FORMAT);
        assert_non_null(strstr(e.message, out_of_range[i]));
        assert_non_null(strstr(e.message, "out of range"));
    }
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ftki_gguf_u32_or(&g, not_integers[i], &u, &e), FTK_FORMAT);
        assert_non_null(strstr(e.message, not_integers[i]));
        assert_non_null(strstr(e.message, "an integer is due"));
    }
    assert_int_equal(ftki_gguf_u32(&g, "k.absent", &u, &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "'k.absent' is missing"));
    assert_int_equal(ftki_gguf_u32_or(&g, "k.absent", &u, &e), FTK_OK);
    assert_int_equal(u, 11); /* none of the failures wrote */

    float f = 3;
    assert_int_equal(ftki_gguf_f32_or(&g, "k.absent", &f, &e), FTK_OK);
    assert_true(f == 3);
    assert_int_equal(ftki_gguf_f32_or(&g, "k.u32", &f, &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "'k.u32' has type u32 where a float is due"));
    assert_int_equal(ftki_gguf_f32_or(&g, "k.f32", &f, &e), FTK_OK);
    assert_true(f == 0.5f);
    assert_int_equal(ftki_gguf_f32_or(&g, "k.f64", &f, &e), FTK_OK);
    assert_true(f == 2.0f);

    bool flag = false;
    assert_int_equal(ftki_gguf_bool_or(&g, "k.absent", &flag, &e), FTK_OK);
    assert_int_equal(ftki_gguf_bool_or(&g, "k.u8", &flag, &e), FTK_FORMAT);
    assert_int_equal(ftki_gguf_bool_or(&g, "k.bools", &flag, &e), FTK_FORMAT);
    assert_false(flag);
    assert_int_equal(ftki_gguf_bool_or(&g, "k.true", &flag, &e), FTK_OK);
    assert_true(flag);

    ftki_text text = {"-", 1};
    assert_int_equal(ftki_gguf_text_or(&g, "k.absent", &text, &e), FTK_OK);
    assert_int_equal(ftki_gguf_text(&g, "k.absent", &text, &e), FTK_FORMAT);
    assert_int_equal(ftki_gguf_text(&g, "k.texts", &text, &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "'k.texts' has type array of string where a string is due"));
    assert_string_equal(text.data, "-");
    assert_int_equal(ftki_gguf_text(&g, "k.text", &text, &e), FTK_OK);
    assert_int_equal(text.len, 6);
    assert_memory_equal(text.data, "h\xc3\xa9llo", 6);
    assert_int_equal(ftki_gguf_text(&g, "k.text.empty", &text, &e), FTK_OK);
    assert_int_equal(text.len, 0);
    ftki_gguf_close(&g);
    free_bytes(&b);
}

static void arrays(void **state) {
    (void)state;
    gguf_bytes b = all_kinds(3);
    ftki_gguf g;
    ftk_error e;
    const ftki_key *k = NULL;
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
    assert_int_equal(ftki_gguf_array(&g, "k.numbers", FTKI_KEY_I32, &k, &e), FTK_OK);
    assert_int_equal(k->count, 3);
    assert_int_equal(k->bytes, 12);
    assert_int_equal(k->data[4], 2);
    size_t at = 0;
    assert_null(ftki_key_next_text(k, &at).data); /* no strings in there */

    assert_int_equal(ftki_gguf_array(&g, "k.texts", FTKI_KEY_STRING, &k, &e), FTK_OK);
    static const char *const expected[] = {"a", "", "ccc"};
    for (int i = 0; i < 3; i++) {
        ftki_text t = ftki_key_next_text(k, &at);
        assert_int_equal(t.len, strlen(expected[i]));
        assert_memory_equal(t.data, expected[i], t.len);
    }
    assert_int_equal(at, k->bytes);
    assert_null(ftki_key_next_text(k, &at).data);
    at = SIZE_MAX;
    assert_null(ftki_key_next_text(k, &at).data);

    assert_int_equal(ftki_gguf_array(&g, "k.none", FTKI_KEY_STRING, &k, &e), FTK_OK);
    assert_int_equal(k->count, 0);
    assert_int_equal(ftki_gguf_array(&g, "k.numbers", FTKI_KEY_U32, &k, &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "has type array of i32 where array of u32 is due"));
    assert_int_equal(ftki_gguf_array(&g, "k.text", FTKI_KEY_STRING, &k, &e), FTK_FORMAT);
    assert_int_equal(ftki_gguf_array(&g, "k.absent", FTKI_KEY_STRING, &k, &e), FTK_OK);
    assert_null(k);
    ftki_gguf_close(&g);
    free_bytes(&b);
}

static void types(void **state) {
    (void)state;
    static const struct { uint32_t type; const char *name; uint32_t block, bytes; } expected[] = {
        {0, "F32", 1, 4},      {1, "F16", 1, 2},       {30, "BF16", 1, 2},   {2, "Q4_0", 32, 18},
        {3, "Q4_1", 32, 20},   {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},  {8, "Q8_0", 32, 34},
        {12, "Q4_K", 256, 144},{13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210}};
    uint32_t known = 0;
    for (uint32_t t = 0; t < 100; t++) known += ftki_type_find(t) != NULL;
    assert_int_equal(known, 11);
    for (size_t i = 0; i < 11; i++) {
        const ftki_type_info *info = ftki_type_find(expected[i].type);
        assert_non_null(info);
        assert_int_equal(info->type, expected[i].type);
        assert_string_equal(info->name, expected[i].name);
        assert_string_equal(ftki_type_name_of(expected[i].type), expected[i].name);
        assert_int_equal(info->block, expected[i].block);
        assert_int_equal(info->block_bytes, expected[i].bytes);
    }
    assert_string_equal(ftki_type_name_of(16), "IQ2_XXS");
    assert_string_equal(ftki_type_name_of(39), "MXFP4");
    assert_string_equal(ftki_type_name_of(99), "unknown");
    assert_string_equal(ftki_type_name_of(UINT32_MAX), "unknown");
}

static void files_without_tensors_or_keys(void **state) {
    (void)state;
    ftki_gguf g;
    ftk_error e;
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 0);
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
    assert_null(ftki_gguf_key(&g, "a"));
    assert_null(ftki_gguf_tensor(&g, "a"));
    ftki_gguf_close(&g);
    free_bytes(&b);
    put_header(&b, 3, 0, 1); /* a vocabulary: no padding after the keys */
    put_u32_key(&b, "general.alignment", 4096);
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
    ftki_gguf_close(&g);
    free_bytes(&b);
}

static void alignment_is_followed(void **state) {
    (void)state;
    for (uint32_t alignment = 8; alignment <= 1 << 20; alignment *= 2) {
        gguf_bytes b = {0};
        put_header(&b, 3, 2, 1);
        put_u32_key(&b, "general.alignment", alignment);
        put_tensor(&b, "a", 1, (uint64_t[]){1}, 0, 0);
        put_tensor(&b, "b", 1, (uint64_t[]){1}, 0, alignment);
        pad_to(&b, alignment);
        put_f32(&b, 1);
        pad_to(&b, alignment);
        put_f32(&b, 2);
        ftki_gguf g;
        ftk_error e;
        assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
        assert_int_equal(g.tensors[0].offset % alignment, 0);
        assert_memory_equal(g.tensors[1].data, b.data + b.len - 4, 4);
        ftki_gguf_close(&g);
        free_bytes(&b);
    }
}

/* Smallest of a few: the machine may be busy. */
static double parse_seconds(const gguf_bytes *b, int repeats) {
    double best = 1e9;
    for (int i = 0; i < repeats; i++) {
        ftki_gguf g;
        ftk_error e;
        double start = cpu_seconds();
        assert_int_equal(ftki_gguf_parse(&g, b->data, b->len, &e), FTK_OK);
        double took = cpu_seconds() - start;
        ftki_gguf_close(&g);
        if (took < best) best = took;
    }
    return best;
}

static void a_large_vocabulary_loads_in_milliseconds(void **state) {
    (void)state;
    enum { WORDS = 150000 };
    gguf_bytes b = {0};
    char word[32];
    put_header(&b, 3, 0, 4);
    put_array_key(&b, "tokenizer.ggml.tokens", 8, WORDS);
    for (int i = 0; i < WORDS; i++) snprintf(word, sizeof word, "w%d", i * 7), put_text(&b, word);
    put_array_key(&b, "tokenizer.ggml.merges", 8, WORDS);
    for (int i = 0; i < WORDS; i++) snprintf(word, sizeof word, "w%d x%d", i, i), put_text(&b, word);
    put_array_key(&b, "tokenizer.ggml.scores", 6, WORDS);
    for (int i = 0; i < WORDS; i++) put_f32(&b, (float)i);
    put_array_key(&b, "tokenizer.ggml.token_type", 5, WORDS);
    for (int i = 0; i < WORDS; i++) put_u32(&b, 1);
    double took = parse_seconds(&b, 5);
    print_message("150000 words: %.2f ms\n", 1e3 * took);
    assert_true(took < 0.030 * SLOWER); /* measured: 2.7 ms */
    free_bytes(&b);
}

static void many_names_load_in_milliseconds(void **state) {
    (void)state;
    enum { NAMES = 20000, PREFIX = 200 };
    gguf_bytes b = {0};
    char name[PREFIX + 16];
    memset(name, 'p', PREFIX); /* long common prefixes: the worst case of a comparison */
    put_header(&b, 3, NAMES, NAMES);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name + PREFIX, 16, "%d", i * 7919 % NAMES);
        put_u32_key(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < NAMES; i++) {
        snprintf(name + PREFIX, 16, "%d", i * 104729 % NAMES);
        put_tensor(&b, name, 1, (uint64_t[]){1}, 0, 0);
    }
    pad_to(&b, 32);
    put_f32(&b, 1);
    double took = parse_seconds(&b, 5);
    print_message("20000 keys and 20000 tensors: %.2f ms\n", 1e3 * took);
    assert_true(took < 0.400 * SLOWER); /* measured: 80 ms */

    ftki_gguf g;
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, NULL), FTK_OK);
    double start = cpu_seconds();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name + PREFIX, 16, "%d", i);
        assert_string_equal(ftki_gguf_tensor(&g, name)->name, name);
        assert_non_null(ftki_gguf_key(&g, name));
    }
    assert_true(cpu_seconds() - start < 0.400 * SLOWER);
    ftki_gguf_close(&g);
    free_bytes(&b);
}

static void a_large_file_opens_in_milliseconds(void **state) {
    (void)state;
    enum { ROWS = 1000, TENSORS = 125 }; /* 125 tensors of 4 MB */
    gguf_bytes b = {0};
    char name[32];
    put_header(&b, 3, TENSORS, 0);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name, sizeof name, "blk.%d", i);
        put_tensor(&b, name, 2, (uint64_t[]){1024, ROWS}, 0, (uint64_t)i * 1024 * ROWS * 4);
    }
    pad_to(&b, 32);
    const char *path = scratch_path("large.gguf");
    scratch_write(path, b.data, b.len);
    uint64_t bytes_needed = b.len + (uint64_t)TENSORS * 1024 * ROWS * 4;
    assert_int_equal(truncate(path, (off_t)bytes_needed), 0); /* sparse: takes no disk */
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        ftki_gguf g;
        ftk_error e;
        double start = cpu_seconds();
        assert_int_equal(ftki_gguf_open(&g, path, &e), FTK_OK);
        double took = cpu_seconds() - start;
        if (took < best) best = took;
        assert_int_equal(g.tensors[TENSORS - 1].data[1024 * ROWS * 4 - 1], 0);
        ftki_gguf_close(&g);
    }
    print_message("512 MB: %.3f ms\n", 1e3 * best);
    assert_true(best < 0.005 * SLOWER); /* measured: 0.02 ms */
    assert_int_equal(truncate(path, (off_t)bytes_needed - 1), 0);
    ftki_gguf g;
    ftk_error e;
    assert_int_equal(ftki_gguf_open(&g, path, &e), FTK_FORMAT);
    assert_non_null(strstr(e.message, "blk.124"));
    free_bytes(&b);
}

static void allocation_failures_leak_nothing(void **state) {
    (void)state;
    gguf_bytes b = all_kinds(3);
    const char *path = scratch_path("small.gguf");
    scratch_write(path, b.data, b.len);
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        ftki_gguf g = {.version = 99};
        ftk_error e;
        ftki_alloc_fail_at(n);
        ftk_status s = ftki_gguf_open(&g, path, &e);
        ftki_alloc_fail_at(0);
        if (s == FTK_OK) {
            ftki_gguf_close(&g);
            break;
        }
        failures++;
        assert_int_equal(s, FTK_OUT_OF_MEMORY);
        assert_int_equal(g.version, 99);
    }
    assert_int_equal(failures, 3);
    free_bytes(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_and_tensor),
        cmocka_unit_test(typed_reads),
        cmocka_unit_test(arrays),
        cmocka_unit_test(types),
        cmocka_unit_test(files_without_tensors_or_keys),
        cmocka_unit_test(alignment_is_followed),
        cmocka_unit_test(a_large_vocabulary_loads_in_milliseconds),
        cmocka_unit_test(many_names_load_in_milliseconds),
        cmocka_unit_test(a_large_file_opens_in_milliseconds),
        cmocka_unit_test(allocation_failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

// SPDX-License-Identifier: Apache-2.0
/* ftk_quantize_file: what it writes, from all source types, and what a failure leaves behind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>

#include "base/memory.h"
#include "base/rng.h"
#include "format/quants.h"
#include "unit/gguf_bytes.h"
#include "unit/scratch_dir.h"

enum { COLUMNS = 512, ROWS = 131 }; /* more weights than one worker's piece, not a multiple */

static const uint32_t all_types[] = {FTKI_F32, FTKI_F16, FTKI_BF16, FTKI_Q4_0, FTKI_Q4_1, FTKI_Q5_0,
                                     FTKI_Q5_1, FTKI_Q8_0, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

/* Random blocks of a type, with scales that make sensible numbers. */
static void put_blocks(gguf_bytes *b, uint32_t type, size_t n_weights, uint64_t seed) {
    const ftki_type_info *info = ftki_type_find(type);
    ftki_rng rng;
    ftki_rng_seed(&rng, seed);
    for (size_t at = 0; at < n_weights; at += info->block) {
        unsigned char block[256];
        for (uint32_t i = 0; i < info->block_bytes; i++) block[i] = (unsigned char)ftki_rng_u32(&rng);
        float w = ftki_rng_float(&rng) - 0.5f;
        const uint16_t scale = ftki_f32_to_f16(w * 0.1f);
        unsigned char *p = type == FTKI_Q6_K ? block + 208 : block;
        if (type == FTKI_F32) memcpy(block, &w, 4);
        else if (type == FTKI_BF16) ftki_quantize_row(FTKI_BF16, &w, block, 1);
        else p[0] = (unsigned char)scale, p[1] = (unsigned char)(scale >> 8);
        if (type == FTKI_Q4_1 || type == FTKI_Q5_1 || type == FTKI_Q4_K || type == FTKI_Q5_K)
            p[2] = (unsigned char)scale, p[3] = (unsigned char)(scale >> 8);
        put_bytes(b, block, info->block_bytes);
    }
}

/* A matrix of the type, one whose rows are no whole blocks of 256, and a vector. */
static gguf_bytes model_of(uint32_t type, uint32_t alignment, bool with_file_type) {
    gguf_bytes b = {0};
    const ftki_type_info *info = ftki_type_find(type);
    uint64_t matrix = (uint64_t)COLUMNS * ROWS / info->block * info->block_bytes;
    uint64_t second = (matrix + alignment - 1) / alignment * alignment;
    uint64_t third = second + (96 * 2 * 2 + alignment - 1) / alignment * alignment;
    put_header(&b, 2, 3, with_file_type ? 5 : 3);
    put_text_key(&b, "general.architecture", "llama");
    if (with_file_type) put_u32_key(&b, "general.file_type", 1);
    put_u32_key(&b, "general.alignment", alignment);
    put_array_key(&b, "tokens", 8, 2), put_text(&b, "a"), put_text(&b, "bc");
    if (with_file_type) put_u32_key(&b, "general.quantization_version", 2);
    put_tensor(&b, "matrix", 2, (uint64_t[]){COLUMNS, ROWS}, type, 0);
    put_tensor(&b, "narrow", 2, (uint64_t[]){96, 2}, FTKI_F16, second);
    put_tensor(&b, "norm", 1, (uint64_t[]){256}, FTKI_F32, third);
    pad_to(&b, alignment);
    put_blocks(&b, type, (size_t)COLUMNS * ROWS, type);
    pad_to(&b, alignment);
    put_blocks(&b, FTKI_F16, 96 * 2, 5);
    pad_to(&b, alignment);
    put_blocks(&b, FTKI_F32, 256, 6);
    return b;
}

static void expect_tensor(const ftki_gguf *in, const ftki_gguf *out, const char *name, ftki_type type) {
    const ftki_tensor *a = ftki_gguf_tensor(in, name), *b = ftki_gguf_tensor(out, name);
    assert_non_null(b);
    assert_int_equal(b->type, type);
    assert_int_equal(b->n_dims, a->n_dims);
    assert_memory_equal(b->dims, a->dims, sizeof a->dims);
    if (a->type == type) {
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
        return;
    }
    /* Row by row what quantize.c makes of the row. */
    const ftki_type_info *from = ftki_type_find((uint32_t)a->type), *to = ftki_type_find((uint32_t)type);
    size_t n = (size_t)a->dims[0], in_row = n / from->block * from->block_bytes,
           out_row = n / to->block * to->block_bytes;
    for (size_t r = 0; r < a->dims[1]; r++) {
        float row[COLUMNS];
        unsigned char blocks[4 * COLUMNS];
        ftki_dequantize_row(a->type, a->data + r * in_row, row, n);
        ftki_quantize_row(type, row, blocks, n);
        assert_memory_equal(b->data + r * out_row, blocks, out_row);
    }
}

static void every_source_to_every_target(void **state) {
    (void)state;
    static const struct { const char *name; ftki_type type; uint32_t file_type; } targets[] = {
        {"Q8_0", FTKI_Q8_0, 7}, {"Q4_0", FTKI_Q4_0, 2}, {"Q4_K", FTKI_Q4_K, 14}};
    for (size_t s = 0; s < N_TYPES; s++)
        for (size_t t = 0; t < 3; t++) {
            uint32_t alignment = s % 2 ? 32 : 128;
            gguf_bytes b = model_of(all_types[s], alignment, (s + t) % 2 == 0);
            const char *in = scratch_path("in.gguf"), *out = scratch_path("out.gguf");
            scratch_write(in, b.data, b.len);
            ftk_error e = {0};
            const ftk_quantize_opts o = {.type = targets[t].name, .n_threads = (int32_t)t + 1};
            assert_int_equal(ftk_quantize_file(in, out, &o, &e), FTK_OK);
            ftki_gguf a, q;
            assert_int_equal(ftki_gguf_open(&a, in, &e), FTK_OK);
            assert_int_equal(ftki_gguf_open(&q, out, &e), FTK_OK);
            assert_int_equal(q.version, 3);
            assert_int_equal(q.n_keys, 5);
            assert_int_equal(q.n_tensors, 3);
            uint32_t value = 0;
            ftki_text text = {0};
            const ftki_key *tokens;
            assert_int_equal(ftki_gguf_u32(&q, "general.file_type", &value, &e), FTK_OK);
            assert_int_equal(value, targets[t].file_type);
            assert_int_equal(ftki_gguf_u32(&q, "general.quantization_version", &value, &e), FTK_OK);
            assert_int_equal(value, 2);
            assert_int_equal(ftki_gguf_u32(&q, "general.alignment", &value, &e), FTK_OK);
            assert_int_equal(value, alignment);
            assert_int_equal(ftki_gguf_text(&q, "general.architecture", &text, &e), FTK_OK);
            assert_memory_equal(text.data, "llama", 5);
            assert_int_equal(ftki_gguf_array(&q, "tokens", FTKI_KEY_STRING, &tokens, &e), FTK_OK);
            assert_int_equal(tokens->count, 2);
            expect_tensor(&a, &q, "matrix", targets[t].type);
            expect_tensor(&a, &q, "narrow", targets[t].type == FTKI_Q4_K ? FTKI_F16 : targets[t].type);
            expect_tensor(&a, &q, "norm", FTKI_F32);
            ftki_gguf_close(&a);
            ftki_gguf_close(&q);
            free_bytes(&b);
        }
}

static void larger_than_a_batch(void **state) {
    (void)state;
    enum { MANY_ROWS = 4200 }; /* 2.15 million weights: more than are written at once */
    gguf_bytes b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "large", 2, (uint64_t[]){COLUMNS, MANY_ROWS}, FTKI_Q4_0, 0);
    pad_to(&b, 32);
    put_blocks(&b, FTKI_Q4_0, (size_t)COLUMNS * MANY_ROWS, 9);
    scratch_write(scratch_path("l.gguf"), b.data, b.len);
    const ftk_quantize_opts o = {.type = "Q8_0", .n_threads = 2};
    ftk_error e;
    ftki_gguf a, q;
    assert_int_equal(ftk_quantize_file(scratch_path("l.gguf"), scratch_path("l.out"), &o, &e), FTK_OK);
    assert_int_equal(ftki_gguf_open(&a, scratch_path("l.gguf"), &e), FTK_OK);
    assert_int_equal(ftki_gguf_open(&q, scratch_path("l.out"), &e), FTK_OK);
    assert_int_equal(q.n_keys, 2); /* file type and quantisation version were added */
    expect_tensor(&a, &q, "large", FTKI_Q8_0);
    ftki_gguf_close(&a);
    ftki_gguf_close(&q);
    free_bytes(&b);
}

static void onto_itself(void **state) {
    (void)state;
    gguf_bytes b = model_of(FTKI_F32, 32, true);
    scratch_write(scratch_path("same.gguf"), b.data, b.len);
    scratch_write(scratch_path("copy.gguf"), b.data, b.len);
    const ftk_quantize_opts o = {.type = "Q8_0"};
    ftk_error e;
    assert_int_equal(ftk_quantize_file(scratch_path("same.gguf"), scratch_path("same.gguf"), &o, &e), FTK_OK);
    assert_int_equal(ftk_quantize_file(scratch_path("copy.gguf"), scratch_path("other.gguf"), &o, &e), FTK_OK);
    size_t n, m;
    char *same = scratch_read(scratch_path("same.gguf"), &n), *other = scratch_read(scratch_path("other.gguf"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(same, other, n);
    free(same);
    free(other);
    free_bytes(&b);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    gguf_bytes b = model_of(FTKI_Q6_K, 32, true);
    scratch_write(scratch_path("t.gguf"), b.data, b.len);
    char *first = NULL;
    size_t first_len = 0;
    for (int32_t n = 1; n <= 4; n++) {
        const ftk_quantize_opts o = {.type = "Q4_K", .n_threads = n};
        assert_int_equal(ftk_quantize_file(scratch_path("t.gguf"), scratch_path("t.out"), &o, NULL), FTK_OK);
        size_t len;
        char *got = scratch_read(scratch_path("t.out"), &len);
        if (first == NULL) {
            first = got;
            first_len = len;
            continue;
        }
        assert_int_equal(len, first_len);
        assert_memory_equal(got, first, len);
        free(got);
    }
    free(first);
    free_bytes(&b);
}

typedef struct seen {
    uint64_t calls, last, total, stop_at;
    bool ordered;
} seen;

static bool watch(void *ctx, const char *phase, uint64_t done, uint64_t total) {
    seen *s = ctx;
    s->ordered = s->ordered && done > s->last && done <= total && strcmp(phase, "quantizing") == 0 &&
                 (s->total == 0 || s->total == total);
    s->calls++;
    s->last = done;
    s->total = total;
    return s->calls != s->stop_at;
}

static void progress_and_cancelling(void **state) {
    (void)state;
    gguf_bytes b = model_of(FTKI_F16, 32, true);
    scratch_write(scratch_path("p.gguf"), b.data, b.len);
    seen s = {.ordered = true};
    ftk_quantize_opts o = {.size = sizeof o, .type = "Q8_0", .progress = watch, .progress_ctx = &s};
    ftk_error e;
    assert_int_equal(ftk_quantize_file(scratch_path("p.gguf"), scratch_path("p.out"), &o, &e), FTK_OK);
    assert_true(s.ordered && s.calls >= 2);
    assert_int_equal(s.total, COLUMNS * ROWS + 96 * 2 + 256);

    scratch_write(scratch_path("p.out"), "old", 3);
    int before = scratch_count();
    for (uint64_t stop = 1; stop <= 2; stop++) {
        s = (seen){.ordered = true, .stop_at = stop};
        assert_int_equal(ftk_quantize_file(scratch_path("p.gguf"), scratch_path("p.out"), &o, &e), FTK_CANCELLED);
        assert_int_equal(s.calls, stop);
        assert_int_equal(scratch_count(), before);
        size_t len;
        char *kept = scratch_read(scratch_path("p.out"), &len);
        assert_string_equal(kept, "old");
        free(kept);
    }
    free_bytes(&b);
}

static void expect_failure(const char *in, const char *out, const char *type, ftk_status status,
                           const char *word) {
    const ftk_quantize_opts o = {.type = type, .n_threads = 2};
    ftk_error e = {0};
    int before = scratch_count();
    ftk_status s = ftk_quantize_file(in, out, &o, &e);
    limit_file_size(RLIM_INFINITY);
    if (s != status || strstr(e.message, word) == NULL)
        print_error("%s: %s\n", ftk_status_name(s), e.message);
    assert_int_equal(s, status);
    assert_non_null(strstr(e.message, word));
    assert_int_equal(scratch_count(), before);
}

static void refusals(void **state) {
    (void)state;
    ftk_error e;
    gguf_bytes b = model_of(FTKI_F32, 32, true);
    const char *in = scratch_path("r.gguf"), *out = scratch_path("r.out");
    scratch_write(in, b.data, b.len);
    expect_failure(in, out, "Q6_K", FTK_INVALID_ARGUMENT, "'Q6_K' cannot be written; use Q8_0, Q4_0 or Q4_K");
    expect_failure(in, out, "", FTK_INVALID_ARGUMENT, "use Q8_0");
    expect_failure(in, out, NULL, FTK_INVALID_ARGUMENT, "must not be NULL");
    expect_failure(NULL, out, "Q8_0", FTK_INVALID_ARGUMENT, "must not be NULL");
    expect_failure(in, NULL, "Q8_0", FTK_INVALID_ARGUMENT, "must not be NULL");
    assert_int_equal(ftk_quantize_file(in, out, NULL, &e), FTK_INVALID_ARGUMENT);
    expect_failure(scratch_path("absent"), out, "Q8_0", FTK_IO, "absent");
    expect_failure(in, scratch_dir, "Q8_0", FTK_IO, "is a directory");
    expect_failure(in, scratch_path("no/where"), "Q8_0", FTK_IO, "No such file");
    ftk_quantize_opts o = {.type = "Q8_0", .n_threads = 1000};
    assert_int_equal(ftk_quantize_file(in, out, &o, &e), FTK_INVALID_ARGUMENT);

    scratch_write(scratch_path("cut.gguf"), b.data, b.len - 1); /* M9: data past the end */
    expect_failure(scratch_path("cut.gguf"), out, "Q8_0", FTK_FORMAT, "'norm' needs");

    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) { /* somewhere in the matrix */
        ftki_gguf g;
        assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK);
        size_t at = (size_t)ftki_gguf_tensor(&g, "matrix")->offset + 4u * 30001u;
        ftki_gguf_close(&g);
        float old;
        memcpy(&old, b.data + at, 4);
        memcpy(b.data + at, &bad[i], 4);
        scratch_write(scratch_path("nan.gguf"), b.data, b.len);
        memcpy(b.data + at, &old, 4);
        expect_failure(scratch_path("nan.gguf"), out, "Q8_0", FTK_FORMAT, "tensor 'matrix' holds");
    }
    free_bytes(&b);
}

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    gguf_bytes b = model_of(FTKI_F32, 32, true);
    const char *in = scratch_path("d.gguf"), *out = scratch_path("d.out");
    scratch_write(in, b.data, b.len);
    scratch_write(out, "old", 3);
    static const rlim_t limits[] = {0, 100, 1000, 50000, 71000}; /* of about 73000 bytes */
    for (int i = 0; i < 5; i++) {
        limit_file_size(limits[i]);
        expect_failure(in, out, "Q8_0", FTK_IO, "d.out': File too large");
        size_t len;
        char *kept = scratch_read(out, &len);
        assert_string_equal(kept, "old");
        free(kept);
    }
    free_bytes(&b);
}

static void allocation_failures(void **state) {
    (void)state;
    gguf_bytes b = model_of(FTKI_Q8_0, 32, true);
    const char *in = scratch_path("m.gguf"), *out = scratch_path("m.out");
    scratch_write(in, b.data, b.len);
    int before = scratch_count(), failures = 0;
    ftk_status s;
    do {
        const ftk_quantize_opts o = {.type = "Q4_0", .n_threads = 2};
        ftk_error e;
        ftki_alloc_fail_at((uint64_t)++failures);
        s = ftk_quantize_file(in, out, &o, &e);
        ftki_alloc_fail_at(0);
        if (s == FTK_OUT_OF_MEMORY) assert_int_equal(scratch_count(), before);
    } while (s == FTK_OUT_OF_MEMORY);
    assert_int_equal(s, FTK_OK);
    assert_in_range(failures, 8, 12);
    free_bytes(&b);
}

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_to_every_target),
        cmocka_unit_test(larger_than_a_batch),
        cmocka_unit_test(onto_itself),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(progress_and_cancelling),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}

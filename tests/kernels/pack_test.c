// SPDX-License-Identifier: Apache-2.0
/* Packing against the readable specification of the block formats, refusals of shapes, and the
 * choice of a level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "format/quants.h"
#include "kernels/kernels.h"

static const ftki_type types[] = {FTKI_Q8_0, FTKI_Q4_1, FTKI_Q4_0, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K,
                                  FTKI_Q5_0, FTKI_Q5_1, FTKI_F32,  FTKI_F16,  FTKI_BF16};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Random bytes with finite scales; floats are finite too. */
static void fill(ftki_type type, unsigned char *p, size_t n_blocks, size_t bytes, ftki_rng *rng) {
    for (size_t b = 0; b < n_blocks; b++, p += bytes) {
        for (size_t i = 0; i < bytes; i++) p[i] = (unsigned char)ftki_rng_u32(rng);
        uint16_t h = (uint16_t)(0x2000 + ftki_rng_u32(rng) % 0x1000), g = (uint16_t)(h ^ 0x8155);
        if (type == FTKI_F32) p[3] = 0x3f;
        else if (type == FTKI_F16 || type == FTKI_BF16) p[1] = 0x3b;
        else memcpy(p + (type == FTKI_Q6_K ? 208 : 0), &h, 2);
        if (type == FTKI_Q4_1 || type == FTKI_Q5_1 || type == FTKI_Q4_K || type == FTKI_Q5_K) memcpy(p + 2, &g, 2);
    }
}

/* The K formats store products of scales, which packing rounds to F16: 2^-11 of each part. */
static double allowed(ftki_type type, double largest) {
    bool rounded = type == FTKI_Q4_K || type == FTKI_Q5_K || type == FTKI_Q6_K;
    return rounded ? largest * 0x1p-10 : 0.0;
}

static void compare_rows(ftki_type type, int32_t rows, int32_t cols, const int32_t *row_map, ftki_rng *rng) {
    const ftki_type_info *info = ftki_type_find(type);
    size_t row_bytes = (size_t)cols / info->block * info->block_bytes;
    unsigned char *src = malloc((size_t)rows * row_bytes);
    fill(type, src, (size_t)rows * (size_t)cols / info->block, info->block_bytes, rng);
    size_t bytes = ftki_pack_bytes(type, rows, cols);
    assert_true(bytes > 0 && bytes % FTKI_ALIGN == 0);
    void *memory = aligned_alloc(FTKI_ALIGN, bytes);
    float *got = malloc((size_t)cols * sizeof(float)), *want = malloc((size_t)cols * sizeof(float));

    ftki_matrix m;
    ftki_pack_begin(&m, type, rows, cols, memory);
    assert_true(ftki_matrix_bytes(&m) <= bytes && ftki_matrix_bytes(&m) + 3 * FTKI_ALIGN > bytes);
    int32_t middle = m.n_panels / 2; /* as two threads would */
    ftki_pack_panels(&m, src, row_map, middle, m.n_panels);
    ftki_pack_panels(&m, src, row_map, 0, middle);
    for (int32_t r = 0; r < rows; r++) {
        ftki_matrix_row(&m, r, got);
        ftki_dequantize_row(type, src + (size_t)(row_map ? row_map[r] : r) * row_bytes, want, (size_t)cols);
        double largest = 0;
        for (int32_t i = 0; i < cols; i++) largest = fmax(largest, fabs((double)want[i]));
        for (int32_t i = 0; i < cols; i++) {
            double difference = fabs((double)got[i] - (double)want[i]);
            if (difference > allowed(type, 64 * largest / 63))
                fail_msg("%s %d x %d: row %d input %d is %g, should be %g", info->name, rows, cols, r, i,
                         (double)got[i], (double)want[i]);
        }
    }
    free(src), free(memory), free(got), free(want);
}

static void reads_back_what_was_packed(void **state) {
    (void)state;
    static const int32_t row_counts[] = {1, 15, 16, 17, 33};
    ftki_rng rng;
    ftki_rng_seed(&rng, 7);
    for (size_t k = 0; k < N_TYPES; k++)
        for (size_t r = 0; r < 5; r++) {
            uint32_t block = ftki_type_find(types[k])->block;
            compare_rows(types[k], row_counts[r], block == 1 ? 5 : (int32_t)block * 3, NULL, &rng);
        }
}

static void maps_rows(void **state) {
    (void)state;
    int32_t map[37];
    ftki_rng rng;
    ftki_rng_seed(&rng, 8);
    for (int32_t i = 0; i < 37; i++) map[i] = (i * 11) % 37;
    for (size_t k = 0; k < N_TYPES; k++) compare_rows(types[k], 37, 256, map, &rng);
}

static void clamps_scales_to_half_precision(void **state) {
    (void)state;
    unsigned char block[210];
    uint16_t largest = 0x7bff; /* 65504 */
    memset(block, 0xff, sizeof block);
    memset(block + 192, 127, 16);
    memcpy(block + 208, &largest, 2);
    void *memory = aligned_alloc(FTKI_ALIGN, ftki_pack_bytes(FTKI_Q6_K, 1, 256));
    ftki_matrix m;
    ftki_pack_begin(&m, FTKI_Q6_K, 1, 256, memory);
    ftki_pack_panels(&m, block, NULL, 0, 1);
    float row[256];
    ftki_matrix_row(&m, 0, row);
    assert_true(row[0] == 65504.0f * 31.0f);
    free(memory);
}

static void refuses_shapes(void **state) {
    (void)state;
    assert_int_equal(ftki_pack_bytes(FTKI_Q8_0, 16, 33), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_Q8_0, 16, 16), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_Q4_K, 16, 128), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, 0, 8), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, 8, 0), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, -1, 8), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, INT64_MAX, 1), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, 1, INT64_MAX), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_F32, INT32_MAX - 16, INT32_MAX - 32), 0);
    assert_int_equal(ftki_pack_bytes((ftki_type)99, 16, 32), 0);
    assert_int_equal(ftki_pack_bytes(FTKI_Q8_0, 16, 32), 512 + 64);
    assert_int_equal(ftki_pack_bytes(FTKI_Q4_1, 17, 64), 2 * 512 + 128 + 128);
}

static void chooses_levels(void **state) {
    (void)state;
    const ftki_kernels *k = NULL, *best = NULL;
    ftk_error e;
    size_t n = 0;
    unsetenv("FREETOKEN_ISA");
    for (; ftki_kernels_at(n); n++) best = ftki_kernels_at(n);
    assert_true(n >= 1);
    assert_string_equal(ftki_kernels_at(0)->name, "scalar");
    assert_int_equal(ftki_kernels_choose(&k, NULL, &e), FTK_OK);
    assert_ptr_equal(k, best);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ftki_kernels_choose(&k, ftki_kernels_at(i)->name, &e), FTK_OK);
        assert_ptr_equal(k, ftki_kernels_at(i));
    }
    setenv("FREETOKEN_ISA", "scalar", 1);
    assert_int_equal(ftki_kernels_choose(&k, NULL, &e), FTK_OK);
    assert_string_equal(k->name, "scalar");
    assert_int_equal(ftki_kernels_choose(&k, best->name, &e), FTK_OK); /* the argument wins */
    assert_ptr_equal(k, best);
    setenv("FREETOKEN_ISA", "sse9", 1);
    assert_int_equal(ftki_kernels_choose(&k, NULL, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "sse9"));
    assert_non_null(strstr(e.message, "scalar"));
    unsetenv("FREETOKEN_ISA");
#if defined(__x86_64__)
    assert_int_equal(ftki_kernels_choose(&k, "neon", &e), FTK_UNSUPPORTED);
#else
    assert_int_equal(ftki_kernels_choose(&k, "avx2", &e), FTK_UNSUPPORTED);
#endif
    assert_non_null(strstr(e.message, "scalar"));
    assert_ptr_equal(k, best); /* untouched by failures */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_packed),
        cmocka_unit_test(maps_rows),
        cmocka_unit_test(clamps_scales_to_half_precision),
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(chooses_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

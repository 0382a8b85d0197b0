// SPDX-License-Identifier: Apache-2.0
/* Blocks to numbers: equal, bit for bit, to what the gguf Python package decodes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "format/quants.h"
#include "unit/data/quants_golden.h"

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return isnan(f) ? 0x7FC00000 : bits;
}

/* The blocks make_quants_golden.py made: random bytes, scales overwritten in turn. */
static void make_blocks(const struct golden *c, const ftki_type_info *info, unsigned char *blocks) {
    enum { N_SCALES = sizeof golden_scales / sizeof golden_scales[0] };
    ftki_rng rng;
    ftki_rng_seed(&rng, (uint64_t)c->type);
    for (size_t i = 0; i < GOLDEN_BLOCKS * info->block_bytes; i++)
        blocks[i] = (unsigned char)ftki_rng_u32(&rng);
    for (size_t i = 0; i < GOLDEN_BLOCKS; i++)
        for (size_t k = 0; k < 2 && c->scales[k] >= 0; k++) {
            uint16_t scale = golden_scales[(i + 3 * k) % N_SCALES];
            unsigned char *p = blocks + i * info->block_bytes + c->scales[k];
            p[0] = (unsigned char)scale, p[1] = (unsigned char)(scale >> 8);
        }
}

static void equals_the_gguf_package(void **state) {
    (void)state;
    static unsigned char blocks[GOLDEN_BLOCKS * 256 + 1];
    static float values[GOLDEN_BLOCKS * 256];
    assert_int_equal(sizeof golden / sizeof golden[0], 11); /* all types we read */
    for (size_t i = 0; i < 11; i++) {
        const struct golden *c = &golden[i];
        const ftki_type_info *info = ftki_type_find((uint32_t)c->type);
        size_t n = (size_t)GOLDEN_BLOCKS * info->block;
        for (size_t misaligned = 0; misaligned < 2; misaligned++) {
            make_blocks(c, info, blocks + misaligned);
            ftki_dequantize_row(c->type, blocks + misaligned, values, n);
            uint64_t checksum = 0xCBF29CE484222325u;
            for (size_t k = 0; k < n; k++) checksum = (checksum ^ bits_of(values[k])) * 0x100000001B3u;
            for (size_t k = 0; k < 4; k++) {
                assert_int_equal(bits_of(values[k]), c->first[0][k]);
                assert_int_equal(bits_of(values[3 * info->block + k]), c->first[1][k]);
            }
            if (checksum != c->checksum) print_error("type %s\n", info->name);
            assert_true(checksum == c->checksum);
        }
    }
}

static void one_block_writes_one_block(void **state) {
    (void)state;
    for (size_t i = 0; i < 11; i++) {
        const ftki_type_info *info = ftki_type_find((uint32_t)golden[i].type);
        unsigned char block[256] = {0};
        float values[258];
        for (int k = 0; k < 258; k++) values[k] = -7;
        ftki_dequantize_row(info->type, block, values + 1, 0);
        assert_true(values[1] == -7);
        ftki_dequantize_row(info->type, block, values + 1, info->block);
        assert_true(values[0] == -7 && values[1 + info->block] == -7);
        for (uint32_t k = 0; k < info->block; k++) assert_true(values[1 + k] == 0);
    }
}

/* ------------------------------------------------------------------- half floats */

/* Value of a finite half float, by its definition. */
static double half_value(uint16_t h) {
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    double v = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static void every_half_float(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = ftki_f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00) {
            assert_true((h & 0x3FF) != 0 ? isnan(f) : isinf(f) && !!signbit(f) == (int)(h >> 15));
            if ((h & 0x3FF) != 0) assert_int_equal(ftki_f32_to_f16(f) & 0x7E00, 0x7E00);
        } else {
            assert_true((double)f == half_value((uint16_t)h));
            assert_int_equal(!!signbit(f), h >> 15);
        }
        if (!isnan(f)) assert_int_equal(ftki_f32_to_f16(f), h);
    }
}

/* Between two neighbouring half floats: below, at and above the middle. */
static void rounding_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7BFF; h++) {
        double low = half_value((uint16_t)h), high = half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact: one bit more */
        uint32_t even = h + (h & 1);
        for (uint32_t sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            assert_int_equal(ftki_f32_to_f16(s * middle), even | sign << 15);
            assert_int_equal(ftki_f32_to_f16(s * nextafterf(middle, 0)), h | sign << 15);
            assert_int_equal(ftki_f32_to_f16(s * nextafterf(middle, INFINITY)), (h + 1) | sign << 15);
        }
    }
    assert_int_equal(ftki_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(ftki_f32_to_f16(65520.0f), 0x7C00); /* halfway to what would be 65536 */
    assert_int_equal(ftki_f32_to_f16(-1e30f), 0xFC00);
    assert_int_equal(ftki_f32_to_f16(INFINITY), 0x7C00);
    assert_int_equal(ftki_f32_to_f16(NAN) & 0x7FFF, 0x7E00);
    assert_int_equal(ftki_f32_to_f16(1e-45f), 0);
    assert_int_equal(ftki_f32_to_f16(-1e-45f), 0x8000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_gguf_package),
        cmocka_unit_test(one_block_writes_one_block),
        cmocka_unit_test(every_half_float),
        cmocka_unit_test(rounding_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

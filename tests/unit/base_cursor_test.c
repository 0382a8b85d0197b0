// SPDX-License-Identifier: Apache-2.0
/* Reads at and past the end of the data: position, message and out-parameter. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cursor.h"

static void reads_little_endian(void **state) {
    (void)state;
    const unsigned char data[] = {0xFE, 0x01, 0x02, 0x11, 0x22, 0x33, 0x44, 0x88, 0x99, 0xAA,
                                  0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x00, 0x00, 0x80, 0xBF, 'x'};
    ftki_cursor c = {data, sizeof data, 0};
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f32;
    const unsigned char *bytes;
    assert_int_equal(ftki_read_u8(&c, &u8, "a", NULL), FTK_OK);
    assert_int_equal(u8, 0xFE);
    assert_int_equal(ftki_read_u16(&c, &u16, "b", NULL), FTK_OK);
    assert_int_equal(u16, 0x0201);
    assert_int_equal(ftki_read_u32(&c, &u32, "c", NULL), FTK_OK);
    assert_int_equal(u32, 0x44332211);
    assert_int_equal(ftki_read_u64(&c, &u64, "d", NULL), FTK_OK);
    assert_true(u64 == 0xFFEEDDCCBBAA9988u);
    assert_int_equal(ftki_read_f32(&c, &f32, "e", NULL), FTK_OK);
    assert_true(f32 == -1.0f);
    assert_int_equal(ftki_read_bytes(&c, 1, &bytes, "f", NULL), FTK_OK);
    assert_ptr_equal(bytes, data + 19);
    assert_int_equal(ftki_cursor_left(&c), 0);
    assert_int_equal(ftki_read_bytes(&c, 0, &bytes, "nothing", NULL), FTK_OK);
}

static void a_failed_read_changes_nothing(void **state) {
    (void)state;
    const unsigned char data[7] = {0};
    uint8_t u8 = 1;
    uint16_t u16 = 2;
    uint32_t u32 = 3;
    uint64_t u64 = 4;
    float f32 = 5;
    const unsigned char *bytes = data + 1;
    const size_t sizes[] = {1, 2, 4, 8, 4, SIZE_MAX};
    for (size_t k = 0; k < 6; k++)
        for (size_t left = 0; left < 7 && left < sizes[k]; left++) {
            ftki_cursor c = {data, sizeof data, sizeof data - left};
            ftk_error e = {0};
            ftk_status s = k == 0   ? ftki_read_u8(&c, &u8, "thing", &e)
                           : k == 1 ? ftki_read_u16(&c, &u16, "thing", &e)
                           : k == 2 ? ftki_read_u32(&c, &u32, "thing", &e)
                           : k == 3 ? ftki_read_u64(&c, &u64, "thing", &e)
                           : k == 4 ? ftki_read_f32(&c, &f32, "thing", &e)
                                    : ftki_read_bytes(&c, SIZE_MAX, &bytes, "thing", &e);
            assert_int_equal(s, FTK_FORMAT);
            assert_int_equal(e.offset, (int64_t)(sizeof data - left));
            assert_non_null(strstr(e.message, "thing"));
            assert_int_equal(c.pos, sizeof data - left);
        }
    assert_int_equal(u8, 1);
    assert_int_equal(u16, 2);
    assert_int_equal(u32, 3);
    assert_int_equal(u64, 4);
    assert_true(f32 == 5);
    assert_ptr_equal(bytes, data + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_little_endian),
        cmocka_unit_test(a_failed_read_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

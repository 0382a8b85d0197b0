// SPDX-License-Identifier: Apache-2.0
/* The checksum of snapshots: streaming, and blind to no single change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"

enum { LENGTH = 67 };

static uint64_t hash_of(const void *data, size_t len) {
    ftki_hash h;
    ftki_hash_start(&h);
    ftki_hash_add(&h, data, len);
    return ftki_hash_end(&h);
}

static void fill(unsigned char *data, size_t len) {
    ftki_rng rng;
    ftki_rng_seed(&rng, 7);
    for (size_t i = 0; i < len; i++) data[i] = (unsigned char)ftki_rng_u32(&rng);
}

static void cut_anywhere(void **state) {
    (void)state;
    unsigned char data[LENGTH];
    fill(data, LENGTH);
    uint64_t whole = hash_of(data, LENGTH);
    for (size_t a = 0; a <= LENGTH; a++) {
        for (size_t b = a; b <= LENGTH; b++) {
            ftki_hash h;
            ftki_hash_start(&h);
            ftki_hash_add(&h, data, a);
            ftki_hash_add(&h, data + a, b - a);
            ftki_hash_add(&h, data + b, LENGTH - b);
            assert_true(ftki_hash_end(&h) == whole);
        }
    }
}

static void every_flip_shows(void **state) {
    (void)state;
    unsigned char data[LENGTH];
    fill(data, LENGTH);
    for (size_t len = 1; len <= LENGTH; len++) {
        uint64_t whole = hash_of(data, len);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_true(hash_of(data, len) != whole);
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}

static void every_length_shows(void **state) {
    (void)state;
    unsigned char zeros[LENGTH] = {0};
    for (size_t a = 0; a <= LENGTH; a++)
        for (size_t b = 0; b < a; b++) assert_true(hash_of(zeros, a) != hash_of(zeros, b));
}

static void swapped_words_show(void **state) {
    (void)state;
    unsigned char data[LENGTH], swapped[LENGTH];
    fill(data, LENGTH);
    for (size_t a = 0; a + 8 <= LENGTH; a += 8) {
        for (size_t b = a + 8; b + 8 <= LENGTH; b += 8) {
            memcpy(swapped, data, LENGTH);
            memcpy(swapped + a, data + b, 8);
            memcpy(swapped + b, data + a, 8);
            assert_true(hash_of(swapped, LENGTH) != hash_of(data, LENGTH));
        }
    }
}

static void files_keep_their_checksum(void **state) {
    (void)state; /* stored in snapshots: these values must never change */
    assert_true(hash_of("", 0) == UINT64_C(0xE8FFE7776F999FF7));
    assert_true(hash_of("FreeToken snapshot", 18) == UINT64_C(0x1E5EEE9613295BB5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_anywhere),       cmocka_unit_test(every_flip_shows),
        cmocka_unit_test(every_length_shows), cmocka_unit_test(swapped_words_show),
        cmocka_unit_test(files_keep_their_checksum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

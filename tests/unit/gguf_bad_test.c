// SPDX-License-Identifier: Apache-2.0
/* Damaged and hostile GGUF files: each is refused with the status, the byte offset and the name
 * that tell where it is wrong; truncation at every byte, input against an inaccessible page, and
 * every byte changed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "format/quants.h"
#include "unit/gguf_bytes.h"

/* Expects a refusal at `offset` (-1: no offset) whose message has both words; frees b. */
static void refuse(gguf_bytes *b, ftk_status status, int64_t offset, const char *word,
                   const char *other) {
    ftki_gguf g = {.version = 77};
    ftk_error e = {0};
    ftk_status s = ftki_gguf_parse(&g, b->data, b->len, &e);
    if (s != status || e.offset != offset || strstr(e.message, word) == NULL ||
        strstr(e.message, other) == NULL)
        print_error("got %s at %lld: %s\n", ftk_status_name(s), (long long)e.offset, e.message);
    assert_int_equal(s, status);
    assert_int_equal(e.code, status);
    assert_int_equal(e.offset, offset);
    assert_non_null(strstr(e.message, word));
    assert_non_null(strstr(e.message, other));
    assert_int_equal(g.version, 77); /* untouched */
    /* Without an error object the same. */
    assert_int_equal(ftki_gguf_parse(&g, b->data, b->len, NULL), status);
    free_bytes(b);
}

/* ---------------------------------------------------------------- header */

static void not_a_gguf_file(void **state) {
    (void)state;
    gguf_bytes b = {0};
    put_bytes(&b, "PK\x03\x04 and something else", 24);
    refuse(&b, FTK_FORMAT, 0, "not a GGUF file", "'PK?" "?'");
    put_bytes(&b, "ggufggufggufggufggufgguf", 24); /* case counts */
    refuse(&b, FTK_FORMAT, 0, "not a GGUF file", "'gguf'");
    put_bytes(&b, "FUGGxxxxxxxxxxxxxxxxxxxx", 24);
    refuse(&b, FTK_FORMAT, 0, "not a GGUF file", "'FUGG'");
}

static void truncated_header(void **state) {
    (void)state;
    for (size_t len = 4; len < 24; len++) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 0);
        b.len = len;
        refuse(&b, FTK_FORMAT, (int64_t)len, "truncated header", "24 bytes");
    }
    for (size_t len = 0; len < 4; len++) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 0);
        b.len = len;
        refuse(&b, FTK_FORMAT, 0, "header", "bytes needed");
    }
}

static void other_versions(void **state) {
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, 99, 0xFFFFFFFF};
    char word[32];
    for (size_t i = 0; i < 5; i++) {
        gguf_bytes b = {0};
        put_header(&b, versions[i], 0, 0);
        snprintf(word, sizeof word, "GGUF version %u;", versions[i]);
        refuse(&b, FTK_UNSUPPORTED, 4, word, "versions 2 and 3 are supported");
    }
    for (uint32_t v = 1; v <= 3; v++) {
        gguf_bytes b = {0};
        put_header(&b, v << 24, 0, 0);
        refuse(&b, FTK_UNSUPPORTED, 4, "big-endian", "convert it to little-endian");
    }
}

/* Counts are bounded by the bytes of the file before anything is allocated. */
static void absurd_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {4, 1000, 1ull << 32, 1ull << 40, 1ull << 63, UINT64_MAX,
                                      UINT64_MAX / sizeof(ftki_tensor),
                                      UINT64_MAX / sizeof(ftki_tensor) + 1,
                                      UINT64_MAX / sizeof(ftki_key), UINT64_MAX / 14 + 1};
    uint64_t before = ftki_alloc_count();
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char claimed[48];
        gguf_bytes b = {0};
        put_header(&b, 3, counts[i], 0);
        for (int k = 0; k < 50; k++) put_number(&b, 0, 1);
        snprintf(claimed, sizeof claimed, "claims %llu tensors", (unsigned long long)counts[i]);
        refuse(&b, FTK_FORMAT, 8, claimed, "cut short or damaged");
        put_header(&b, 3, 0, counts[i]);
        for (int k = 0; k < 50; k++) put_number(&b, 0, 1);
        snprintf(claimed, sizeof claimed, "claims %llu keys", (unsigned long long)counts[i]);
        refuse(&b, FTK_FORMAT, 16, claimed, "cut short or damaged");
    }
    assert_int_equal(ftki_alloc_count(), before);
}

/* ------------------------------------------------------------------ keys */

static void bad_key_names(void **state) {
    (void)state;
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 1);
    put_u32_key(&b, "", 1);
    refuse(&b, FTK_FORMAT, 24, "key name at byte 24", "empty");

    put_header(&b, 3, 0, 2);
    put_u32_key(&b, "good", 1);
    put_u32_key(&b, "", 1);
    refuse(&b, FTK_FORMAT, 44, "key name at byte 44", "empty");

    static const uint64_t lengths[] = {100, 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX,
                                       UINT64_MAX - 7, UINT64_MAX - 31};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put_header(&b, 3, 0, 1);
        put_u64(&b, lengths[i]);
        put_bytes(&b, "0123456789abcdef", 16);
        refuse(&b, FTK_FORMAT, 24, "key name at byte 24 claims", "only 16 are left");
    }

    put_header(&b, 3, 0, 1); /* longer than the format allows, all there, shown shortened */
    put_u64(&b, 70000);
    for (int i = 0; i < 70000; i++) put_bytes(&b, "k", 1);
    put_u32(&b, 4), put_u32(&b, 1);
    refuse(&b, FTK_FORMAT, 24, "70000 bytes; at most 65535", "kkk...'");

    static const char *const names[] = {"a\x1b[31m", "a\nb\0c", "\xff\xfe\xff\xfe", "a\xc3(bb",
                                        ("a\xe2\x80\xae" "b"), "a\x7f"};
    static const int64_t where[] = {1, 1, 0, 1, 1, 1};
    for (size_t i = 0; i < 6; i++) {
        put_header(&b, 3, 0, 1);
        put_u32_key(&b, names[i], 1);
        refuse(&b, FTK_FORMAT, 32 + where[i], "not printable UTF-8", "?");
    }
    put_header(&b, 3, 0, 1);
    put_text_n(&b, "a\0b", 3);
    put_u32(&b, 4), put_u32(&b, 1);
    refuse(&b, FTK_FORMAT, 33, "not printable UTF-8", "'a?b'");
}

static void duplicate_keys(void **state) {
    (void)state;
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 4);
    put_u32_key(&b, "x.twice", 1);
    put_u32_key(&b, "x.other", 1);
    put_u32_key(&b, "x.twic", 1);
    put_text_key(&b, "x.twice", "again");
    refuse(&b, FTK_FORMAT, -1, "key 'x.twice' appears twice", "");
}

static void bad_key_types(void **state) {
    (void)state;
    static const uint32_t types[] = {13, 14, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < 5; i++) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 1);
        put_key(&b, "key", types[i]);
        put_u64(&b, 0), put_u64(&b, 0);
        refuse(&b, FTK_FORMAT, 35, "key 'key' has type", "at byte 35");
        put_header(&b, 3, 0, 1);
        put_array_key(&b, "key", types[i], 1);
        put_u64(&b, 0);
        refuse(&b, FTK_FORMAT, 39, "key 'key' has type", "at byte 39");
    }
}

static void nested_arrays(void **state) {
    (void)state;
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 1);
    put_array_key(&b, "key", 9, 1);
    put_u32(&b, 9), put_u64(&b, 1), put_u32(&b, 9), put_u64(&b, 1);
    refuse(&b, FTK_UNSUPPORTED, 39, "key 'key' is an array of arrays", "at byte 39");
}

static void absurd_array_lengths(void **state) {
    (void)state;
    static const uint64_t counts[] = {1000, 1ull << 32, 1ull << 40, 1ull << 61, 1ull << 62,
                                      1ull << 63, UINT64_MAX, UINT64_MAX / 8 + 1};
    uint64_t before = ftki_alloc_count();
    for (uint32_t element = 0; element <= 12; element++) {
        if (element == 9) continue;
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            gguf_bytes b = {0};
            char claimed[64];
            put_header(&b, 3, 0, 1);
            put_array_key(&b, "key", element, counts[i]);
            for (int k = 0; k < 40; k++) put_number(&b, 0, 1);
            snprintf(claimed, sizeof claimed, "key 'key' claims %llu values",
                     (unsigned long long)counts[i]);
            refuse(&b, FTK_FORMAT, 51, claimed, "only 40 bytes are left");
        }
    }
    assert_int_equal(ftki_alloc_count(), before);
}

static void bad_values(void **state) {
    (void)state;
    static const uint64_t lengths[] = {5, 1ull << 40, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < 4; i++) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 1);
        put_key(&b, "key", 8);
        put_u64(&b, lengths[i]);
        put_bytes(&b, "four", 4);
        refuse(&b, FTK_FORMAT, 39, "string value at byte 39 claims", "only 4 are left");
        put_header(&b, 3, 0, 1); /* the second of an array */
        put_array_key(&b, "key", 8, 2);
        put_text(&b, "good");
        put_u64(&b, lengths[i]);
        put_bytes(&b, "four", 4);
        refuse(&b, FTK_FORMAT, 63, "string value at byte 63 claims", "only 4 are left");
    }
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 1);
    put_key(&b, "flag", 7), put_number(&b, 2, 1);
    refuse(&b, FTK_FORMAT, 40, "key 'flag' holds 2 where a bool", "at byte 40");
    put_header(&b, 3, 0, 1);
    put_array_key(&b, "flags", 7, 3), put_number(&b, 0xFF0100, 3);
    refuse(&b, FTK_FORMAT, 55, "key 'flags' holds 255 where a bool", "at byte 55");
}

static void bad_alignment(void **state) {
    (void)state;
    static const uint32_t values[] = {0, 1, 2, 4, 7, 24, 33, (1u << 20) + 1, 1u << 21, 1u << 31,
                                      UINT32_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        gguf_bytes b = {0};
        put_header(&b, 3, 0, 1);
        put_u32_key(&b, "general.alignment", values[i]);
        refuse(&b, FTK_FORMAT, 53, "general.alignment is", "power of two from 8 to 1048576");
    }
    gguf_bytes b = {0};
    put_header(&b, 3, 0, 1);
    put_text_key(&b, "general.alignment", "32");
    refuse(&b, FTK_FORMAT, -1, "'general.alignment' has type string", "an integer is due");
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", 11), put_u64(&b, (uint64_t)-32);
    refuse(&b, FTK_FORMAT, -1, "'general.alignment' is out of range", "");
}

/* --------------------------------------------------------------- tensors */

/* A file with one tensor "w" (entry at byte 24) and `data` bytes of data. */
static gguf_bytes one_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset,
                             size_t data) {
    gguf_bytes b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", n_dims, dims, type, offset);
    pad_to(&b, 32);
    for (size_t i = 0; i < data; i++) put_number(&b, 0, 1);
    return b;
}

static void zero_dimensions(void **state) {
    (void)state;
    for (uint32_t n_dims = 1; n_dims <= 4; n_dims++)
        for (uint32_t zero = 0; zero < n_dims; zero++) {
            uint64_t dims[4] = {32, 2, 2, 2};
            dims[zero] = 0;
            gguf_bytes b = one_tensor(n_dims, dims, 0, 0, 4096);
            refuse(&b, FTK_FORMAT, 37 + 8 * (int64_t)zero, "tensor 'w' has a dimension of zero",
                   "at byte");
        }
}

static void bad_number_of_dimensions(void **state) {
    (void)state;
    static const uint32_t numbers[] = {0, 5, 6, 1u << 16, UINT32_MAX};
    const uint64_t ones[6] = {1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < 5; i++) {
        gguf_bytes b = one_tensor(numbers[i] <= 6 ? numbers[i] : 4, ones, 0, 0, 4096);
        for (int k = 0; k < 4; k++) b.data[33 + k] = (unsigned char)(numbers[i] >> 8 * k);
        refuse(&b, FTK_FORMAT, 33, "tensor 'w' has", "1 to 4 are possible");
    }
}

static void bad_tensor_names(void **state) {
    (void)state;
    gguf_bytes b = {0};
    const uint64_t one[1] = {1};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "", 1, one, 0, 0);
    put_u64(&b, 0);
    refuse(&b, FTK_FORMAT, 24, "tensor name at byte 24", "empty");

    char name[300];
    memset(name, 't', sizeof name);
    name[255] = '\0';
    put_header(&b, 3, 1, 0);
    put_tensor(&b, name, 1, one, 0, 0);
    pad_to(&b, 32);
    put_f32(&b, 1);
    ftki_gguf g;
    ftk_error e;
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_OK); /* the longest possible */
    assert_non_null(ftki_gguf_tensor(&g, name));
    ftki_gguf_close(&g);
    free_bytes(&b);
    name[255] = 't', name[256] = '\0';
    put_header(&b, 3, 1, 0);
    put_tensor(&b, name, 1, one, 0, 0);
    put_u64(&b, 0);
    refuse(&b, FTK_FORMAT, 24, "has 256 bytes; at most 255", "ttt...'");

    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w\xff\xfe\x1b]0;x\x07", 1, one, 0, 0);
    put_u64(&b, 0);
    refuse(&b, FTK_FORMAT, 33, "not printable UTF-8", "'w???]0;x?'");

    put_header(&b, 3, 2, 0);
    put_u64(&b, 1ull << 40);
    for (int i = 0; i < 66; i++) put_number(&b, 'x', 1);
    refuse(&b, FTK_FORMAT, 24, "tensor name at byte 24 claims", "only 66 are left");
}

static void duplicate_tensors(void **state) {
    (void)state;
    gguf_bytes b = {0};
    const uint64_t one[1] = {1};
    put_header(&b, 3, 3, 0);
    put_tensor(&b, "blk.0.w", 1, one, 0, 0);
    put_tensor(&b, "blk.1.w", 1, one, 0, 32);
    put_tensor(&b, "blk.0.w", 1, one, 0, 32);
    pad_to(&b, 32);
    for (int i = 0; i < 64; i++) put_number(&b, 0, 1);
    refuse(&b, FTK_FORMAT, -1, "tensor 'blk.0.w' appears twice", "");
}

static void unsupported_types(void **state) {
    (void)state;
    static const struct { uint32_t type; const char *name; } types[] = {
        {4, "Q4_2"}, {9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {15, "Q8_K"}, {16, "IQ2_XXS"},
        {20, "IQ4_NL"}, {23, "IQ4_XS"}, {24, "I8"}, {28, "F64"}, {34, "TQ1_0"}, {39, "MXFP4"},
        {40, "unknown (40)"}, {999, "unknown (999)"}, {UINT32_MAX, "unknown (4294967295)"}};
    const uint64_t dims[2] = {256, 2};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char word[64];
        gguf_bytes b = one_tensor(2, dims, types[i].type, 0, 4096);
        snprintf(word, sizeof word, "tensor 'w' has type %s", types[i].name);
        refuse(&b, FTK_UNSUPPORTED, 53, word,
               "supported: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
    }
}

static void sizes_that_overflow(void **state) {
    (void)state;
    static const uint64_t dims[][4] = {
        {1ull << 32, 1ull << 32, 1, 1},
        {1ull << 63, 1, 1, 1},             /* as F32: 2^65 bytes */
        {1ull << 62, 2, 1, 1},             /* 2^63 weights: not signed */
        {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
        {1ull << 40, 1ull << 40, 1ull << 40, 1ull << 40},
        {UINT64_MAX - 31, 1, 1, 1},
        {UINT64_MAX - 255, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    static const uint32_t types[] = {0, 1, 2, 8, 12, 14, 30};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (size_t t = 0; t < 7; t++) {
            if (dims[i][0] % 256 != 0 && (types[t] == 12 || types[t] == 14)) continue;
            gguf_bytes b = one_tensor(4, dims[i], types[t], 0, 4096);
            ftki_gguf g;
            ftk_error e;
            assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, &e), FTK_FORMAT);
            assert_non_null(strstr(e.message, "tensor 'w'"));
            free_bytes(&b);
        }
    gguf_bytes b = one_tensor(2, dims[0], 0, 0, 4096);
    refuse(&b, FTK_FORMAT, 24, "tensor 'w' has 4294967296 x 4294967296", "more than 64 bits");
    b = one_tensor(2, dims[2], 0, 0, 4096);
    refuse(&b, FTK_FORMAT, 24, "tensor 'w' has", "more than 64 bits");
}

static void rows_that_are_no_whole_blocks(void **state) {
    (void)state;
    static const struct { uint32_t type, block; } types[] = {
        {2, 32}, {3, 32}, {6, 32}, {7, 32}, {8, 32}, {12, 256}, {13, 256}, {14, 256}};
    for (size_t i = 0; i < 8; i++) {
        const uint64_t bad[] = {1, types[i].block - 1, types[i].block + 1, types[i].block * 3 / 2};
        for (size_t k = 0; k < 4; k++) {
            const uint64_t dims[2] = {bad[k], types[i].block};
            gguf_bytes b = one_tensor(2, dims, types[i].type, 0, 1 << 17);
            refuse(&b, FTK_FORMAT, 24, "tensor 'w' has rows of", "not a multiple of");
        }
    }
}

static void data_outside_the_file(void **state) {
    (void)state;
    const uint64_t dims[1] = {16}; /* 64 bytes of F32, data at byte 64 */
    static const struct { uint64_t offset; size_t data; } bad[] = {
        {0, 0}, {0, 63}, {32, 64}, {64, 64}, {96, 64}, {1ull << 40, 64}, {UINT64_MAX - 31, 64},
        {UINT64_MAX - 63, 64}, {1ull << 63, 64}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_bytes b = one_tensor(1, dims, 0, bad[i].offset, bad[i].data);
        refuse(&b, FTK_FORMAT, 64, "tensor 'w' needs 64 bytes at offset", "cut short or damaged");
    }
    for (uint64_t offset = 1; offset < 32; offset++) {
        gguf_bytes b = one_tensor(1, dims, 0, offset, 128);
        refuse(&b, FTK_FORMAT, 64, "tensor 'w' starts", "alignment 32");
    }
    gguf_bytes b = one_tensor(1, dims, 0, 0, 64); /* the file ends before the data starts */
    b.len = 60;
    refuse(&b, FTK_FORMAT, 60, "tensor 'w' needs 64 bytes", "which has 0 bytes");
    b = one_tensor(1, dims, 0, 32, 96); /* and this is right */
    ftki_gguf g;
    assert_int_equal(ftki_gguf_parse(&g, b.data, b.len, NULL), FTK_OK);
    ftki_gguf_close(&g);
    free_bytes(&b);
}

/* -------------------------------------------- truncation, guard page, flips */

/* A small file with every kind of entry, that ends with the last byte of the last tensor. */
static gguf_bytes small_file(uint32_t version) {
    gguf_bytes b = {0};
    put_header(&b, version, 3, 7);
    put_text_key(&b, "general.architecture", "llama");
    put_u32_key(&b, "general.alignment", 8);
    put_key(&b, "a.flag", 7), put_number(&b, 1, 1);
    put_key(&b, "a.big", 12), put_u64(&b, 0x3FF0000000000000u);
    put_array_key(&b, "a.texts", 8, 2), put_text(&b, "x"), put_text(&b, "yy");
    put_array_key(&b, "a.ints", 5, 3), put_u32(&b, 1), put_u32(&b, 2), put_u32(&b, 3);
    put_array_key(&b, "a.flags", 7, 2), put_number(&b, 0x0100, 2);
    put_tensor(&b, "one", 1, (uint64_t[]){3}, 0, 0);
    put_tensor(&b, "two", 2, (uint64_t[]){32, 2}, 8, 16);
    put_tensor(&b, "three", 2, (uint64_t[]){256, 1}, 14, 88);
    pad_to(&b, 8);
    for (int i = 0; i < 88 + 210; i++) put_number(&b, (uint64_t)i * 37, 1);
    return b;
}

/* Reads all that the directory promises. */
static void touch(const ftki_gguf *g) {
    volatile uint32_t sum = 0;
    for (size_t i = 0; i < g->n_keys; i++) {
        const ftki_key *k = &g->keys[i];
        size_t at = 0;
        for (uint64_t n = 0; n < k->count && k->element == FTKI_KEY_STRING; n++) {
            ftki_text t = ftki_key_next_text(k, &at);
            assert_non_null(t.data);
            for (size_t c = 0; c < t.len; c++) sum += (unsigned char)t.data[c];
        }
        for (size_t c = 0; c < k->bytes; c++) sum += k->data[c];
    }
    float row[256];
    for (size_t i = 0; i < g->n_tensors; i++) {
        const ftki_tensor *t = &g->tensors[i];
        const ftki_type_info *info = ftki_type_find((uint32_t)t->type);
        for (uint64_t at = 0; at < t->bytes; at += info->block_bytes) {
            ftki_dequantize_row(t->type, t->data + at, row, info->block);
            sum += row[0] > 0;
        }
        assert_ptr_equal(ftki_gguf_tensor(g, t->name), t);
    }
}

/* A copy of b that ends where an inaccessible page begins: one byte too far is a crash. */
typedef struct guarded {
    unsigned char *mapping, *data;
    size_t mapped;
} guarded;

static guarded guard(const unsigned char *data, size_t len) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (len + page - 1) / page * page;
    guarded g = {.mapped = inner + page};
    g.mapping = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.mapping != MAP_FAILED);
    assert_int_equal(mprotect(g.mapping + inner, page, PROT_NONE), 0);
    g.data = g.mapping + inner - len;
    if (len > 0) memcpy(g.data, data, len);
    return g;
}

static void every_truncation(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_bytes b = small_file(version);
        for (size_t len = 0; len <= b.len; len++) {
            guarded copy = guard(b.data, len);
            ftki_gguf g;
            ftk_error e = {0};
            ftk_status s = ftki_gguf_parse(&g, copy.data, len, &e);
            if (len == b.len) {
                assert_int_equal(s, FTK_OK);
                touch(&g);
                ftki_gguf_close(&g);
            } else {
                assert_int_equal(s, FTK_FORMAT);
                assert_in_range(e.offset, 0, len);
                assert_true(strlen(e.message) > 10);
            }
            munmap(copy.mapping, copy.mapped);
        }
        free_bytes(&b);
    }
}

static void every_byte_changed(void **state) {
    (void)state;
    static const unsigned char flips[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
    int accepted = 0, refused = 0;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_bytes b = small_file(version);
        guarded copy = guard(b.data, b.len);
        for (size_t at = 0; at < b.len; at++)
            for (size_t f = 0; f < sizeof flips; f++) {
                ftki_gguf g;
                ftk_error e = {0};
                copy.data[at] ^= flips[f];
                if (ftki_gguf_parse(&g, copy.data, b.len, &e) == FTK_OK) {
                    touch(&g);
                    ftki_gguf_close(&g);
                    accepted++;
                } else {
                    assert_true(e.code == FTK_FORMAT || e.code == FTK_UNSUPPORTED);
                    assert_true(strlen(e.message) > 10);
                    refused++;
                }
                copy.data[at] ^= flips[f];
            }
        munmap(copy.mapping, copy.mapped);
        free_bytes(&b);
    }
    /* Both happen: values and names may change, lengths and types may not. */
    assert_true(accepted > 1000 && refused > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_a_gguf_file),
        cmocka_unit_test(truncated_header),
        cmocka_unit_test(other_versions),
        cmocka_unit_test(absurd_counts),
        cmocka_unit_test(bad_key_names),
        cmocka_unit_test(duplicate_keys),
        cmocka_unit_test(bad_key_types),
        cmocka_unit_test(nested_arrays),
        cmocka_unit_test(absurd_array_lengths),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(bad_alignment),
        cmocka_unit_test(zero_dimensions),
        cmocka_unit_test(bad_number_of_dimensions),
        cmocka_unit_test(bad_tensor_names),
        cmocka_unit_test(duplicate_tensors),
        cmocka_unit_test(unsupported_types),
        cmocka_unit_test(sizes_that_overflow),
        cmocka_unit_test(rows_that_are_no_whole_blocks),
        cmocka_unit_test(data_outside_the_file),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(every_byte_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Pictures that are damaged, hostile or odd: refused by name, never a crash. What they look like when they are
 * sound is tested against Pillow (tests/oracle/test_media.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "freetoken/media.h"
#include "media/image.h"
#include "media/resize.h"

/* A PNG of 2 x 2 black pixels, 8 bits grey, and a JPEG header of a size to be filled in. */
static const uint8_t png_head[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
static const uint8_t jpeg_head[] = {0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, 0, 0, 0, 0, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0,
                                    0xFF, 0xDA, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0};

static uint32_t crc(const uint8_t *data, size_t n) {
    uint32_t c = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        c ^= data[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static size_t png_of(uint8_t out[64], uint32_t width, uint32_t height) {
    memcpy(out, png_head, sizeof png_head);
    uint8_t body[13] = {(uint8_t)(width >> 24), (uint8_t)(width >> 16), (uint8_t)(width >> 8), (uint8_t)width,
                        (uint8_t)(height >> 24), (uint8_t)(height >> 16), (uint8_t)(height >> 8), (uint8_t)height, 8, 0};
    memcpy(out + 16, body, 13);
    uint32_t sum = crc(out + 12, 17);
    for (int i = 0; i < 4; i++) out[29 + i] = (uint8_t)(sum >> (24 - 8 * i));
    return 33;
}

static size_t jpeg_of(uint8_t out[64], uint32_t width, uint32_t height) {
    memcpy(out, jpeg_head, sizeof jpeg_head);
    out[7] = (uint8_t)(height >> 8);
    out[8] = (uint8_t)height;
    out[9] = (uint8_t)(width >> 8);
    out[10] = (uint8_t)width;
    return sizeof jpeg_head;
}

static void refused(const void *bytes, size_t n, ftk_status code, const char *word) {
    ftki_picture p = {0};
    ftk_error e = {0};
    assert_int_equal(ftki_picture_read(&p, bytes, n, 64000000, &e), code);
    assert_null(p.rgb);
    if (!strstr(e.message, word)) fail_msg("\"%s\" does not say \"%s\"", e.message, word);
}

static void sizes(void **state) {
    (void)state;
    uint8_t file[64];
    refused(file, png_of(file, 0, 0), FTK_FORMAT, "PNG");
    refused(file, png_of(file, 20000, 20000), FTK_UNSUPPORTED, "20000 x 20000");
    refused(file, png_of(file, 0x7FFFFFFF, 0x7FFFFFFF), FTK_UNSUPPORTED, "PNG"); /* past libspng's own limit */
    refused(file, png_of(file, 100, 100), FTK_FORMAT, "damaged");
    refused(file, jpeg_of(file, 0, 0), FTK_FORMAT, "JPEG");
    refused(file, jpeg_of(file, 65500, 65500), FTK_UNSUPPORTED, "65500 x 65500");
    refused(file, jpeg_of(file, 65535, 65535), FTK_FORMAT, "JPEG"); /* past what the library itself takes */
}

static void no_pictures(void **state) {
    (void)state;
    refused("", 0, FTK_FORMAT, "empty");
    refused("GIF89a", 6, FTK_FORMAT, "JPEG and PNG");
    refused("\xFF\xD8\xFF", 3, FTK_FORMAT, "");
    refused("\x89PNG\r\n\x1A\n", 8, FTK_FORMAT, "PNG");
}

static void exif_is_bounded(void **state) {
    (void)state;
    uint8_t tiff[26] = {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0};
    assert_int_equal(ftki_exif_orientation(tiff, sizeof tiff), 6);
    for (size_t n = 0; n < 22; n++) { /* a copy of that length, so that a sanitizer sees a read past it */
        uint8_t *part = malloc(n + 1);
        memcpy(part, tiff, n);
        assert_int_equal(ftki_exif_orientation(part, n), 1);
        free(part);
    }
    tiff[18] = 9;
    assert_int_equal(ftki_exif_orientation(tiff, sizeof tiff), 1);
    tiff[4] = tiff[5] = tiff[6] = tiff[7] = 0xFF;
    assert_int_equal(ftki_exif_orientation(tiff, sizeof tiff), 1);
}

static void one_colour_stays(void **state) {
    (void)state;
    static uint8_t in[37 * 23 * 3];
    memset(in, 77, sizeof in);
    for (int filter = 0; filter < 2; filter++)
        for (int32_t side = 1; side < 80; side += 13) {
            uint8_t *out = NULL;
            assert_int_equal(ftki_resize(&out, in, 37, 23, side, 2 * side, 3, (ftki_filter)filter, NULL), FTK_OK);
            for (int32_t i = 0; i < side * side * 6; i++) assert_int_equal(out[i], 77);
            ftki_free(out);
        }
}

static void wrong_model(void **state) {
    (void)state;
    ftk_error e;
    float value;
    ftk_encoder_info text = {.input = FTK_INPUT_TOKENS};
    assert_int_equal(ftk_image_pixels(&text, "x", 1, NULL, &value, NULL, NULL, &e), FTK_UNSUPPORTED);
    assert_int_equal(ftk_audio_features(&text, "x", 1, NULL, &value, NULL, &e), FTK_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes), cmocka_unit_test(no_pictures), cmocka_unit_test(exif_is_bounded),
        cmocka_unit_test(one_colour_stays), cmocka_unit_test(wrong_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

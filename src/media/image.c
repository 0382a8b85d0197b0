// SPDX-License-Identifier: Apache-2.0
/* Decoding through libjpeg-turbo and libspng: sizes and colours are looked at before a pixel is decoded. */
#include "media/image.h"

#include <spng.h>
#include <string.h>
#include <turbojpeg.h>

#include "base/memory.h"

void ftki_picture_close(ftki_picture *p) {
    ftki_free(p->rgb);
    *p = (ftki_picture){0};
}

static ftk_status take_size(ftki_picture *p, uint64_t width, uint64_t height, uint64_t max_pixels, ftk_error *e) {
    if (width == 0 || height == 0) return ftki_fail(e, FTK_FORMAT, "the picture is %llu x %llu: it has no pixels",
                                                    (unsigned long long)width, (unsigned long long)height);
    if (width > 1 << 20 || height > 1 << 20 || width * height > max_pixels)
        return ftki_fail(e, FTK_UNSUPPORTED, "the picture is %llu x %llu, more than the limit of %llu pixels (max_pixels); "
                         "make it smaller or raise the limit", (unsigned long long)width, (unsigned long long)height,
                         (unsigned long long)max_pixels);
    p->rgb = ftki_alloc((size_t)(width * height), 3);
    if (!p->rgb) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a picture of %llu x %llu",
                                  (unsigned long long)width, (unsigned long long)height);
    p->width = (int32_t)width;
    p->height = (int32_t)height;
    return FTK_OK;
}

/* -------------------------------------------------------------------- EXIF */

static uint32_t number(const uint8_t *at, size_t bytes, bool big) {
    uint32_t v = 0;
    for (size_t i = 0; i < bytes; i++) v |= (uint32_t)at[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

int32_t ftki_exif_orientation(const uint8_t *tiff, size_t n) {
    if (n < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0)) return 1;
    bool big = tiff[0] == 'M';
    size_t at = number(tiff + 4, 4, big);
    if (at > n - 2) return 1;
    size_t entries = number(tiff + at, 2, big);
    at += 2;
    for (; entries > 0 && n - at >= 12; entries--, at += 12)
        if (number(tiff + at, 2, big) == 0x0112) {
            uint32_t value = number(tiff + at + 8, 2, big);
            return value >= 1 && value <= 8 ? (int32_t)value : 1;
        }
    return 1;
}

/* The orientation in a JPEG's APP1 segment; segments are walked up to the image data. */
static int32_t jpeg_orientation(const uint8_t *data, size_t n) {
    for (size_t at = 2; n >= 4 && at <= n - 4 && data[at] == 0xFF;) {
        uint8_t marker = data[at + 1];
        if (marker == 0xFF) { /* padding */
            at++;
            continue;
        }
        size_t len = number(data + at + 2, 2, true);
        if (marker == 0xDA || len < 2 || len > n - at - 2) break;
        if (marker == 0xE1 && len >= 8 && memcmp(data + at + 4, "Exif\0\0", 6) == 0)
            return ftki_exif_orientation(data + at + 10, len - 8);
        at += 2 + len;
    }
    return 1;
}

ftk_status ftki_picture_orient(ftki_picture *p, int32_t orientation, ftk_error *e) {
    if (orientation <= 1) return FTK_OK;
    bool turned = orientation >= 5; /* rows become columns */
    bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8; /* column from the right */
    bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;   /* row from below */
    int32_t width = turned ? p->height : p->width, height = turned ? p->width : p->height;
    uint8_t *out = ftki_alloc((size_t)width * (size_t)height, 3), *to = out;
    if (!out) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to turn a picture of %d x %d", width, height);
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++, to += 3) {
            int32_t column = turned ? y : x, row = turned ? x : y;
            if (left) column = p->width - 1 - column;
            if (up) row = p->height - 1 - row;
            memcpy(to, p->rgb + ((size_t)row * (size_t)p->width + (size_t)column) * 3, 3);
        }
    ftki_free(p->rgb);
    *p = (ftki_picture){width, height, out};
    return FTK_OK;
}

/* -------------------------------------------------------------------- JPEG */

static ftk_status read_jpeg(ftki_picture *p, tjhandle tj, const uint8_t *data, size_t n, uint64_t max_pixels, ftk_error *e) {
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (n > 0x7FFFFFFF || tjDecompressHeader3(tj, data, (unsigned long)n, &width, &height, &sampling, &colours) != 0)
        return ftki_fail(e, FTK_FORMAT, "not a JPEG that can be read: %s", tjGetErrorStr2(tj));
    if (colours == TJCS_CMYK || colours == TJCS_YCCK)
        return ftki_fail(e, FTK_UNSUPPORTED, "the JPEG is in %s; save it as RGB",
                         colours == TJCS_CMYK ? "CMYK" : "YCCK (CMYK)");
    FTKI_TRY(take_size(p, (uint64_t)(width < 0 ? 0 : width), (uint64_t)(height < 0 ? 0 : height), max_pixels, e));
    if (tjDecompress2(tj, data, (unsigned long)n, p->rgb, width, 0, height, TJPF_RGB,
                      TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0) {
        /* A warning leaves a picture: bytes too many are harmless, an early end or broken data are not. */
        const char *why = tjGetErrorStr2(tj);
        if (tjGetErrorCode(tj) != TJERR_WARNING || !strstr(why, "extraneous"))
            return ftki_fail(e, FTK_FORMAT, "the JPEG is damaged: %s", why);
    }
    return ftki_picture_orient(p, jpeg_orientation(data, n), e);
}

/* --------------------------------------------------------------------- PNG */

static ftk_status read_png(ftki_picture *p, spng_ctx *png, const uint8_t *data, size_t n, uint64_t max_pixels, ftk_error *e) {
    struct spng_ihdr head;
    size_t size;
    int error = spng_set_image_limits(png, 1 << 20, 1 << 20);
    if (!error) error = spng_set_chunk_limits(png, 16 << 20, 32 << 20);
    if (!error) error = spng_set_png_buffer(png, data, n);
    if (!error) error = spng_get_ihdr(png, &head);
    if (error) return ftki_fail(e, error == SPNG_EUSER_WIDTH || error == SPNG_EUSER_HEIGHT ? FTK_UNSUPPORTED : FTK_FORMAT,
                                "not a PNG that can be read: %s", spng_strerror(error));
    FTKI_TRY(take_size(p, head.width, head.height, max_pixels, e));
    error = spng_decoded_image_size(png, SPNG_FMT_RGB8, &size);
    if (!error && size != (size_t)head.width * head.height * 3) return ftki_fail(e, FTK_INTERNAL, "a PNG of %zu bytes", size);
    if (!error) error = spng_decode_image(png, p->rgb, size, SPNG_FMT_RGB8, 0);
    if (error) return ftki_fail(e, FTK_FORMAT, "the PNG is damaged: %s", spng_strerror(error));
    struct spng_exif exif;
    bool has_exif = spng_get_exif(png, &exif) == 0;
    return has_exif ? ftki_picture_orient(p, ftki_exif_orientation((const uint8_t *)exif.data, exif.length), e) : FTK_OK;
}

ftk_status ftki_picture_read(ftki_picture *out, const void *bytes, size_t n, uint64_t max_pixels, ftk_error *e) {
    const uint8_t *data = bytes;
    ftki_picture p = {0};
    ftk_status status;
    if (n >= 3 && memcmp(data, "\xFF\xD8\xFF", 3) == 0) {
        tjhandle tj = tjInitDecompress();
        status = tj ? read_jpeg(&p, tj, data, n, max_pixels, e)
                    : ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the JPEG decoder");
        if (tj) tjDestroy(tj);
    } else if (n >= 8 && memcmp(data, "\x89PNG\r\n\x1A\n", 8) == 0) {
        spng_ctx *png = spng_ctx_new(0);
        status = png ? read_png(&p, png, data, n, max_pixels, e)
                     : ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the PNG decoder");
        if (png) spng_ctx_free(png);
    } else {
        status = ftki_fail(e, FTK_FORMAT, n == 0 ? "the picture is empty (0 bytes)" : "not a picture: JPEG and PNG are read");
    }
    if (status == FTK_OK) *out = p;
    else ftki_picture_close(&p);
    return status;
}

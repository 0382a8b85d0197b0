// SPDX-License-Identifier: Apache-2.0
/* A picture as the model takes it: timm's evaluation transform. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "freetoken/media.h"
#include "media/image.h"
#include "media/resize.h"

ftk_media_kind ftk_media_recognise(const void *bytes, size_t n) {
    if (n >= 3 && memcmp(bytes, "\xFF\xD8\xFF", 3) == 0) return FTK_MEDIA_IMAGE;
    if (n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1A\n", 8) == 0) return FTK_MEDIA_IMAGE;
    if (n >= 4 && (memcmp(bytes, "RIFF", 4) == 0 || memcmp(bytes, "RF64", 4) == 0 || memcmp(bytes, "fLaC", 4) == 0))
        return FTK_MEDIA_AUDIO;
    return FTK_MEDIA_UNKNOWN;
}

/* Python's round: halves to even. */
static int32_t half_even(int32_t twice) {
    int32_t down = twice >> 1;
    return (twice & 1) && (down & 1) ? down + 1 : down;
}

/* Short side to `side`, the long one in proportion, rounded down: torchvision's Resize. */
static ftk_status shrink(uint8_t **out, int32_t *width, int32_t *height, const ftki_picture *p, int32_t side,
                         ftki_filter filter, ftk_error *e) {
    int32_t less = p->width < p->height ? p->width : p->height;
    int64_t more = p->width < p->height ? p->height : p->width, longest = side * more / less;
    if (longest > 1 << 16)
        return ftki_fail(e, FTK_UNSUPPORTED, "the picture is %d x %d: too narrow to be scaled to a short side of %d",
                         p->width, p->height, side);
    *width = less == p->width ? side : (int32_t)longest;
    *height = less == p->width ? (int32_t)longest : side;
    return ftki_resize(out, p->rgb, p->width, p->height, *width, *height, 3, filter, e);
}

ftk_status ftk_image_pixels(const ftk_encoder_info *model, const void *bytes, size_t n, const ftk_media_opts *o,
                            float *values, uint8_t *shown, ftk_image *about, ftk_error *e) {
    if (!model || (!bytes && n > 0) || !values)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, bytes and values must not be NULL");
    if (model->input != FTK_INPUT_PIXELS)
        return ftki_fail(e, FTK_UNSUPPORTED, "the model does not take pictures");
    int32_t size = model->image_size;
    float crop = model->crop > 0 ? model->crop : 1;
    if (size < 1 || size > 4096 || (model->channels != 1 && model->channels != 3) || crop < 0.1f || crop > 1)
        return ftki_fail(e, FTK_UNSUPPORTED, "a model of %d x %d pixels in %d channels with crop %g is not supported", size,
                         size, model->channels, (double)crop);
    ftk_media_opts ask;
    ftki_options_read(&ask, sizeof ask, o);
    ftki_picture p = {0};
    FTKI_TRY(ftki_picture_read(&p, bytes, n, ask.max_pixels ? ask.max_pixels : 64000000, e));
    ftki_filter filter = model->interpolation && strcmp(model->interpolation, "bilinear") == 0 ? FTKI_FILTER_BILINEAR
                                                                                                : FTKI_FILTER_BICUBIC;
    /* The float of the file stands for a short decimal: 224 / 0.9 is 248, not what 0.89999998 gives. */
    int32_t side = (int32_t)floor(size / (round((double)crop * 1e6) / 1e6));
    uint8_t *small = NULL;
    int32_t width, height;
    ftk_image seen = {p.width, p.height};
    ftk_status status = shrink(&small, &width, &height, &p, side, filter, e);
    ftki_picture_close(&p);
    if (status != FTK_OK) return status;
    int32_t left = half_even(width - size), top = half_even(height - size);
    for (int32_t y = 0; y < size; y++)
        for (int32_t x = 0; x < size; x++) {
            const uint8_t *rgb = small + ((size_t)(top + y) * (size_t)width + (size_t)(left + x)) * 3;
            size_t at = (size_t)y * (size_t)size + (size_t)x, plane = (size_t)size * (size_t)size;
            if (shown) memcpy(shown + 3 * at, rgb, 3);
            if (model->channels == 1) { /* luma of ITU-R 601, as Pillow rounds it */
                uint32_t grey = (rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16;
                values[at] = ((float)grey / 255.0f - model->mean[0]) / model->deviation[0];
            } else {
                for (size_t c = 0; c < 3; c++)
                    values[c * plane + at] = ((float)rgb[c] / 255.0f - model->mean[c]) / model->deviation[c];
            }
        }
    ftki_free(small);
    if (about) *about = seen;
    return FTK_OK;
}

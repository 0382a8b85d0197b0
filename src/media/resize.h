// SPDX-License-Identifier: Apache-2.0
/* Separable resampling with antialiasing, equal to Pillow's Image.resize on 8-bit pixels. */
#ifndef FTKI_MEDIA_RESIZE_H
#define FTKI_MEDIA_RESIZE_H

#include "base/status.h"

typedef enum ftki_filter { FTKI_FILTER_BILINEAR, FTKI_FILTER_BICUBIC } ftki_filter;

/* from [height][width][channels] to the newly allocated *to [out_height][out_width][channels], to be freed with
 * ftki_free. Sides at least 1; channels 1 or 3. */
ftk_status ftki_resize(uint8_t **to, const uint8_t *from, int32_t width, int32_t height, int32_t out_width,
                       int32_t out_height, int32_t channels, ftki_filter filter, ftk_error *e);

#endif

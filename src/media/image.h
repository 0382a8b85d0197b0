// SPDX-License-Identifier: Apache-2.0
/* JPEG and PNG from memory to 8-bit RGB, upright. */
#ifndef FTKI_MEDIA_IMAGE_H
#define FTKI_MEDIA_IMAGE_H

#include "base/status.h"

typedef struct ftki_picture {
    int32_t width, height;
    uint8_t *rgb; /* [height][width][3], owned */
} ftki_picture;

/* Grey becomes three equal channels, alpha is left out and 16 bits lose their lower 8, as in Pillow's
 * convert("RGB"); EXIF's orientation is applied. Refuses more than max_pixels before decoding. */
ftk_status ftki_picture_read(ftki_picture *out, const void *bytes, size_t n, uint64_t max_pixels, ftk_error *e);
void ftki_picture_close(ftki_picture *p); /* a zeroed one is fine */

/* EXIF's orientation in a TIFF structure (what follows "Exif\0\0"): 1..8, 1 when there is none or it is damaged. */
int32_t ftki_exif_orientation(const uint8_t *tiff, size_t n);
/* Turns and mirrors as orientation 2..8 asks; 1 does nothing. */
ftk_status ftki_picture_orient(ftki_picture *p, int32_t orientation, ftk_error *e);

#endif

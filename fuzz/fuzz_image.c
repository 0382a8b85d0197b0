// SPDX-License-Identifier: Apache-2.0
/* Bytes as a picture for a small model, and their tail as an EXIF block. What must hold: an answer or a refusal that
 * says why; values of a picture that was taken are within what 8 bits give. */
#include <string.h>

#include "freetoken/media.h"
#include "media/image.h"
#include "subject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { SIDE = 16 };
    static float values[3 * SIDE * SIDE];
    static uint8_t shown[3 * SIDE * SIDE];
    const ftk_encoder_info model = {.input = FTK_INPUT_PIXELS, .image_size = SIDE, .patch = 8, .channels = 3,
                                    .deviation = {1, 1, 1}, .crop = 0.9f, .interpolation = "bicubic"};
    const ftk_media_opts opts = {.size = sizeof opts, .max_pixels = 1 << 20};
    ftk_error e = {0};
    if (ftk_image_pixels(&model, data, size, &opts, values, shown, NULL, &e) == FTK_OK)
        for (size_t i = 0; i < 3 * SIDE * SIDE; i++) subject_must(values[i] >= 0 && values[i] <= 1);
    else
        subject_must(e.message[0] != 0);
    int32_t orientation = ftki_exif_orientation(data, size);
    subject_must(orientation >= 1 && orientation <= 8);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Front ends for the Python oracles: what a model of given keys gets of a file, as floats on standard output.
 *   media_tool image SIZE CROP bicubic|bilinear FILE   pixels with mean 0 and deviation 1, [3][SIZE][SIZE]
 *   media_tool mfcc FILE | media_tool log-mel FILE     KWT-1's and Whisper's features, [frames][features]
 * A failure is a line on standard error and exit status 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "freetoken/media.h"

static const ftk_encoder_info kwt = {.input = FTK_INPUT_FEATURES, .features_kind = "mfcc", .frames = 98, .features = 40,
    .sample_rate = 16000, .window = 480, .hop = 160, .fft = 512, .n_mels = 80, .low_hz = 20, .high_hz = 7600};
static const ftk_encoder_info whisper = {.input = FTK_INPUT_FEATURES, .features_kind = "log-mel", .frames = 3000,
    .features = 80, .sample_rate = 16000, .window = 400, .hop = 160, .fft = 400, .n_mels = 80, .low_hz = 0, .high_hz = 8000};

static void *read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    *n = 0;
    for (size_t got = 1; f && got > 0; *n += got) {
        data = realloc(data, *n + 65536);
        if (!data) exit(2);
        got = fread(data + *n, 1, 65536, f);
    }
    if (!f) exit(2);
    fclose(f);
    return data;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    bool image = strcmp(argv[1], "image") == 0;
    ftk_encoder_info model = strcmp(argv[1], "mfcc") == 0 ? kwt : whisper;
    if (image)
        model = (ftk_encoder_info){.input = FTK_INPUT_PIXELS, .image_size = atoi(argv[2]), .channels = 3,
                                   .deviation = {1, 1, 1}, .crop = (float)atof(argv[3]), .interpolation = argv[4]};
    size_t n, count = image ? (size_t)model.image_size * (size_t)model.image_size * 3
                            : (size_t)model.frames * (size_t)model.features;
    void *bytes = read_all(argv[argc - 1], &n);
    float *values = calloc(count, sizeof *values);
    ftk_error e = {0};
    ftk_status s = image ? ftk_image_pixels(&model, bytes, n, NULL, values, NULL, NULL, &e)
                         : ftk_audio_features(&model, bytes, n, NULL, values, NULL, &e);
    if (s == FTK_OK) fwrite(values, sizeof *values, count, stdout);
    else fprintf(stderr, "%s\n", e.message);
    free(bytes);
    free(values);
    return s != FTK_OK;
}

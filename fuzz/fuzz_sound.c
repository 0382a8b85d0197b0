// SPDX-License-Identifier: Apache-2.0
/* Bytes as a sound for a model of MFCC and one of log-mel. What must hold: an answer or a refusal that says why, and
 * no features that are not numbers. */
#include <math.h>

#include "freetoken/media.h"
#include "subject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { FRAMES = 20, FEATURES = 16 };
    static float values[FRAMES * FEATURES];
    for (int mfcc = 0; mfcc < 2; mfcc++) {
        const ftk_encoder_info model = {.input = FTK_INPUT_FEATURES, .features_kind = mfcc ? "mfcc" : "log-mel",
            .frames = FRAMES, .features = FEATURES, .sample_rate = 8000, .window = 256, .hop = 80, .fft = 256,
            .n_mels = FEATURES, .low_hz = 0, .high_hz = 4000};
        const ftk_media_opts opts = {.size = sizeof opts, .max_seconds = 2};
        ftk_error e = {0};
        if (ftk_audio_features(&model, data, size, &opts, values, NULL, &e) == FTK_OK)
            for (size_t i = 0; i < FRAMES * FEATURES; i++) subject_must(isfinite(values[i]));
        else
            subject_must(e.message[0] != 0);
    }
    return 0;
}

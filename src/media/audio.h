// SPDX-License-Identifier: Apache-2.0
/* WAV and FLAC from memory to one channel of a given rate, and the features models take of it. */
#ifndef FTKI_MEDIA_AUDIO_H
#define FTKI_MEDIA_AUDIO_H

#include "base/status.h"

typedef struct ftki_sound {
    int32_t rate, channels; /* of the file */
    double seconds;         /* of the file */
    float *samples;         /* [n], one channel at the rate asked for, owned */
    size_t n;
} ftki_sound;

/* Channels are averaged; another rate is brought to `rate` by band-limited interpolation. Refuses sounds of
 * more than max_seconds, NaN, infinities and samples beyond +-1000 by their place. */
ftk_status ftki_sound_read(ftki_sound *out, const void *bytes, size_t n, int32_t rate, double max_seconds, ftk_error *e);
void ftki_sound_close(ftki_sound *s); /* a zeroed one is fine */

typedef enum ftki_feature_kind { FTKI_FEATURE_MFCC, FTKI_FEATURE_LOG_MEL } ftki_feature_kind;

typedef struct ftki_feature_rules {
    ftki_feature_kind kind;
    int32_t frames, features, n_mels;
    int32_t rate, window, hop, fft; /* Hz, samples; window at most fft, fft even */
    float low_hz, high_hz;
} ftki_feature_rules;

/* Samples one window of frames is made of. */
size_t ftki_feature_samples(const ftki_feature_rules *r);
/* samples [ftki_feature_samples] to values [frames][features].
 * MFCC: periodic Hann window, magnitudes, HTK mel triangles, log of at least 1e-12, DCT-II scaled by sqrt(2 / n_mels):
 *   the graph of the Keyword Transformer (Google's kws_streaming).
 * LOG_MEL: centred frames with reflected ends, power, Slaney's mel scale with triangles of equal area, log10 of at
 *   least 1e-10, no more than 8 below the greatest, (x + 4) / 4: Whisper. */
ftk_status ftki_features(const ftki_feature_rules *r, const float *samples, float *values, ftk_error *e);

#endif

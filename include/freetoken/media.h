// SPDX-License-Identifier: Apache-2.0
/* media.h: pictures and sounds made into what an encoder takes (freetoken.h). In a library of its own,
 * libfreetoken_media.a, because it links libjpeg-turbo, libspng, libsndfile, libsamplerate and kissfft,
 * which the engine itself has no need of. Formats and rules: docs/MEDIA.md. The functions keep nothing
 * between calls and may run in several threads at once. */
#ifndef FREETOKEN_MEDIA_H
#define FREETOKEN_MEDIA_H

#include "freetoken/freetoken.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ftk_media_kind { FTK_MEDIA_UNKNOWN = 0, FTK_MEDIA_IMAGE = 1, FTK_MEDIA_AUDIO = 2 } ftk_media_kind;

/* What bytes [n] begin like: JPEG and PNG are images, WAV (RIFF, RF64) and FLAC sounds. */
FTK_API ftk_media_kind ftk_media_recognise(const void *bytes, size_t n);

typedef struct ftk_media_opts {
    size_t size;
    uint64_t max_pixels;  /* pictures with more are refused before they are decoded; default 64 million */
    double max_seconds;   /* longer sounds are refused; default 600 */
} ftk_media_opts;

typedef struct ftk_image {
    int32_t width, height; /* as shown: after the orientation EXIF asks for */
} ftk_image;

/* A picture as timm's evaluation transform gives it: short side to floor(image_size / crop), centre cut,
 * (x - mean) / deviation, to values [channels][image_size][image_size]. With `shown` not NULL the cut itself
 * goes there, 8 bits, [image_size][image_size][3]. FTK_FORMAT: damaged or no picture; FTK_UNSUPPORTED: CMYK, too
 * large, or a model of another kind. */
FTK_API ftk_status ftk_image_pixels(const ftk_encoder_info *model, const void *bytes, size_t n, const ftk_media_opts *o,
                                    float *values, uint8_t *shown, ftk_image *about, ftk_error *e);

typedef struct ftk_audio {
    int32_t rate, channels; /* of the file */
    double seconds;         /* of the file */
    double from;            /* second at which the window starts: 0 unless the sound is longer than the window */
    int32_t filled;         /* frames of the window that hold sound; those after it are silence */
} ftk_audio;

/* A sound as the model's own front end gives it, to values [frames][features]: mixed to one channel, brought to
 * sample_rate, then "mfcc" (KWT) or "log-mel" (Whisper). A shorter sound is followed by silence; of a longer one
 * the window with the most energy is taken. */
FTK_API ftk_status ftk_audio_features(const ftk_encoder_info *model, const void *bytes, size_t n, const ftk_media_opts *o,
                                      float *values, ftk_audio *about, ftk_error *e);

#ifdef __cplusplus
}
#endif
#endif

// SPDX-License-Identifier: Apache-2.0
/* Sounds that are damaged, hostile or odd. Features of sound ones are tested in tests/oracle/test_media.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "freetoken/media.h"
#include "media/audio.h"

static void put(uint8_t *at, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> 8 * i);
}

/* A WAV of float samples [n]; free it. */
static uint8_t *wav(const float *samples, size_t n, uint32_t rate, uint32_t channels, size_t *len) {
    *len = 44 + 4 * n;
    uint8_t *w = calloc(1, *len);
    memcpy(w, "RIFF\0\0\0\0WAVEfmt \x10\0\0\0", 20);
    put(w + 4, (uint32_t)*len - 8, 4);
    put(w + 20, 3, 2);
    put(w + 22, channels, 2);
    put(w + 24, rate, 4);
    put(w + 28, rate * channels * 4, 4);
    put(w + 32, channels * 4, 2);
    put(w + 34, 32, 2);
    memcpy(w + 36, "data", 4);
    put(w + 40, (uint32_t)(4 * n), 4);
    memcpy(w + 44, samples, 4 * n);
    return w;
}

static void refused(const void *bytes, size_t n, double max_seconds, ftk_status code, const char *word) {
    ftki_sound s = {0};
    ftk_error e = {0};
    assert_int_equal(ftki_sound_read(&s, bytes, n, 16000, max_seconds, &e), code);
    assert_null(s.samples);
    if (!strstr(e.message, word)) fail_msg("\"%s\" does not say \"%s\"", e.message, word);
}

static void bad_samples(void **state) {
    (void)state;
    const float wrong[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (int i = 0; i < 4; i++) {
        float x[1000] = {0};
        x[777] = wrong[i];
        size_t len;
        uint8_t *w = wav(x, 1000, 16000, 1, &len);
        refused(w, len, 600, FTK_FORMAT, "sample 777 of channel 0");
        free(w);
    }
}

static void bad_headers(void **state) {
    (void)state;
    float x[400] = {0.5f};
    size_t len;
    uint8_t *w = wav(x, 400, 16000, 1, &len);
    refused(w, 0, 600, FTK_FORMAT, "empty");
    refused("fLaC", 4, 600, FTK_FORMAT, "not a sound");
    refused("RIFF....WAVE", 12, 600, FTK_FORMAT, "not a sound");
    refused(w, 44, 600, FTK_FORMAT, "no samples");
    refused(w, len, 0.01, FTK_UNSUPPORTED, "0.01 seconds");
    for (size_t n = 1; n < len; n += n < 60 ? 1 : 97) { /* every truncation ends in an answer */
        uint8_t *part = malloc(n);
        memcpy(part, w, n);
        ftki_sound s = {0};
        if (ftki_sound_read(&s, part, n, 16000, 600, NULL) == FTK_OK) assert_true(s.n <= 400);
        ftki_sound_close(&s);
        free(part);
    }
    put(w + 24, 0xFFFFFFFF, 4);
    refused(w, len, 600, FTK_FORMAT, "not a sound");
    put(w + 24, 1, 4);
    refused(w, len, 600, FTK_UNSUPPORTED, "1 Hz");
    free(w);
}

/* Nothing of one call is left in the next: noise between two silences. */
static void no_carry_over(void **state) {
    (void)state;
    static float quiet[16000], noise[48000], first[98 * 40], again[98 * 40];
    const ftk_encoder_info kwt = {.input = FTK_INPUT_FEATURES, .features_kind = "mfcc", .frames = 98, .features = 40,
        .sample_rate = 16000, .window = 480, .hop = 160, .fft = 512, .n_mels = 80, .low_hz = 20, .high_hz = 7600};
    for (int i = 0; i < 48000; i++) noise[i] = (float)((i * 7919) % 2001 - 1000) / 1000;
    size_t quiet_len, noise_len;
    uint8_t *a = wav(quiet, 16000, 16000, 1, &quiet_len), *b = wav(noise, 48000, 44100, 2, &noise_len);
    ftk_audio about;
    assert_int_equal(ftk_audio_features(&kwt, a, quiet_len, NULL, first, &about, NULL), FTK_OK);
    assert_int_equal(about.filled, 98);
    assert_int_equal(ftk_audio_features(&kwt, b, noise_len, NULL, again, &about, NULL), FTK_OK);
    assert_int_equal(about.channels, 2);
    assert_true(about.filled < 98);
    assert_memory_not_equal(first, again, sizeof first);
    assert_int_equal(ftk_audio_features(&kwt, a, quiet_len, NULL, again, &about, NULL), FTK_OK);
    assert_memory_equal(first, again, sizeof first);
    free(a);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_samples), cmocka_unit_test(bad_headers), cmocka_unit_test(no_carry_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Samples to MFCC or log-mel frames. Tables are made in double and kept in float, as the models' own are. */
#include <kiss_fftr.h>
#include <math.h>

#include "base/memory.h"
#include "base/options.h"
#include "freetoken/media.h"
#include "media/audio.h"

static const double pi = 3.14159265358979323846;

/* ------------------------------------------------------------------- tables */

static double htk_mel(double hz) { return 1127 * log(1 + hz / 700); }

/* Slaney's scale: linear below 1 kHz, 27 steps to a factor of 6.4 above. */
static double slaney_mel(double hz) { return hz < 1000 ? hz * 3 / 200 : 15 + 27 * log(hz / 1000) / log(6.4); }
static double slaney_hz(double mel) { return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27); }

/* weights [n_mels][bins]. KWT's triangles are straight in mels, Whisper's in hertz and of area 1. */
static void mel_weights(const ftki_feature_rules *r, float *weights, int32_t bins) {
    bool slaney = r->kind == FTKI_FEATURE_LOG_MEL;
    double low = slaney ? slaney_mel(r->low_hz) : htk_mel(r->low_hz);
    double high = slaney ? slaney_mel(r->high_hz) : htk_mel(r->high_hz), step = (high - low) / (r->n_mels + 1);
    for (int32_t m = 0; m < r->n_mels; m++) {
        double a = low + step * m, b = low + step * (m + 1), c = low + step * (m + 2), area = 1;
        if (slaney) {
            a = slaney_hz(a);
            b = slaney_hz(b);
            c = slaney_hz(c);
            area = 2 / (c - a);
        }
        for (int32_t k = 0; k < bins; k++) {
            double hz = (double)k * r->rate / r->fft, x = slaney ? hz : htk_mel(hz);
            double w = fmin((x - a) / (b - a), (c - x) / (c - b));
            /* Bin 0 carries no mel band in the HTK matrix, whatever its edge. */
            weights[(size_t)m * (size_t)bins + (size_t)k] = w > 0 && (slaney || k > 0) ? (float)(w * area) : 0;
        }
    }
}

/* --------------------------------------------------------------- one window */

size_t ftki_feature_samples(const ftki_feature_rules *r) {
    size_t frames = (size_t)r->frames;
    return r->kind == FTKI_FEATURE_LOG_MEL ? frames * (size_t)r->hop
                                           : (frames - 1) * (size_t)r->hop + (size_t)r->window;
}

/* Everything a call works with, in one piece of memory each. */
typedef struct workshop {
    kiss_fftr_cfg fft;
    int32_t bins;
    float *hann;          /* [window] */
    float *mel;           /* [n_mels][bins] */
    float *dct;           /* [features][n_mels], MFCC only */
    float *frame;         /* [fft] */
    kiss_fft_cpx *bands;  /* [bins] */
    float *size, *energy; /* [bins], [n_mels] */
} workshop;

static void workshop_close(workshop *w) {
    kiss_fftr_free(w->fft);
    void *all[] = {w->hann, w->mel, w->dct, w->frame, w->bands, w->size, w->energy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ftki_free(all[i]);
}

static ftk_status workshop_open(workshop *w, const ftki_feature_rules *r, ftk_error *e) {
    size_t mels = (size_t)r->n_mels;
    w->bins = r->fft / 2 + 1;
    w->fft = kiss_fftr_alloc(r->fft, 0, NULL, NULL);
    w->hann = ftki_alloc((size_t)r->window, sizeof *w->hann);
    w->mel = ftki_alloc(mels * (size_t)w->bins, sizeof *w->mel);
    w->dct = ftki_alloc((size_t)r->features * mels, sizeof *w->dct);
    w->frame = ftki_alloc((size_t)r->fft, sizeof *w->frame);
    w->bands = ftki_alloc((size_t)w->bins, sizeof *w->bands);
    w->size = ftki_alloc((size_t)w->bins, sizeof *w->size);
    w->energy = ftki_alloc(mels, sizeof *w->energy);
    if (!w->fft || !w->hann || !w->mel || !w->dct || !w->frame || !w->bands || !w->size || !w->energy)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the spectrum");
    for (int32_t i = 0; i < r->window; i++) w->hann[i] = (float)(0.5 - 0.5 * cos(2 * pi * i / r->window));
    for (int32_t f = 0; f < r->features; f++)
        for (size_t m = 0; m < mels; m++)
            w->dct[(size_t)f * mels + m] =
                (float)(sqrt(2.0 / r->n_mels) * cos(pi / r->n_mels * ((double)m + 0.5) * f));
    mel_weights(r, w->mel, w->bins);
    return FTK_OK;
}

/* energy [n_mels] of the frame whose first sample is `start`; samples outside are mirrored at the ends. */
static void mel_energy(workshop *w, const ftki_feature_rules *r, const float *samples, int64_t n, int64_t start) {
    for (int32_t i = 0; i < r->window; i++) {
        int64_t at = start + i;
        if (at < 0) at = -at;
        if (at >= n) at = 2 * (n - 1) - at;
        w->frame[i] = samples[at] * w->hann[i];
    }
    for (int32_t i = r->window; i < r->fft; i++) w->frame[i] = 0;
    kiss_fftr(w->fft, w->frame, w->bands);
    for (int32_t k = 0; k < w->bins; k++) {
        float power = w->bands[k].r * w->bands[k].r + w->bands[k].i * w->bands[k].i;
        w->size[k] = r->kind == FTKI_FEATURE_LOG_MEL ? power : sqrtf(power);
    }
    for (int32_t m = 0; m < r->n_mels; m++) {
        double sum = 0;
        const float *row = w->mel + (size_t)m * (size_t)w->bins;
        for (int32_t k = 0; k < w->bins; k++) sum += (double)row[k] * w->size[k];
        w->energy[m] = (float)sum;
    }
}

static void mfcc_frame(workshop *w, const ftki_feature_rules *r, float *out) {
    for (int32_t m = 0; m < r->n_mels; m++) w->energy[m] = logf(fmaxf(w->energy[m], 1e-12f));
    for (int32_t f = 0; f < r->features; f++) {
        double sum = 0;
        for (int32_t m = 0; m < r->n_mels; m++)
            sum += (double)w->dct[(size_t)f * (size_t)r->n_mels + (size_t)m] * w->energy[m];
        out[f] = (float)sum;
    }
}

ftk_status ftki_features(const ftki_feature_rules *r, const float *samples, float *values, ftk_error *e) {
    workshop w = {0};
    ftk_status status = workshop_open(&w, r, e);
    bool log_mel = r->kind == FTKI_FEATURE_LOG_MEL;
    int64_t n = (int64_t)ftki_feature_samples(r);
    float most = -INFINITY;
    for (int32_t t = 0; status == FTK_OK && t < r->frames; t++) {
        float *out = values + (size_t)t * (size_t)r->features;
        mel_energy(&w, r, samples, n, (int64_t)t * r->hop - (log_mel ? r->fft / 2 : 0));
        if (!log_mel) mfcc_frame(&w, r, out);
        for (int32_t m = 0; log_mel && m < r->n_mels; m++) {
            out[m] = log10f(fmaxf(w.energy[m], 1e-10f));
            most = fmaxf(most, out[m]);
        }
    }
    for (size_t i = 0; status == FTK_OK && log_mel && i < (size_t)r->frames * (size_t)r->features; i++)
        values[i] = (fmaxf(values[i], most - 8) + 4) / 4;
    workshop_close(&w);
    return status;
}

/* ------------------------------------------------------------- the whole way */

static ftk_status rules_of(ftki_feature_rules *r, const ftk_encoder_info *m, ftk_error *e) {
    if (m->input != FTK_INPUT_FEATURES) return ftki_fail(e, FTK_UNSUPPORTED, "the model does not take sounds");
    const char *kind = m->features_kind ? m->features_kind : "";
    bool mfcc = kind[0] == 'm';
    *r = (ftki_feature_rules){mfcc ? FTKI_FEATURE_MFCC : FTKI_FEATURE_LOG_MEL, m->frames, m->features, m->n_mels,
                              m->sample_rate, m->window, m->hop, m->fft, m->low_hz, m->high_hz};
    bool sound = r->frames >= 1 && r->frames <= 1 << 16 && r->features >= 1 && r->features <= 1024 && r->n_mels >= 1 &&
                 r->n_mels <= 1024 && r->rate >= 1000 && r->rate <= 768000 && r->fft >= 2 && r->fft <= 1 << 16 &&
                 r->fft % 2 == 0 && r->window >= 1 && r->window <= r->fft && r->hop >= 1 && r->hop <= r->window &&
                 r->low_hz >= 0 && r->high_hz > r->low_hz && r->high_hz <= (float)r->rate;
    if (!sound || (!mfcc && (r->features != r->n_mels || r->window != r->fft ||
                             ftki_feature_samples(r) <= (size_t)r->fft)))
        return ftki_fail(e, FTK_UNSUPPORTED, "features \"%s\": %d frames of %d from %d mel bands, window %d, hop %d, transform "
                         "%d at %d Hz are not supported", kind, r->frames, r->features, r->n_mels, r->window, r->hop,
                         r->fft, r->rate);
    return FTK_OK;
}

/* First sample of the window [window] with the most energy, in steps of `hop`. */
static size_t loudest(const float *samples, size_t n, size_t window, size_t hop) {
    if (n <= window) return 0;
    double energy = 0, most;
    for (size_t i = 0; i < window; i++) energy += (double)samples[i] * samples[i];
    most = energy;
    size_t best = 0;
    for (size_t start = 0; start + window + hop <= n;) {
        for (size_t i = 0; i < hop; i++) {
            double in = samples[start + window + i], out = samples[start + i];
            energy += in * in - out * out;
        }
        start += hop;
        if (energy > most) {
            most = energy;
            best = start;
        }
    }
    return best;
}

ftk_status ftk_audio_features(const ftk_encoder_info *model, const void *bytes, size_t n, const ftk_media_opts *o,
                              float *values, ftk_audio *about, ftk_error *e) {
    if (!model || (!bytes && n > 0) || !values)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, bytes and values must not be NULL");
    ftk_media_opts ask;
    ftki_options_read(&ask, sizeof ask, o);
    ftki_feature_rules rules;
    FTKI_TRY(rules_of(&rules, model, e));
    ftki_sound s = {0};
    double limit = ask.max_seconds > 0 ? ask.max_seconds : 600;
    FTKI_TRY(ftki_sound_read(&s, bytes, n, rules.rate, limit < 36000 ? limit : 36000, e));
    size_t window = ftki_feature_samples(&rules), start = loudest(s.samples, s.n, window, (size_t)rules.hop);
    size_t have = s.n - start < window ? s.n - start : window;
    float *clip = ftki_alloc(window, sizeof *clip);
    ftk_status status = clip ? FTK_OK : ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a window of %zu samples", window);
    if (status == FTK_OK) {
        for (size_t i = 0; i < have; i++) clip[i] = s.samples[start + i];
        status = ftki_features(&rules, clip, values, e);
    }
    if (status == FTK_OK && about) {
        size_t filled = (have + (size_t)rules.hop - 1) / (size_t)rules.hop;
        *about = (ftk_audio){s.rate, s.channels, s.seconds, (double)start / rules.rate,
                             (int32_t)(filled < (size_t)rules.frames ? filled : (size_t)rules.frames)};
    }
    ftki_free(clip);
    ftki_sound_close(&s);
    return status;
}

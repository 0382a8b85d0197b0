// SPDX-License-Identifier: Apache-2.0
/* Reading sound through libsndfile's virtual files, mixing and resampling (libsamplerate). */
#include "media/audio.h"

#include <math.h>
#include <samplerate.h>
#include <sndfile.h>
#include <string.h>

#include "base/memory.h"

void ftki_sound_close(ftki_sound *s) {
    ftki_free(s->samples);
    *s = (ftki_sound){0};
}

/* ------------------------------------------------- a file that is in memory */

typedef struct memory_file {
    const uint8_t *data;
    sf_count_t len, at;
    sf_count_t patch_at; /* where four bytes read as `patch` instead; -1: nowhere */
    uint8_t patch[4];
} memory_file;

/* A WAV that was written to a pipe may say that its data are 0 bytes, to be filled in later: the rest of the
 * file is meant. (Lengths beyond the file libsndfile cuts itself.) */
static void patch_open_end(memory_file *f) {
    f->patch_at = -1;
    if (f->len < 12 || memcmp(f->data, "RIFF", 4) != 0) return;
    for (sf_count_t at = 12; at + 8 < f->len;) {
        const uint8_t *size_at = f->data + at + 4;
        uint32_t size = size_at[0] | (uint32_t)size_at[1] << 8 | (uint32_t)size_at[2] << 16 | (uint32_t)size_at[3] << 24;
        sf_count_t left = f->len - at - 8;
        if (memcmp(f->data + at, "data", 4) == 0) {
            if (size != 0 || left > UINT32_MAX) return;
            f->patch_at = at + 4;
            for (int i = 0; i < 4; i++) f->patch[i] = (uint8_t)(left >> 8 * i);
            return;
        }
        if ((sf_count_t)size > left) return;
        at += 8 + (sf_count_t)size + (size & 1);
    }
}

static sf_count_t file_length(void *ctx) { return ((memory_file *)ctx)->len; }
static sf_count_t file_tell(void *ctx) { return ((memory_file *)ctx)->at; }

static sf_count_t file_seek(sf_count_t offset, int whence, void *ctx) {
    memory_file *f = ctx;
    sf_count_t from = whence == SEEK_CUR ? f->at : whence == SEEK_END ? f->len : 0, to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0 || to > f->len) return -1;
    return f->at = to;
}

static sf_count_t file_read(void *to, sf_count_t n, void *ctx) {
    memory_file *f = ctx;
    if (n > f->len - f->at) n = f->len - f->at;
    if (n <= 0) return 0;
    memcpy(to, f->data + f->at, (size_t)n);
    for (sf_count_t i = 0; i < 4 && f->patch_at >= 0; i++)
        if (f->patch_at + i >= f->at && f->patch_at + i < f->at + n)
            ((uint8_t *)to)[f->patch_at + i - f->at] = f->patch[i];
    f->at += n;
    return n;
}

/* -------------------------------------------------------------- one channel */

/* Reads all of it, averaging channels, into *out [*n]. The header's count is a hint only: a piped WAV does not
 * know its length. */
static ftk_status read_mono(SNDFILE *file, const SF_INFO *info, double max_seconds, float **out, size_t *n, ftk_error *e) {
    enum { BLOCK = 4096 };
    size_t channels = (size_t)info->channels, room = 0, most = (size_t)(max_seconds * info->samplerate);
    float *block = ftki_alloc(BLOCK * channels, sizeof *block);
    if (!block) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to read a sound of %zu channels", channels);
    ftk_status status = FTK_OK;
    sf_count_t got;
    *n = 0;
    while (status == FTK_OK && (got = sf_readf_float(file, block, BLOCK)) > 0) {
        if (*n + (size_t)got > most) {
            status = ftki_fail(e, FTK_UNSUPPORTED, "the sound is longer than the limit of %g seconds (max_seconds); cut it",
                               max_seconds);
            break;
        }
        if (*n + (size_t)got > room) {
            room = 2 * room + BLOCK;
            float *grown = ftki_realloc(*out, room, sizeof *grown);
            if (!grown) {
                status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %zu samples", room);
                break;
            }
            *out = grown;
        }
        for (size_t i = 0; i < (size_t)got; i++) {
            float sum = 0;
            for (size_t c = 0; c < channels; c++) {
                float v = block[i * channels + c];
                if (!(fabsf(v) <= 1000) && status == FTK_OK)
                    status = ftki_fail(e, FTK_FORMAT, "sample %zu of channel %zu is %g; samples are from -1 to 1",
                                       *n + i, c, (double)v);
                sum += v;
            }
            (*out)[*n + i] = sum / (float)channels;
        }
        *n += (size_t)got;
    }
    ftki_free(block);
    if (status == FTK_OK && *n == 0) status = ftki_fail(e, FTK_FORMAT, "the sound holds no samples");
    return status;
}

static ftk_status resample(ftki_sound *s, int32_t rate, ftk_error *e) {
    if (s->rate == rate) return FTK_OK;
    double ratio = (double)rate / s->rate;
    size_t room = (size_t)((double)s->n * ratio) + 64;
    float *out = ftki_alloc(room, sizeof *out);
    if (!out) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to bring %zu samples to %d Hz", s->n, rate);
    SRC_DATA job = {.data_in = s->samples, .data_out = out, .input_frames = (long)s->n, .output_frames = (long)room,
                    .src_ratio = ratio};
    int error = src_simple(&job, SRC_SINC_MEDIUM_QUALITY, 1);
    if (error || job.output_frames_gen == 0) {
        ftki_free(out);
        return error ? ftki_fail(e, FTK_UNSUPPORTED, "%d Hz cannot be brought to %d Hz: %s", s->rate, rate,
                                 src_strerror(error))
                     : ftki_fail(e, FTK_FORMAT, "the sound is too short: %zu samples at %d Hz", s->n, s->rate);
    }
    ftki_free(s->samples);
    s->samples = out;
    s->n = (size_t)job.output_frames_gen;
    return FTK_OK;
}

ftk_status ftki_sound_read(ftki_sound *out, const void *bytes, size_t n, int32_t rate, double max_seconds, ftk_error *e) {
    if (n == 0) return ftki_fail(e, FTK_FORMAT, "the sound is empty (0 bytes)");
    memory_file memory = {.data = bytes, .len = (sf_count_t)n};
    patch_open_end(&memory);
    SF_VIRTUAL_IO io = {file_length, file_seek, file_read, NULL, file_tell};
    SF_INFO info = {0};
    SNDFILE *file = sf_open_virtual(&io, SFM_READ, &info, &memory);
    if (!file) return ftki_fail(e, FTK_FORMAT, "not a sound that can be read (WAV and FLAC are): %s", sf_strerror(NULL));
    ftki_sound s = {.rate = info.samplerate, .channels = info.channels};
    ftk_status status = FTK_OK;
    if (info.samplerate < 1000 || info.samplerate > 768000 || info.channels < 1 || info.channels > 64)
        status = ftki_fail(e, FTK_UNSUPPORTED, "%d Hz in %d channels: from 1000 to 768000 Hz and up to 64 channels are read",
                           info.samplerate, info.channels);
    if (status == FTK_OK) status = read_mono(file, &info, max_seconds, &s.samples, &s.n, e);
    if (status == FTK_OK) {
        s.seconds = (double)s.n / s.rate;
        status = resample(&s, rate, e);
    }
    sf_close(file);
    if (status == FTK_OK) *out = s;
    else ftki_sound_close(&s);
    return status;
}

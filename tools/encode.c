// SPDX-License-Identifier: Apache-2.0
/* Inputs of encoders: read, made into tokens, pixels or features, and handed to the command. */
#include "encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef FREETOKEN_HAS_MEDIA
#include "freetoken/media.h"
#endif
#include "interrupt.h"
#include "models.h"
#include "ui.h"

/* More than any picture or ten minutes of sound need. */
#define MOST_BYTES ((size_t)1 << 30)

int encode_failed(encode_job *job, const char *name, const ftk_error *e)
{
    job->failed++;
    int status = ui_fail(name, e);
    return status == STATUS_INTERRUPTED ? status : STATUS_GO_ON;
}

/* ------------------------------------------------------------------- texts */

static int visit_text(encode_job *job, const char *name, const char *data, size_t len)
{
    encode_item item = {.name = name};
    ftk_error e = {.code = FTK_INVALID_ARGUMENT};
    int status = STATUS_GO_ON;
    if (strspn(data, " \t\r\n") >= len) {
        snprintf(e.message, sizeof e.message, "the text is empty");
        return encode_failed(job, name, &e);
    }
    if (text_check(name, data, len) != STATUS_GO_ON ||
        tokens_of(&item.tokens, job->model, name, data, len, FTK_TOKENIZE_BOS_EOS) != STATUS_GO_ON) {
        job->failed++;
        return STATUS_GO_ON;
    }
    size_t most = (size_t)job->info.max_tokens;
    if (item.tokens.n > most && !job->request->truncate) {
        snprintf(e.message, sizeof e.message, "%zu tokens are more than the model's %zu: --truncate cuts the text",
                 item.tokens.n, most);
        status = encode_failed(job, name, &e);
    } else {
        if (item.tokens.n > most) { /* the ending token stays */
            item.tokens.ids[most - 1] = item.tokens.ids[item.tokens.n - 1];
            item.tokens.n = most;
            item.truncated = true;
        }
        item.input = (ftk_input){.kind = FTK_INPUT_TOKENS, .ids = item.tokens.ids, .n = item.tokens.n};
        status = job->visit(job, &item);
    }
    tokens_free(&item.tokens);
    return status;
}

static int visit_lines(encode_job *job, const char *name, const text_buffer *all)
{
    int status = STATUS_GO_ON;
    size_t number = 0;
    for (size_t at = 0; status == STATUS_GO_ON && at < all->len && !interrupt_count();) {
        const char *line = all->data + at, *end = memchr(line, '\n', all->len - at);
        size_t len = end ? (size_t)(end - line) : all->len - at;
        char where[4200];
        snprintf(where, sizeof where, "%.4096s:%zu", name, ++number);
        if (strspn(line, " \t\r") < len) status = visit_text(job, where, line, len);
        at += len + 1;
    }
    return status;
}

static int visit_text_file(encode_job *job, const char *path)
{
    text_buffer all = {0};
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    int status = text_read(&all, path);
    if (status != STATUS_GO_ON) {
        job->failed++;
        return status == STATUS_INTERRUPTED ? status : STATUS_GO_ON;
    }
    const char *data = all.data ? all.data : "";
    status = job->request->lines ? visit_lines(job, name, &all) : visit_text(job, name, data, all.len);
    text_free(&all);
    return status;
}

/* ------------------------------------------------------ pictures and sounds */

#ifdef FREETOKEN_HAS_MEDIA
/* All bytes of a file or standard input; reports and returns NULL. */
static uint8_t *read_bytes(const char *path, size_t *n)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    uint8_t *data = NULL;
    size_t room = 0;
    *n = 0;
    for (size_t got = 1; f && got > 0; *n += got) {
        if (*n == room) {
            room = room ? 2 * room : 1 << 16;
            uint8_t *grown = *n > MOST_BYTES ? NULL : realloc(data, room);
            if (!grown) {
                ui_error("%s: %s", path, *n > MOST_BYTES ? "larger than 1 GiB" : "out of memory");
                goto fail;
            }
            data = grown;
        }
        got = fread(data + *n, 1, room - *n, f);
    }
    if (!f || ferror(f)) {
        ui_error("%s: %s", standard ? "standard input" : path, strerror(errno));
        goto fail;
    }
    if (!standard) fclose(f);
    return data;
fail:
    if (f && !standard) fclose(f);
    free(data);
    return NULL;
}

static int visit_media(encode_job *job, const char *path)
{
    const ftk_encoder_info *m = &job->info;
    encode_item item = {.name = strcmp(path, "-") == 0 ? "standard input" : path};
    size_t n, side = (size_t)m->image_size;
    uint8_t *bytes = read_bytes(path, &n);
    if (!bytes) {
        job->failed++;
        return interrupt_count() ? STATUS_INTERRUPTED : STATUS_GO_ON;
    }
    bool picture = m->input == FTK_INPUT_PIXELS;
    ftk_error e = {0};
    ftk_media_opts o = {.size = sizeof o, .max_pixels = (uint64_t)job->request->max_pixels};
    ftk_status s = FTK_OK;
    size_t values = picture ? side * side * (size_t)m->channels : (size_t)m->frames * (size_t)m->features;
    item.values = malloc(values * sizeof *item.values);
    if (picture && job->keep_pictures) item.shown = malloc(side * side * 3);
    if (!item.values || (picture && job->keep_pictures && !item.shown)) s = e.code = FTK_OUT_OF_MEMORY;
    else if (picture && ftk_media_recognise(bytes, n) == FTK_MEDIA_AUDIO) {
        s = e.code = FTK_UNSUPPORTED;
        snprintf(e.message, sizeof e.message, "this is a sound, and the model takes pictures");
    } else if (!picture && ftk_media_recognise(bytes, n) == FTK_MEDIA_IMAGE) {
        s = e.code = FTK_UNSUPPORTED;
        snprintf(e.message, sizeof e.message, "this is a picture, and the model takes sounds");
    } else if (picture) {
        s = ftk_image_pixels(m, bytes, n, &o, item.values, item.shown, NULL, &e);
        item.input = (ftk_input){.kind = FTK_INPUT_PIXELS, .values = item.values, .rows = m->image_size, .cols = m->image_size};
    } else {
        ftk_audio about = {0};
        s = ftk_audio_features(m, bytes, n, &o, item.values, &about, &e);
        item.from = about.from;
        item.input = (ftk_input){.kind = FTK_INPUT_FEATURES, .values = item.values, .rows = m->frames, .cols = m->features};
    }
    free(bytes);
    int status = s == FTK_OK ? job->visit(job, &item) : encode_failed(job, item.name, &e);
    free(item.values);
    free(item.shown);
    return status;
}
#else
static int visit_media(encode_job *job, const char *path)
{
    ftk_error e = {.code = FTK_UNSUPPORTED};
    snprintf(e.message, sizeof e.message, "this program was built without pictures and sounds: scripts/install-deps media, "
             "then build again");
    return encode_failed(job, path, &e);
}
#endif

/* ----------------------------------------------------------------- the job */

static int open_encoder(encode_job *job, const char *word)
{
    const encode_request *r = job->request;
    model_request open = {.word = word, .threads = r->threads};
    int status = models_open(&job->model, &open);
    if (status != STATUS_GO_ON) return status;
    ftk_error e = {0};
    ftk_encoder_opts o = {.size = sizeof o, .n_threads = (int32_t)r->threads};
    ftk_encoder_reduction policy = {
        .size = sizeof policy, .keep = (float)r->keep, .fine_keep = (float)r->fine_keep, .threshold = (float)r->threshold,
        .by = (ftk_select_by)r->select_by, .first_layer = (int32_t)r->first_layer, .interval = (int32_t)r->interval,
        .fuse = r->fuse, .merge = (int32_t)r->merge, .merge_local = r->merge_local,
        .merge_similarity = (float)r->merge_similarity, .exit_tau = (float)r->exit_tau, .exit_by = (ftk_exit_by)r->exit_by,
        .patience = (int32_t)r->patience, .min_layers = (int32_t)r->min_layers, .attend = (int32_t)r->attend,
        .min_tokens = (int32_t)r->min_tokens};
    if (ftk_encoder_get_info(job->model, &job->info, &e) != FTK_OK ||
        ftk_encoder_open(&job->encoder, job->model, &o, &e) != FTK_OK ||
        ftk_encoder_reduce(job->encoder, &policy, &e) != FTK_OK)
        return ui_fail(word, &e);
    return STATUS_GO_ON;
}

int encode_run(encode_job *job, const char *const *words, size_t n_words)
{
    const encode_request *r = job->request;
    size_t total = r->texts.n + n_words - 1;
    if (total == 0) return args_refuse(r->command, "name files, - for standard input, or give --text");
    int status = open_encoder(job, words[0]);
    bool text = job->info.input == FTK_INPUT_TOKENS;
    if (status == STATUS_GO_ON && r->texts.n > 0 && !text)
        status = args_refuse(r->command, "--text: this model takes %s", job->info.input == FTK_INPUT_PIXELS ? "pictures" : "sounds");
    ui_progress progress = {0};
    for (size_t i = 0; status == STATUS_GO_ON && i < total; i++) {
        const char *word = i < r->texts.n ? r->texts.items[i] : words[1 + i - r->texts.n];
        if (i < r->texts.n) status = visit_text(job, "text", word, strlen(word));
        else if (text) status = visit_text_file(job, word);
        else status = visit_media(job, word);
        if (interrupt_count()) status = STATUS_INTERRUPTED;
        if (total > 1 && status == STATUS_GO_ON) ui_progress_draw(&progress, "inputs", i + 1, total);
    }
    ui_progress_clear(&progress);
    if (status == STATUS_GO_ON && job->failed > 0 && total > 1)
        ui_warn("%zu of %zu inputs could not be used", job->failed, job->failed + job->done);
    ftk_encoder_close(job->encoder);
    ftk_model_close(job->model);
    return status != STATUS_GO_ON ? status : job->failed ? STATUS_FAILURE : STATUS_OK;
}

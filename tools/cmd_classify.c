// SPDX-License-Identifier: Apache-2.0
/* freetoken classify: the likeliest labels of each input, and what was computed for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "encode.h"
#include "explain.h"
#include "json_out.h"
#include "ui.h"

typedef struct classify_request {
    encode_request shared;
    int64_t top;
    const char *explain_path;
    FILE *explain;
    ftk_score_of *scores; /* [top] */
} classify_request;

/* A label without a name is its number. */
static const char *label_name(const ftk_model *m, int32_t label, char number[16])
{
    const char *name = ftk_encoder_label(m, label);
    if (!name) snprintf(number, 16, "%d", label);
    return name ? name : number;
}

static int print_json(const encode_job *job, const encode_item *item, const ftk_score_of *top, size_t k,
                      const ftk_encoded *done)
{
    char number[16];
    json_t *j = json_object(), *list = json_array();
    json_object_set_new(j, "file", json_text(item->name));
    json_object_set_new(j, "label", json_text(label_name(job->model, top[0].label, number)));
    json_object_set_new(j, "score", json_number((double)top[0].score));
    for (size_t i = 0; i < k; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "label", json_text(label_name(job->model, top[i].label, number)));
        json_object_set_new(row, "score", json_number((double)top[i].score));
        json_array_append_new(list, row);
    }
    json_object_set_new(j, "top", list);
    json_object_set_new(j, "exit_layer", done->exited ? json_integer(done->layers) : json_null());
    json_object_set_new(j, "layers", json_integer(done->layers));
    json_object_set_new(j, "tokens_in", json_integer(done->tokens_in));
    json_object_set_new(j, "tokens_kept", json_integer(done->tokens_out));
    if (item->truncated) json_object_set_new(j, "truncated", json_true());
    if (item->from > 0) json_object_set_new(j, "from", json_number(item->from));
    if (done->dense_because) json_object_set_new(j, "dense_because", json_text(done->dense_because));
    json_object_set_new(j, "ms", json_number(done->seconds * 1e3));
    return json_line(j) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
}

static void print_words(const encode_job *job, const encode_item *item, const ftk_score_of *top, size_t k,
                        const ftk_encoded *done)
{
    char number[16], time[UI_WORD];
    if (job->done > 1 && k > 1) putchar('\n');
    text_show(stdout, item->name, strlen(item->name));
    printf("%s", k > 1 ? "\n" : "  ");
    for (size_t i = 0; i < k; i++) printf("%s%5.1f %%  %s\n", k > 1 ? "  " : "", 100 * (double)top[i].score,
                                          label_name(job->model, top[i].label, number));
    fflush(stdout);
    char exit[48] = "";
    if (done->exited) snprintf(exit, sizeof exit, " · left after layer %d", done->layers);
    ui_note("tokens %d → %d · layers %d%s · %s%s%s", done->tokens_in, done->tokens_out, done->layers, exit,
            ui_seconds(time, done->seconds), done->dense_because ? " · computed whole: " : "",
            done->dense_because ? done->dense_because : "");
}

static int visit(encode_job *job, const encode_item *item)
{
    classify_request *r = job->ctx;
    ftk_error e = {0};
    size_t k = (size_t)(r->top < job->info.n_labels ? r->top : job->info.n_labels);
    if (k == 0) {
        e.code = FTK_UNSUPPORTED;
        snprintf(e.message, sizeof e.message, "the model has no labels: freetoken embed gives its embeddings");
        ui_fail(NULL, &e);
        return STATUS_FAILURE;
    }
    if (!r->scores && !(r->scores = calloc(k, sizeof *r->scores))) e.code = FTK_OUT_OF_MEMORY;
    else ftk_classify(job->encoder, &item->input, 1, r->scores, k, &e);
    if (e.code != FTK_OK) return encode_failed(job, item->name, &e);
    ftk_encoded done = {0};
    ftk_encoder_result(job->encoder, 0, &done, &e);
    job->done++;
    if (r->explain) explain_add(r->explain, job, item, r->scores, k, &done);
    if (r->shared.json) return print_json(job, item, r->scores, k, &done);
    print_words(job, item, r->scores, k, &done);
    return STATUS_GO_ON;
}

static int classify(classify_request *r, const char *const *words, size_t n_words)
{
    if (r->explain_path) {
        r->explain = fopen(r->explain_path, "w");
        if (!r->explain) {
            ui_error("--explain %s: cannot be written", r->explain_path);
            return STATUS_FAILURE;
        }
        explain_begin(r->explain);
    }
    encode_job job = {.request = &r->shared, .visit = visit, .ctx = r, .keep_pictures = r->explain != NULL};
    int status = encode_run(&job, words, n_words);
    if (r->explain) {
        explain_end(r->explain);
        bool wrong = ferror(r->explain) != 0;
        if ((fclose(r->explain) != 0 || wrong) && status == STATUS_OK) {
            ui_error("--explain %s: could not be written", r->explain_path);
            status = STATUS_FAILURE;
        }
    }
    return status;
}

int cmd_classify(int argc, char **argv)
{
    classify_request r = {.shared = {.command = "classify"}, .top = 1};
    const arg_flag flags[] = {
        {ARG_COUNT, "top", 'k', &r.top, 1, 1000, "K", "labels shown; default 1"},
        {ARG_TEXT, "explain", 0, &r.explain_path, 0, 0, "OUT.html", "write a page that shows what was kept, merged and dropped"},
        ENCODE_FLAGS(r.shared),
    };
    const arg_spec spec = {
        "classify", "MODEL FILE...\nMODEL --text TEXT",
        "Names what pictures (JPEG, PNG), sounds (WAV, FLAC) or texts show, as the model takes them.\n"
        "- is standard input. An input that cannot be used is reported and the rest goes on.",
        "  freetoken classify kwt.gguf clip.wav\n"
        "  freetoken classify deit.gguf --top 5 --merge 13 --explain page.html photo.jpg\n"
        "  freetoken classify deit.gguf --exit 0.9 --min-layers 4 --json *.jpg > labels.jsonl\n"
        "  arecord -d 1 -r 16000 -f S16_LE | freetoken classify kwt.gguf -\n",
        flags, sizeof flags / sizeof flags[0], 1, (size_t)argc + 1};
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    size_t n_words;
    int status = words ? args_parse(&spec, argc, argv, words, &n_words) : STATUS_FAILURE;
    if (status == STATUS_GO_ON) {
        if (r.shared.json) json_report_errors();
        status = classify(&r, words, n_words);
    }
    free(r.scores);
    free(words);
    text_list_free(&r.shared.texts);
    return status;
}

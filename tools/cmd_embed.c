// SPDX-License-Identifier: Apache-2.0
/* freetoken embed: the embedding of each input, one a line. */
#include <stdlib.h>

#include "commands.h"
#include "encode.h"
#include "json_out.h"
#include "ui.h"

typedef struct embed_request {
    encode_request shared;
    bool raw;
    float *values; /* [dim] */
} embed_request;

static int visit(encode_job *job, const encode_item *item)
{
    embed_request *r = job->ctx;
    ftk_error e = {0};
    size_t dim = (size_t)job->info.dim;
    if (!r->values && !(r->values = calloc(dim, sizeof *r->values))) e.code = FTK_OUT_OF_MEMORY;
    else ftk_embed(job->encoder, &item->input, 1, !r->raw, r->values, &e);
    if (e.code != FTK_OK) return encode_failed(job, item->name, &e);
    ftk_encoded done = {0};
    ftk_encoder_result(job->encoder, 0, &done, &e);
    job->done++;
    if (!r->shared.json) {
        for (size_t i = 0; i < dim; i++) printf("%s%.6g", i ? " " : "", (double)r->values[i]);
        putchar('\n');
        return STATUS_GO_ON;
    }
    json_t *j = json_object(), *list = json_array();
    json_object_set_new(j, "file", json_text(item->name));
    for (size_t i = 0; i < dim; i++) json_array_append_new(list, json_real((double)r->values[i]));
    json_object_set_new(j, "embedding", list);
    json_object_set_new(j, "layers", json_integer(done.layers));
    json_object_set_new(j, "tokens_in", json_integer(done.tokens_in));
    json_object_set_new(j, "tokens_kept", json_integer(done.tokens_out));
    if (item->truncated) json_object_set_new(j, "truncated", json_true());
    json_object_set_new(j, "ms", json_number(done.seconds * 1e3));
    return json_line(j) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
}

int cmd_embed(int argc, char **argv)
{
    embed_request r = {.shared = {.command = "embed"}};
    const arg_flag flags[] = {
        {ARG_BOOL, "raw", 0, &r.raw, 0, 0, NULL, "do not bring embeddings to length 1"},
        ENCODE_FLAGS(r.shared),
    };
    const arg_spec spec = {
        "embed", "MODEL FILE...\nMODEL --text TEXT",
        "Prints the embedding of each picture, sound or text, its numbers on one line.\n"
        "- is standard input.",
        "  freetoken embed minilm.gguf --text \"How tall is it?\" --text \"What is its height?\"\n"
        "  freetoken embed minilm.gguf --lines --json sentences.txt > embeddings.jsonl\n"
        "  cat letter.txt | freetoken embed minilm.gguf --truncate -\n",
        flags, sizeof flags / sizeof flags[0], 1, (size_t)argc + 1};
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    size_t n_words;
    int status = words ? args_parse(&spec, argc, argv, words, &n_words) : STATUS_FAILURE;
    if (status == STATUS_GO_ON) {
        if (r.shared.json) json_report_errors();
        encode_job job = {.request = &r.shared, .visit = visit, .ctx = &r};
        status = encode_run(&job, words, n_words);
    }
    free(r.values);
    free(words);
    text_list_free(&r.shared.texts);
    return status;
}

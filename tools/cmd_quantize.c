// SPDX-License-Identifier: Apache-2.0
/* freetoken quantize: a copy of a model with smaller weights, and what it costs in perplexity. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "args.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "models.h"
#include "perplexity.h"
#include "text.h"
#include "ui.h"

typedef struct quantize_request {
    const char *text; /* for the perplexity, NULL: none */
    int64_t threads, context, score, docs;
    bool force, json;
} quantize_request;

static int measure(const char *path, const quantize_request *r, perplexity *out)
{
    ftk_model *m = NULL;
    model_request open = {.word = path, .threads = r->threads};
    perplexity_plan plan = {.context = r->context, .score = r->score, .max_docs = r->docs};
    int status = models_open(&m, &open);
    if (status != STATUS_GO_ON) return status;
    perplexity_side side = {.model = m, .session = {.n_threads = (int32_t)r->threads}};
    status = perplexity_run(&plan, r->text, &side, NULL, out, NULL);
    ftk_model_close(m);
    return status;
}

static int report(const quantize_request *r, const char *out, const char *type, int64_t from_bytes, int64_t to_bytes,
                  const perplexity *before, const perplexity *after)
{
    char a[UI_WORD], b[UI_WORD];
    double old_ppl = perplexity_value(before), new_ppl = perplexity_value(after);
    if (r->json) {
        json_t *j = json_object();
        json_object_set_new(j, "path", json_text(out));
        json_object_set_new(j, "type", json_text(type));
        json_object_set_new(j, "bytes_before", json_integer(from_bytes));
        json_object_set_new(j, "bytes_after", json_integer(to_bytes));
        if (r->text) {
            json_object_set_new(j, "perplexity_before", json_number(old_ppl));
            json_object_set_new(j, "perplexity_after", json_number(new_ppl));
            json_object_set_new(j, "tokens_scored", json_integer((json_int_t)after->n));
        }
        return json_line(j);
    }
    printf("%s: %s, %s (was %s)\n", out, type, ui_bytes(a, (double)to_bytes), ui_bytes(b, (double)from_bytes));
    if (r->text)
        printf("perplexity %.3f -> %.3f (%+.2f %%) over %zu tokens\n", old_ppl, new_ppl,
               100 * (new_ppl / old_ppl - 1), after->n);
    return STATUS_OK;
}

int cmd_quantize(int argc, char **argv)
{
    quantize_request r = {.context = 512, .score = 256, .docs = 8};
    const arg_flag flags[] = {
        {ARG_TEXT, "eval", 'e', &r.text, 0, 0, "FILE", "show the perplexity of this text before and after"},
        {ARG_COUNT, "context", 'c', &r.context, 1, 1e7, "N", "tokens of context before each scored piece; default 512"},
        {ARG_COUNT, "score", 0, &r.score, 1, 1e6, "M", "tokens scored after each context; default 256"},
        {ARG_COUNT, "docs", 0, &r.docs, 1, 1e6, "N", "most pieces of the text scored; default 8"},
        {ARG_COUNT, "threads", 't', &r.threads, 1, 1024, "N", "default: online cores"},
        {ARG_BOOL, "force", 0, &r.force, 0, 0, NULL, "write over OUT if it exists"},
        {ARG_BOOL, "json", 0, &r.json, 0, 0, NULL, "print one JSON object"},
    };
    const arg_spec spec = {
        "quantize", "IN OUT TYPE [--eval FILE]",
        "Writes a copy of a model with its matrices in TYPE: Q8_0, Q4_0 or Q4_K. The copy appears\n"
        "under its name only when complete.",
        "  freetoken quantize model-f16.gguf model-q8.gguf Q8_0\n"
        "  freetoken quantize smollm2-135m small.gguf Q4_K --eval wiki.txt\n",
        flags, sizeof flags / sizeof flags[0], 3, 3};
    const char *words[3];
    size_t n_words;
    char in[PATH_MAX];
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (r.json) json_report_errors();
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_K"};
    const char *type = NULL, *out = words[1];
    for (size_t i = 0; i < 3; i++)
        if (strcasecmp(types[i], words[2]) == 0) type = types[i];
    if (!type) return args_refuse("quantize", "TYPE %s: must be one of Q8_0, Q4_0, Q4_K", words[2]);
    status = models_locate(words[0], in);
    if (status != STATUS_GO_ON) return status;
    struct stat a, b;
    if (stat(out, &b) == 0) {
        if (stat(in, &a) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return args_refuse("quantize", "IN and OUT are the same file");
        if (S_ISDIR(b.st_mode)) return args_refuse("quantize", "OUT %s is a directory: name a file", out);
        if (!r.force) return args_refuse("quantize", "OUT %s exists: --force writes over it", out);
    }
    perplexity before = {0}, after = {0};
    if (r.text) status = measure(in, &r, &before);
    if (status == STATUS_GO_ON) {
        ui_progress progress = {0};
        ftk_error e = {0};
        ftk_quantize_opts o = {.size = sizeof o, .type = type, .n_threads = (int32_t)r.threads,
                               .progress = ui_on_progress, .progress_ctx = &progress};
        ftk_status s = ftk_quantize_file(in, out, &o, &e);
        ui_progress_clear(&progress);
        if (s != FTK_OK) status = ui_fail(in, &e);
    }
    if (status == STATUS_GO_ON && r.text) status = measure(out, &r, &after);
    if (status != STATUS_GO_ON) return status;
    return report(&r, out, type, files_size(in), files_size(out), &before, &after);
}

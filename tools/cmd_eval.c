// SPDX-License-Identifier: Apache-2.0
/* freetoken eval: perplexity after a context, agreement of two settings, logits for other tools. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "commands.h"
#include "documents.h"
#include "interrupt.h"
#include "json_out.h"
#include "machine.h"
#include "models.h"
#include "perplexity.h"
#include "recall.h"
#include "reduce_eval.h"
#include "ui.h"

typedef struct eval_request {
    const char *word, *text, *against, *dump, *isa;
    perplexity_plan plan;
    int64_t threads, chunk;
    int kv;
    bool json;
    reduce_flags reduce;
    const char *sweep, *csv, *svg;
    int64_t decode, trials, answers, longest;
    const char *documents;
    bool recall;
    count_list lengths;
} eval_request;

/* The other setting: the model and what differs. */
typedef struct other_setting {
    model_request open;
    bool own_model; /* needs a model of its own */
    int64_t threads;
    int kv;
} other_setting;

static int read_against(const eval_request *r, other_setting *o)
{
    *o = (other_setting){.open = {.word = r->word, .threads = r->threads, .isa = r->isa}, .threads = r->threads, .kv = r->kv};
    const char *equals = strchr(r->against, '='), *value = equals ? equals + 1 : "";
    size_t len = equals ? (size_t)(equals - r->against) : 0;
    if (len == 2 && strncmp(r->against, "kv", len) == 0) {
        static const char *const names[] = {"int8", "f16", "f32"};
        for (o->kv = 0; o->kv < 3; o->kv++)
            if (strcmp(names[o->kv], value) == 0) return STATUS_GO_ON;
        return args_refuse("eval", "--against %s: must be kv=int8, kv=f16 or kv=f32", r->against);
    }
    if (len == 3 && strncmp(r->against, "isa", len) == 0) {
        o->open.isa = value;
        o->own_model = true;
        return STATUS_GO_ON;
    }
    if (len == 7 && strncmp(r->against, "threads", len) == 0) {
        const char *why = args_count(value, 1, 1024, &o->threads);
        return why ? args_refuse("eval", "--against %s: the number %s", r->against, why) : STATUS_GO_ON;
    }
    o->open.word = r->against;
    o->own_model = true;
    return STATUS_GO_ON;
}

static ftk_session_opts session_of(const eval_request *r, int64_t threads, int kv)
{
    return (ftk_session_opts){.size = sizeof(ftk_session_opts), .n_threads = (int32_t)threads,
                              .kv_type = (ftk_kv_type)kv, .chunk = (int32_t)r->chunk};
}

/* ------------------------------------------------------------------- dump */

/* Writes the logits after each of the text's first context + score tokens: a line "FTKLOGITS n
 * n_vocab", then ids [n] as i32, then rows [n][n_vocab] as f32, little-endian. */
static int write_logits(const eval_request *r, const ftk_model *m, const token_list *t, FILE *f)
{
    enum { MOST_BYTES = 64 << 20 };
    ftk_model_info info;
    ftk_error e = {0};
    ftk_session *s = NULL;
    ftk_session_opts o = session_of(r, r->threads, r->kv);
    o.context = (int32_t)t->n;
    ftk_model_get_info(m, &info);
    size_t width = (size_t)info.n_vocab, batch = MOST_BYTES / (width * sizeof(float));
    if (batch < 1) batch = 1;
    if (batch > 256) batch = 256;
    float *logits = malloc(batch * width * sizeof *logits);
    if (!logits) {
        ui_error("--dump-logits: out of memory");
        return STATUS_FAILURE;
    }
    ui_progress progress = {.unit = "tokens"};
    int status = ftk_session_open(&s, m, &o, &e) == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
    fprintf(f, "FTKLOGITS %zu %zu\n", t->n, width);
    fwrite(t->ids, sizeof *t->ids, t->n, f);
    for (size_t at = 0; status == STATUS_GO_ON && at < t->n; at += batch) {
        size_t take = t->n - at < batch ? t->n - at : batch;
        interrupt_watch(s);
        ftk_status result = ftk_score(s, t->ids + at, take, logits, &e);
        interrupt_watch(NULL);
        if (result != FTK_OK) status = ui_fail(NULL, &e);
        else if (fwrite(logits, width * sizeof *logits, take, f) != take) {
            ui_error("%s: %s", r->dump, strerror(errno));
            status = STATUS_FAILURE;
        } else if (!ui_on_progress(&progress, "writing logits", at + take, t->n)) status = STATUS_INTERRUPTED;
    }
    ui_progress_clear(&progress);
    ftk_session_close(s);
    free(logits);
    return status;
}

static int dump_logits(const eval_request *r, const ftk_model *m)
{
    text_buffer input = {0};
    token_list t = {0};
    size_t wanted = (size_t)(r->plan.context + r->plan.score);
    int status = text_read(&input, r->text);
    if (status == STATUS_GO_ON) status = text_check(r->text, input.data, input.len);
    if (status == STATUS_GO_ON) status = tokens_of(&t, m, r->text, input.data, input.len, FTK_TOKENIZE_BOS_EOS);
    if (t.n > wanted) t.n = wanted;
    if (status == STATUS_GO_ON && t.n == 0) {
        ui_error("%s: there is no text", r->text);
        status = STATUS_FAILURE;
    }
    FILE *f = status == STATUS_GO_ON ? fopen(r->dump, "wb") : NULL;
    if (status == STATUS_GO_ON && !f) {
        ui_error("%s: %s", r->dump, strerror(errno));
        status = STATUS_FAILURE;
    }
    if (f) {
        status = write_logits(r, m, &t, f);
        if (fclose(f) != 0 && status == STATUS_GO_ON) {
            ui_error("%s: %s", r->dump, strerror(errno));
            status = STATUS_FAILURE;
        }
        if (status == STATUS_GO_ON) ui_note("%s: logits of %zu tokens", r->dump, t.n);
        else unlink(r->dump);
    }
    text_free(&input);
    tokens_free(&t);
    return status;
}

/* ------------------------------------------------------------------ report */

static json_t *json_of(const perplexity *p)
{
    double value = perplexity_value(p), factor = perplexity_factor(p);
    json_t *j = json_object();
    json_object_set_new(j, "perplexity", json_number(value));
    json_object_set_new(j, "perplexity_low", json_number(value / factor));
    json_object_set_new(j, "perplexity_high", json_number(value * factor));
    json_object_set_new(j, "log_perplexity", json_number(p->nll.mean));
    json_object_set_new(j, "log_perplexity_error", json_number(p->nll.error));
    json_object_set_new(j, "tokens", json_integer((json_int_t)p->n));
    json_object_set_new(j, "documents", json_integer((json_int_t)p->n_docs));
    json_object_set_new(j, "seconds", json_number(p->seconds));
    return j;
}

static int print_json(const eval_request *r, const ftk_model_info *info, const perplexity *p, const comparison *c)
{
    json_t *j = json_of(p);
    json_object_set_new(j, "model", json_text(r->word));
    json_object_set_new(j, "text", json_text(r->text));
    json_object_set_new(j, "context", json_integer(r->plan.context));
    json_object_set_new(j, "score", json_integer(r->plan.score));
    json_object_set_new(j, "kernels", json_text(info->isa));
    json_object_set_new(j, "version", json_text(ftk_version()));
    if (r->against) {
        json_t *a = json_of(&c->other);
        json_object_set_new(a, "setting", json_text(r->against));
        json_object_set_new(a, "perplexity_ratio", json_number(exp(c->difference.mean)));
        json_object_set_new(a, "log_ratio_error", json_number(c->difference.error));
        json_object_set_new(a, "mean_kl", json_number(c->kl.mean));
        json_object_set_new(a, "mean_kl_error", json_number(c->kl.error));
        json_object_set_new(a, "largest_kl", json_number(c->largest_kl));
        json_object_set_new(a, "same_top", json_number(c->same_top));
        json_object_set_new(j, "against", a);
    }
    return json_line(j);
}

static void print_text(const eval_request *r, const perplexity *p, const comparison *c)
{
    double value = perplexity_value(p), factor = perplexity_factor(p);
    printf("%s: %zu document%s, %lld tokens of context, %lld scored\n", r->text, p->n_docs, p->n_docs == 1 ? "" : "s",
           (long long)r->plan.context, (long long)r->plan.score);
    printf("  perplexity      %.4f   95 %% interval %.4f to %.4f over %zu tokens\n", value, value / factor,
           value * factor, p->n);
    if (!r->against) return;
    printf("  against         %.4f   %s\n", perplexity_value(&c->other), r->against);
    printf("  difference      %+.3f %%  ± %.3f %% (95 %%)\n", 100 * (exp(c->difference.mean) - 1),
           100 * 1.96 * c->difference.error);
    printf("  mean KL         %.6f ± %.6f (95 %%), largest %.4f\n", c->kl.mean, 1.96 * c->kl.error, c->largest_kl);
    printf("  same top token  %.2f %%\n", 100 * c->same_top);
}

/* --------------------------------------------------------------- reduction */

static int refuse_mixture(const eval_request *r)
{
    bool reducing = reduce_flags_given(&r->reduce) || r->sweep;
    if (r->recall && !reducing) return args_refuse("eval", "--recall compares a reduced context with the dense one: give --keep, --kv-keep, --policy, --profile, --reduce or --sweep");
    if (reducing && (r->against || r->dump)) return args_refuse("eval", "--%s excludes token reduction", r->against ? "against" : "dump-logits");
    if ((r->csv || r->svg) && (!reducing || r->recall)) return args_refuse("eval", "--%s belongs to --reduce and --sweep", r->csv ? "csv" : "svg");
    if (r->documents && !reducing) return args_refuse("eval", "--documents compares reduced with dense: give --keep, --kv-keep, --policy, --profile, --reduce or --sweep");
    if (r->documents && r->recall) return args_refuse("eval", "--documents and --recall exclude each other");
    if ((r->answers || r->longest) && !r->documents) return args_refuse("eval", "--%s belongs to --documents", r->answers ? "answers" : "longest");
    if ((r->lengths.n || r->trials != 1) && !r->recall) return args_refuse("eval", "--%s belongs to --recall", r->lengths.n ? "lengths" : "trials");
    return reducing ? reduce_flags_check("eval", &r->reduce, r->sweep) : STATUS_GO_ON;
}

/* The lengths of --recall: 512 to 8k as far as the model was trained, unless the user says. */
static int default_lengths(eval_request *r, const ftk_model_info *info)
{
    static const int64_t usual[] = {512, 1024, 2048, 4096, 8192};
    size_t n = sizeof usual / sizeof usual[0];
    if (r->lengths.n) return STATUS_GO_ON;
    r->lengths.items = malloc(sizeof usual);
    if (!r->lengths.items) return STATUS_FAILURE;
    memcpy(r->lengths.items, usual, sizeof usual);
    while (n > 1 && usual[n - 1] + 256 > info->train_context) n--;
    r->lengths.n = n;
    return STATUS_GO_ON;
}

static int evaluate_reduced(eval_request *r, const ftk_model *m, const ftk_model_info *info)
{
    reduce_setting *settings = NULL;
    size_t n = 1;
    int status;
    const reduce_target to = {"eval", r->word, m};
    if (r->sweep) status = reduce_sweep(&settings, &n, &to, &r->reduce, r->sweep);
    else {
        settings = calloc(1, sizeof *settings);
        status = settings ? reduce_setting_of_flags(settings, &to, &r->reduce) : STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON && r->recall) {
        status = default_lengths(r, info);
        recall_plan p = {r->word, r->text, m, session_of(r, r->threads, r->kv), &r->lengths, r->trials, settings, n, r->json};
        if (status == STATUS_GO_ON) status = recall_run(&p);
    } else if (status == STATUS_GO_ON && r->documents) {
        documents_plan p = {r->word, r->documents, m, session_of(r, r->threads, r->kv), r->plan.max_docs, r->longest, r->answers, settings, n, r->json};
        status = documents_run(&p);
    } else if (status == STATUS_GO_ON) {
        reduce_eval e = {.word = r->word, .path = r->text, .plan = r->plan, .decode = r->decode,
                         .side = {m, session_of(r, r->threads, r->kv)}, .settings = settings, .n = n, .sweep = r->sweep != NULL,
                         .json = r->json, .csv = r->csv, .svg = r->svg};
        status = reduce_eval_run(&e);
    }
    reduce_sweep_free(settings, n);
    return status;
}

int cmd_eval(int argc, char **argv)
{
    eval_request r = {.plan = {.context = 512, .score = 256}, .decode = 16, .trials = 1};
    const arg_flag flags[] = {
        {ARG_TEXT, "text", 'f', &r.text, 0, 0, "FILE", "the text, UTF-8"},
        {ARG_COUNT, "context", 'c', &r.plan.context, 1, 1e7, "N", "tokens read before the scored ones; default 512"},
        {ARG_COUNT, "score", 'm', &r.plan.score, 1, 1e6, "M", "tokens scored after each context; default 256"},
        {ARG_COUNT, "stride", 0, &r.plan.stride, 1, 1e7, "N", "tokens from the start of one document to the next; default N + M"},
        {ARG_COUNT, "docs", 'd', &r.plan.max_docs, 1, 1e7, "N", "most documents cut from the text; default all"},
        {ARG_TEXT, "against", 'a', &r.against, 0, 0, "SETTING", "compare with kv=f32, isa=scalar, threads=1, or another model of the same vocabulary"},
        {ARG_CHOICE, "kv", 0, &r.kv, 0, 0, "int8|f16|f32", "how keys and values are stored; default int8"},
        {ARG_COUNT, "threads", 't', &r.threads, 1, 256, "N", "default: online cores"},
        {ARG_COUNT, "chunk", 0, &r.chunk, 1, 4096, "N", "tokens computed at once; default 256"},
        {ARG_TEXT, "isa", 0, &r.isa, 0, 0, "LEVEL", "kernels: scalar, avx2, avx512, neon, i8mm; default the best"},
        {ARG_TEXT, "dump-logits", 0, &r.dump, 0, 0, "FILE", "write the logits after each of the first N + M tokens instead: a line \"FTKLOGITS tokens vocabulary\", the ids as i32, the rows as f32"},
        {ARG_BOOL, "json", 0, &r.json, 0, 0, NULL, "print one JSON object"},
        REDUCE_FLAG_ROWS(r.reduce),
        {ARG_TEXT, "sweep", 0, &r.sweep, 0, 0, "LIST", "several settings as in --reduce, separated by ;, alternatives by |: a table, a row each"},
        {ARG_COUNT, "decode-tokens", 0, &r.decode, 0, 1e5, "N", "tokens decoded for their time, at most as many as are scored; default 16"},
        {ARG_TEXT, "csv", 0, &r.csv, 0, 0, "FILE", "also write the rows as CSV"},
        {ARG_TEXT, "svg", 0, &r.svg, 0, 0, "FILE", "also draw quality against TTFT and against KV bytes"},
        {ARG_BOOL, "recall", 0, &r.recall, 0, 0, NULL, "ask for facts hidden in the text instead, dense and reduced"},
        {ARG_COUNTS, "lengths", 0, &r.lengths, 64, 1e7, "LIST", "tokens of the texts of --recall; default 512 to 8k as far as the model was trained"},
        {ARG_TEXT, "documents", 0, &r.documents, 0, 0, "FILE", "ask the questions of FILE about its documents instead, dense and reduced: a JSON object a line with input, instructions and outputs"},
        {ARG_COUNT, "longest", 0, &r.longest, 64, 1e7, "N", "tokens of the longest document taken; default what the model was trained for, less 2k"},
        {ARG_COUNT, "answers", 0, &r.answers, 0, 4096, "N", "tokens of answers written and shown side by side; default none"},
        {ARG_COUNT, "trials", 0, &r.trials, 1, 1000, "N", "texts for each task, length and depth of --recall; default 1"},
    };
    const arg_spec spec = {
        "eval", "MODEL --text FILE [--context N] [--score M] [--against SETTING]\nMODEL --text FILE --reduce SETTING | --sweep LIST [--recall]\nMODEL --documents FILE --reduce SETTING | --sweep LIST",
        "Measures the perplexity of the M tokens that follow each context of N tokens, over as many\n"
        "documents as the text gives. With --against: also the mean KL divergence from the other\n"
        "setting and how often both find the same token likeliest. With token reduction: the loss\n"
        "against the dense model, and what is gained in time and memory.",
        "  freetoken eval smollm2-135m --text wiki.txt --context 2k --score 256\n"
        "  freetoken eval smollm2-135m --text wiki.txt --against kv=f32\n"
        "  freetoken eval small.gguf --text wiki.txt --against large.gguf --json\n"
        "  freetoken eval smollm2-135m --text wiki.txt --context 2k --kv-keep 0.5\n"
        "  freetoken eval smollm2-135m --text wiki.txt --sweep \"snapkv|h2o,kv_keep=0.8|0.5\" --svg plot.svg\n"
        "  freetoken eval smollm2-135m --text wiki.txt --recall --lengths 1k,2k --policy chat\n",
        flags, sizeof flags / sizeof flags[0], 1, 1};
    const char *words[1];
    size_t n_words;
    other_setting against = {0};
    ftk_model *m = NULL, *m2 = NULL;
    ftk_model_info info = {0};
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) goto end;
    if (r.json) json_report_errors();
    r.word = words[0];
    status = refuse_mixture(&r); /* first: --reduce help needs nothing else */
    if (status == STATUS_GO_ON && !r.text && !r.documents) status = args_refuse("eval", "--text FILE is missing");
    else if (status == STATUS_GO_ON && r.dump && r.against) status = args_refuse("eval", "--dump-logits and --against exclude each other");
    if (status == STATUS_GO_ON && r.against) status = read_against(&r, &against);
    if (status != STATUS_GO_ON) goto end;

    model_request open = {.word = r.word, .threads = r.threads, .isa = r.isa};
    status = models_open(&m, &open);
    if (status == STATUS_GO_ON) ftk_model_get_info(m, &info);
    if (status == STATUS_GO_ON && against.own_model) status = models_open(&m2, &against.open);
    perplexity result = {0};
    comparison compared = {0};
    if (status == STATUS_GO_ON && (reduce_flags_given(&r.reduce) || r.sweep)) status = evaluate_reduced(&r, m, &info);
    else if (status == STATUS_GO_ON && r.dump) status = dump_logits(&r, m);
    else if (status == STATUS_GO_ON) {
        perplexity_side side = {m, session_of(&r, r.threads, r.kv)};
        perplexity_side other = {m2 ? m2 : m, session_of(&r, against.threads, against.kv)};
        status = perplexity_run(&r.plan, r.text, &side, r.against ? &other : NULL, &result, &compared);
        if (status == STATUS_GO_ON && r.json) status = print_json(&r, &info, &result, &compared);
        else if (status == STATUS_GO_ON) print_text(&r, &result, &compared);
    }
end:
    ftk_model_close(m2);
    ftk_model_close(m);
    reduce_flags_free(&r.reduce);
    count_list_free(&r.lengths);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

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
#include "interrupt.h"
#include "json_out.h"
#include "machine.h"
#include "models.h"
#include "perplexity.h"
#include "ui.h"

typedef struct eval_request {
    const char *word, *text, *against, *dump, *isa;
    perplexity_plan plan;
    int64_t threads, chunk;
    int kv;
    bool json;
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

int cmd_eval(int argc, char **argv)
{
    eval_request r = {.plan = {.context = 512, .score = 256}};
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
    };
    const arg_spec spec = {
        "eval", "MODEL --text FILE [--context N] [--score M] [--against SETTING]",
        "Measures the perplexity of the M tokens that follow each context of N tokens, over as many\n"
        "documents as the text gives. With --against: also the mean KL divergence from the other\n"
        "setting and how often both find the same token likeliest.",
        "  freetoken eval smollm2-135m --text wiki.txt --context 2k --score 256\n"
        "  freetoken eval smollm2-135m --text wiki.txt --against kv=f32\n"
        "  freetoken eval small.gguf --text wiki.txt --against large.gguf --json\n",
        flags, sizeof flags / sizeof flags[0], 1, 1};
    const char *words[1];
    size_t n_words;
    other_setting against = {0};
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (r.json) json_report_errors();
    r.word = words[0];
    if (!r.text) return args_refuse("eval", "--text FILE is missing");
    if (r.dump && r.against) return args_refuse("eval", "--dump-logits and --against exclude each other");
    if (r.against && (status = read_against(&r, &against)) != STATUS_GO_ON) return status;

    ftk_model *m = NULL, *m2 = NULL;
    ftk_model_info info = {0};
    model_request open = {.word = r.word, .threads = r.threads, .isa = r.isa};
    status = models_open(&m, &open);
    if (status == STATUS_GO_ON) ftk_model_get_info(m, &info);
    if (status == STATUS_GO_ON && against.own_model) status = models_open(&m2, &against.open);
    perplexity result = {0};
    comparison compared = {0};
    if (status == STATUS_GO_ON && r.dump) status = dump_logits(&r, m);
    else if (status == STATUS_GO_ON) {
        perplexity_side side = {m, session_of(&r, r.threads, r.kv)};
        perplexity_side other = {m2 ? m2 : m, session_of(&r, against.threads, against.kv)};
        status = perplexity_run(&r.plan, r.text, &side, r.against ? &other : NULL, &result, &compared);
        if (status == STATUS_GO_ON && r.json) status = print_json(&r, &info, &result, &compared);
        else if (status == STATUS_GO_ON) print_text(&r, &result, &compared);
    }
    ftk_model_close(m2);
    ftk_model_close(m);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

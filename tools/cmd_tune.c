// SPDX-License-Identifier: Apache-2.0
/* freetoken tune: finds what a model can leave out and writes it down as a profile. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "models.h"
#include "profile.h"
#include "tune.h"
#include "ui.h"

enum { N_LENGTHS = 6 };
static const size_t lengths[N_LENGTHS] = {128, 256, 512, 1024, 2048, 4096};
static const char *const goals[] = {"memory", "ttft", "decode"};

typedef struct tune_request {
    const char *word, *text, *bound, *name, *out, *isa;
    perplexity_plan plan;
    int64_t threads, windows, check, from;
    int goal, kv;
    bool afresh, json;
} tune_request;

/* What reduction gains at a length. */
typedef struct gain {
    size_t length;
    double seconds[2]; /* dense, reduced */
    uint64_t bytes[2];
} gain;

/* Seconds of the first token from short to long; the break-even length is the first from which the goal is
 * served: sooner first tokens, or less memory at no more than 5 % later ones. 0: none. */
static int measure_gains(const tuner *t, const ftk_reduction *r, int goal, gain *gains, size_t *n, size_t *break_even)
{
    ui_progress progress = {0};
    *n = *break_even = 0;
    for (size_t i = 0; i < N_LENGTHS; i++) {
        gain *g = &gains[*n];
        if ((int64_t)lengths[i] + 8 > t->info.train_context) break;
        g->length = lengths[i];
        if (!ui_on_progress(&progress, "measuring the time it takes here", i, N_LENGTHS)) return STATUS_INTERRUPTED;
        int status = tuner_time(t, r, g->length, lengths[i] > 1024 ? 3 : 5, g->seconds, g->bytes);
        if (status != STATUS_GO_ON) return status;
        bool pays = goal == TUNE_TTFT ? g->seconds[1] < 0.98 * g->seconds[0] : g->bytes[1] < g->bytes[0] && g->seconds[1] < 1.05 * g->seconds[0];
        if (!pays) *break_even = 0;
        else if (*break_even == 0) *break_even = g->length;
        (*n)++;
    }
    ui_progress_clear(&progress);
    return STATUS_GO_ON;
}

/* ------------------------------------------------------------------ report */

/* One character a layer: how much of its cache is kept, and ~ for layers whose heads all have a window. */
static void print_layers(const tuner *t, const tune_result *r)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t heads = (size_t)t->info.n_kv_heads;
    printf("  kept by layer   ");
    for (size_t l = 0; l < (size_t)t->info.n_layers; l++) {
        double share = 0;
        size_t near = 0;
        for (size_t h = 0; h < heads; h++) {
            bool windowed = r->r.windows && r->r.windows[l * heads + h] > 0;
            near += windowed;
            share += r->r.budgets && !windowed ? r->r.budgets[l * heads + h] : 1;
        }
        int level = (int)lround(share / (double)heads * 7);
        fputs(near == heads ? "~" : bars[level], stdout);
    }
    printf("   (~: all heads read only what is near)\n");
}

static void print_result(const tune_request *q, const tuner *t, const tune_result *r, const gain *gains, size_t n, size_t break_even)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    char a[UI_WORD], b[UI_WORD];
    size_t cells = (size_t)t->info.n_layers * (size_t)t->info.n_kv_heads;
    printf("%s%s%s: goal %s, bound %s\n", bold, q->word, plain, goals[q->goal], q->bound);
    if (!r->met) {
        printf("  the bound cannot be met on text not tuned on: this model stays dense (closest: perplexity %+.2f %%, KL %.4f, same top token %.1f %%)\n",
               100 * r->checked.loss, r->checked.kl, 100 * r->checked.top1);
        return;
    }
    if (r->let_go) printf("  after layer %d of %d a tenth of the prompt is enough\n", r->let_go, t->info.n_layers);
    else printf("  the prompt is read to the last layer\n");
    printf("  %zu of %zu KV heads read only what is near\n", r->n_near, cells);
    print_layers(t, r);
    printf("  on other text   perplexity %+.2f %% (95 %%: %+.2f to %+.2f), KL %.4f, same top token %.1f %%; entries kept %.3f, work %.3f\n",
           100 * r->checked.loss, 100 * r->checked.low, 100 * r->checked.high, r->checked.kl, 100 * r->checked.top1, r->checked.kv_keep,
           r->checked.work);
    for (size_t i = 0; i < n; i++)
        printf("  %5zu tokens     TTFT %.2f of dense (%s), KV %.2f (%s)\n", gains[i].length, gains[i].seconds[1] / gains[i].seconds[0],
               ui_seconds(a, gains[i].seconds[1]), (double)gains[i].bytes[1] / (double)gains[i].bytes[0], ui_bytes(b, (double)gains[i].bytes[1]));
    if (break_even) printf("  pays from %zu tokens on; shorter prompts stay dense\n", break_even);
    else printf("  does not pay at the lengths measured: prompts stay dense\n");
}

static json_t *json_of(const tune_request *q, const tuner *t, const tune_result *r, const gain *gains, size_t n, size_t break_even)
{
    json_t *j = json_object(), *times = json_array(), *layers = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *one = json_object();
        json_object_set_new(one, "length", json_integer((json_int_t)gains[i].length));
        json_object_set_new(one, "ttft_ms_dense", json_number(1e3 * gains[i].seconds[0]));
        json_object_set_new(one, "ttft_ms", json_number(1e3 * gains[i].seconds[1]));
        json_object_set_new(one, "kv_bytes_dense", json_integer((json_int_t)gains[i].bytes[0]));
        json_object_set_new(one, "kv_bytes", json_integer((json_int_t)gains[i].bytes[1]));
        json_array_append_new(times, one);
    }
    for (int32_t l = 0; l < t->info.n_layers; l++) json_array_append_new(layers, json_number(r->layer_kl[l]));
    json_object_set_new(j, "model", json_text(q->word));
    json_object_set_new(j, "goal", json_text(goals[q->goal]));
    json_object_set_new(j, "bound", json_text(q->bound));
    json_object_set_new(j, "met", json_boolean(r->met));
    json_object_set_new(j, "let_go_layer", json_integer(r->met ? r->let_go : 0));
    json_object_set_new(j, "near_heads", json_integer((json_int_t)(r->met ? r->n_near : 0)));
    json_object_set_new(j, "ppl_loss", json_number(r->checked.loss));
    json_object_set_new(j, "ppl_loss_low", json_number(r->checked.low));
    json_object_set_new(j, "ppl_loss_high", json_number(r->checked.high));
    json_object_set_new(j, "kl", json_number(r->checked.kl));
    json_object_set_new(j, "top1", json_number(r->checked.top1));
    json_object_set_new(j, "kv_keep", json_number(r->checked.kv_keep));
    json_object_set_new(j, "work", json_number(r->checked.work));
    json_object_set_new(j, "break_even", json_integer((json_int_t)break_even));
    json_object_set_new(j, "times", times);
    json_object_set_new(j, "kl_by_layer", layers);
    json_object_set_new(j, "windows_read", json_integer((json_int_t)t->measured));
    json_object_set_new(j, "seconds", json_number(t->seconds));
    return j;
}

/* -------------------------------------------------------------------- work */

/* The measured part, after the search, and what is written. */
static int conclude(const tune_request *q, const tuner *t, tune_result *r, const char *out)
{
    gain gains[N_LENGTHS];
    size_t n = 0, break_even = 0;
    int status = STATUS_GO_ON;
    if (r->met && !q->from) status = measure_gains(t, &r->r, q->goal, gains, &n, &break_even);
    if (q->from) break_even = (size_t)q->from;
    r->r.min_length = break_even ? (int32_t)break_even : INT32_MAX;
    if (status == STATUS_GO_ON && q->json) {
        if (json_line(json_of(q, t, r, gains, n, break_even)) != STATUS_OK) status = STATUS_FAILURE;
    } else if (status == STATUS_GO_ON) print_result(q, t, r, gains, n, break_even);
    if (status == STATUS_GO_ON && r->met && break_even) {
        profile_facts facts = {.goal = goals[q->goal], .bound = q->bound, .text = q->text, .figures = r->checked,
                               .context = t->plan.context, .windows = t->n_check};
        status = profile_write(out, q->name, t->model, &r->r, &facts);
        if (status == STATUS_GO_ON) ui_note("%s: profile \"%s\"; run and the library take it up from there", out, q->name);
    }
    return status;
}

static int tune(const tune_request *q, const tune_bound *bound)
{
    ftk_model *m = NULL;
    tuner t = {0};
    tune_result r = {0};
    char path[PATH_MAX], out[PATH_MAX + 16], state[PATH_MAX + 32];
    model_request open = {.word = q->word, .threads = q->threads, .isa = q->isa};
    ftk_session_opts session = {.size = sizeof session, .n_threads = (int32_t)q->threads, .kv_type = (ftk_kv_type)q->kv};
    int status = models_locate(q->word, path);
    if (status != STATUS_GO_ON) return status;
    profile_path(out, sizeof out, path);
    if (q->out) snprintf(out, sizeof out, "%s", q->out);
    snprintf(state, sizeof state, "%s.state", out);
    if (q->afresh) unlink(state);
    status = models_open(&m, &open);
    if (status == STATUS_GO_ON)
        status = tuner_open(&t, m, &session, q->word, q->text, &q->plan, (size_t)q->windows, (size_t)q->check, state);
    if (status == STATUS_GO_ON) status = tune_search(&t, (tune_goal)q->goal, bound, &r);
    if (status == STATUS_GO_ON) status = conclude(q, &t, &r, out);
    if (status == STATUS_INTERRUPTED) ui_note("%zu measurements are kept in %s: the same command goes on from there", t.n_trials, state);
    tune_result_close(&r);
    tuner_close(&t);
    ftk_model_close(m);
    return status;
}

int cmd_tune(int argc, char **argv)
{
    tune_request q = {.bound = "ppl 1%", .name = "tuned", .plan = {.context = 1024, .score = 128}, .windows = 2, .check = 8};
    const arg_flag flags[] = {
        {ARG_TEXT, "text", 'f', &q.text, 0, 0, "FILE", "text like that the model will read, UTF-8: 12 thousand tokens with the default windows"},
        {ARG_TEXT, "bound", 'b', &q.bound, 0, 0, "BOUND", "the most that may be lost on text not tuned on: \"ppl 1%\", \"kl 0.02\" or \"top1 97%\"; default ppl 1%"},
        {ARG_CHOICE, "goal", 'g', &q.goal, 0, 0, "memory|ttft|decode", "what is to become less; default memory"},
        {ARG_TEXT, "name", 0, &q.name, 0, 0, "NAME", "the profile's name; default tuned"},
        {ARG_TEXT, "out", 'o', &q.out, 0, 0, "FILE", "where it goes; default beside the model, where run finds it"},
        {ARG_COUNT, "context", 'c', &q.plan.context, 128, 1e6, "N", "tokens of a window; default 1024"},
        {ARG_COUNT, "score", 'm', &q.plan.score, 8, 4096, "M", "tokens scored after it; default 128"},
        {ARG_COUNT, "windows", 'w', &q.windows, 1, 64, "N", "windows tuned on; default 2"},
        {ARG_COUNT, "check", 0, &q.check, 1, 1000, "N", "other windows the result is verified on; default 8"},
        {ARG_COUNT, "from", 0, &q.from, 1, 1e7, "N", "prompts shorter than this stay dense, for another machine than this one; default: the length from which it pays here"},
        {ARG_BOOL, "afresh", 0, &q.afresh, 0, 0, NULL, "forget what an interrupted run measured"},
        {ARG_COUNT, "threads", 't', &q.threads, 1, 256, "N", "default: online cores"},
        {ARG_CHOICE, "kv", 0, &q.kv, 0, 0, "int8|f16|f32", "how keys and values are stored; default int8"},
        {ARG_TEXT, "isa", 0, &q.isa, 0, 0, "LEVEL", "kernels: scalar, avx2, avx512, neon, i8mm; default the best"},
        {ARG_BOOL, "json", 0, &q.json, 0, 0, NULL, "print one JSON object"},
    };
    const arg_spec spec = {
        "tune", "MODEL --text FILE [--bound BOUND] [--goal memory|ttft|decode]",
        "Measures what each layer and KV head of a model can leave out, finds the most that keeps the\n"
        "bound on text it was not tuned on, measures the time it takes here, and writes a profile.\n"
        "Ctrl-C is safe: the same command goes on where it stopped.",
        "  freetoken tune smollm2-135m --text wiki.txt\n"
        "  freetoken tune smollm2-135m --text wiki.txt --goal ttft --bound \"kl 0.02\" --name chat\n",
        flags, sizeof flags / sizeof flags[0], 1, 1};
    const char *words[1];
    size_t n_words;
    tune_bound bound = {0};
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (q.json) json_report_errors();
    q.word = words[0];
    const char *why = tune_read_bound(q.bound, &bound);
    if (why) return args_refuse("tune", "--bound %s: %s", q.bound, why);
    if (!q.text) return args_refuse("tune", "--text FILE is missing");
    status = tune(&q, &bound);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

// SPDX-License-Identifier: Apache-2.0
/* freetoken advise: whether token reduction pays for the prompts somebody has, on the memory there is. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "args.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "models.h"
#include "profile.h"
#include "reduce_flags.h"
#include "svg_plot.h"
#include "text.h"
#include "ui.h"

enum { N_BINS = 16, FIRST_BIN = 64 }; /* 0..63, 64..127, 128..255, ... tokens */

typedef struct advise_request {
    const char *word, *lengths, *text, *memory, *profile, *svg;
    int64_t answer;
    int kv;
    bool json;
} advise_request;

typedef struct prompt_lengths {
    double *tokens; /* [n] sorted */
    size_t n;
} prompt_lengths;

typedef struct advice {
    ftk_model *m;
    ftk_model_info info;
    prompt_lengths l;
    uint64_t memory;      /* of the device for this, 0: not said */
    uint64_t fixed;       /* weights and scratch */
    double kv_per_token;
    reduce_setting profile;
    bool has_profile;
    double kept;          /* share of KV entries the profile kept when it was made, 1: none */
    int32_t break_even;
} advice;

/* ----------------------------------------------------------------- lengths */

static bool add_length(prompt_lengths *l, double tokens)
{
    double *grown = realloc(l->tokens, (l->n + 1) * sizeof *grown);
    if (!grown) return false;
    l->tokens = grown;
    l->tokens[l->n++] = tokens;
    return true;
}

/* Whole numbers separated by anything that is no digit. */
static int read_lengths(prompt_lengths *l, const char *path)
{
    text_buffer t = {0};
    int status = text_read(&t, path);
    for (const char *p = t.data; status == STATUS_GO_ON && p && *p;) {
        char *end;
        if (!isdigit((unsigned char)*p)) {
            if (*p == '-' || isalpha((unsigned char)*p)) {
                ui_error("%s: byte %zu: must hold lengths in tokens, whole numbers", path, (size_t)(p - t.data));
                status = STATUS_FAILURE;
            }
            p++;
            continue;
        }
        double tokens = (double)strtoull(p, &end, 10);
        if (tokens < 1 || tokens > 1e9) {
            ui_error("%s: byte %zu: a length from 1 to 1000000000 tokens is wanted", path, (size_t)(p - t.data));
            status = STATUS_FAILURE;
        } else if (!add_length(l, tokens)) status = STATUS_FAILURE;
        p = end;
    }
    text_free(&t);
    return status;
}

static int count_file(prompt_lengths *l, const ftk_model *m, const char *path)
{
    text_buffer t = {0};
    ftk_error e = {0};
    size_t n = 0;
    int status = text_read(&t, path);
    if (status == STATUS_GO_ON && text_invalid(t.data ? t.data : "", t.len) < t.len) {
        ui_warn("%s: is no UTF-8 text and is passed over", path);
        text_free(&t);
        return STATUS_GO_ON;
    }
    if (status == STATUS_GO_ON && t.len && ftk_tokenize(m, t.data, t.len, FTK_TOKENIZE_BOS_EOS, NULL, 0, &n, &e) != FTK_OK)
        status = ui_fail(path, &e);
    if (status == STATUS_GO_ON && n && !add_length(l, (double)n)) status = STATUS_FAILURE;
    text_free(&t);
    return status;
}

/* Every file of a folder is a prompt, or the one file. */
static int count_texts(prompt_lengths *l, const ftk_model *m, const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0) {
        ui_error("%s: %s", path, strerror(errno));
        return STATUS_FAILURE;
    }
    if (!S_ISDIR(facts.st_mode)) return count_file(l, m, path);
    DIR *d = opendir(path);
    if (!d) {
        ui_error("%s: %s", path, strerror(errno));
        return STATUS_FAILURE;
    }
    int status = STATUS_GO_ON;
    for (struct dirent *entry; status == STATUS_GO_ON && (entry = readdir(d)) != NULL;) {
        char file[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (stat(file, &facts) == 0 && S_ISREG(facts.st_mode)) status = count_file(l, m, file);
    }
    closedir(d);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at_share(const prompt_lengths *l, double share)
{
    size_t rank = (size_t)ceil(share * (double)l->n);
    return l->tokens[(rank ? rank : 1) - 1];
}

static double share_above(const prompt_lengths *l, double tokens)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) n += l->tokens[i] >= tokens;
    return (double)n / (double)l->n;
}

/* ------------------------------------------------------------------ memory */

/* Fixed part and slope from two estimates of the library. */
static int measure_memory(advice *a, int kv)
{
    ftk_error e = {0};
    ftk_memory small, large;
    int32_t low = 1024, high = 4096;
    ftk_session_opts o = {.size = sizeof o, .context = low, .kv_type = (ftk_kv_type)kv};
    if (ftk_memory_estimate(a->m, &o, &small, &e) != FTK_OK) return ui_fail(NULL, &e);
    o.context = high;
    if (ftk_memory_estimate(a->m, &o, &large, &e) != FTK_OK) return ui_fail(NULL, &e);
    a->kv_per_token = (double)(large.kv - small.kv) / (high - low);
    a->fixed = large.weights + large.scratch;
    return STATUS_GO_ON;
}

/* Tokens of prompt and answer that fit when the prompt's share `kept` stays; 0: not even the weights do. */
static double longest(const advice *a, double kept, double answer)
{
    if (a->memory <= a->fixed) return 0;
    double room = (double)(a->memory - a->fixed) / a->kv_per_token - answer;
    return room > 0 ? room / kept : 0;
}

static int take_profile(advice *a, const advise_request *q)
{
    const reduce_target to = {"advise", q->word, a->m};
    reduce_flags f = {.profile = q->profile};
    int status = q->profile ? reduce_setting_of_flags(&a->profile, &to, &f) : reduce_setting_usual(&a->profile, &to);
    a->has_profile = status == STATUS_GO_ON && !a->profile.dense;
    a->kept = 1;
    if (!a->has_profile) return status;
    size_t cells = (size_t)a->info.n_layers * (size_t)a->info.n_kv_heads;
    double kept = 0, typical = at_share(&a->l, 0.5);
    for (size_t c = 0; c < cells; c++) {
        double share = a->profile.r.budgets ? a->profile.r.budgets[c] : a->profile.r.kv_keep > 0 ? a->profile.r.kv_keep : 1;
        int32_t window = a->profile.r.windows ? a->profile.r.windows[c] : 0;
        kept += window ? fmin(1, window / typical) : share;
    }
    a->kept = kept / (double)cells;
    a->break_even = a->profile.r.min_length ? a->profile.r.min_length : 256;
    return STATUS_GO_ON;
}

/* ------------------------------------------------------------------ report */

static size_t bin_of(double tokens)
{
    size_t bin = 0;
    for (double edge = FIRST_BIN; tokens >= edge && bin + 1 < N_BINS; edge *= 2) bin++;
    return bin;
}

static void count_bins(const prompt_lengths *l, size_t bins[N_BINS], size_t *last)
{
    *last = 0;
    memset(bins, 0, N_BINS * sizeof *bins);
    for (size_t i = 0; i < l->n; i++) {
        size_t bin = bin_of(l->tokens[i]);
        bins[bin]++;
        if (bin > *last) *last = bin;
    }
}

static void print_histogram(const prompt_lengths *l)
{
    enum { WIDTH = 40 };
    size_t bins[N_BINS], last, most = 1;
    count_bins(l, bins, &last);
    for (size_t b = 0; b <= last; b++)
        if (bins[b] > most) most = bins[b];
    for (size_t b = 0; b <= last; b++) {
        double from = b ? FIRST_BIN * pow(2, (double)b - 1) : 1;
        printf("  %8.0f +  ", from);
        for (size_t i = 0; i < bins[b] * WIDTH / most; i++) fputs("█", stdout);
        printf(" %zu\n", bins[b]);
    }
}

static int write_svg(const advice *a, const char *path, const char *word)
{
    size_t bins[N_BINS], last;
    plot_point points[N_BINS];
    count_bins(&a->l, bins, &last);
    for (size_t b = 0; b <= last; b++) points[b] = (plot_point){.x = b ? log2(FIRST_BIN) + (double)b - 0.5 : log2(FIRST_BIN) - 0.5, .y = (double)bins[b], .series = ""};
    plot_panel panel = {"Lengths of prompts", "tokens, as powers of two", "prompts", points, last + 1, true, false};
    return plot_write(path, word, &panel, 1);
}

/* The sentences. */
static void print_advice(const advice *a, const advise_request *q)
{
    double p95 = at_share(&a->l, 0.95), most = a->l.tokens[a->l.n - 1];
    double fits = longest(a, 1, (double)q->answer), fits_reduced = longest(a, a->kept, (double)q->answer);
    bool tight = a->memory && most > fits;
    if (a->memory && a->memory <= a->fixed) {
        printf("- The model alone needs more than the memory: take a smaller model, or `freetoken quantize` it.\n");
        return;
    }
    if (most > a->info.train_context)
        printf("- %.1f %% of the prompts are longer than the model was trained for (%d tokens): no reduction helps there, split them.\n",
               100 * share_above(&a->l, (double)a->info.train_context + 1), a->info.train_context);
    if (a->memory && !tight) printf("- Every prompt fits dense (up to %.0f tokens do): reduction is not needed for memory.\n", fits);
    if (tight) printf("- %.1f %% of the prompts do not fit dense: more than %.0f tokens do not.\n", 100 * share_above(&a->l, fits + 1), fits);
    if (a->has_profile) {
        double paying = share_above(&a->l, a->break_even);
        printf("- %s pays from %d tokens on: %.1f %% of the prompts.", a->profile.name, a->break_even, 100 * paying);
        if (paying == 0) printf(" It is not worth its while here: leave the runs dense.");
        printf("\n");
        if (tight)
            printf("- With it prompts of up to about %.0f tokens fit, and %.1f %% still do not.\n", fits_reduced,
                   100 * share_above(&a->l, fits_reduced + 1));
    } else if (p95 < 256) printf("- 95 %% of the prompts are shorter than 256 tokens: reduction does not pay, leave the runs dense.\n");
    else {
        printf("- %.1f %% of the prompts have 256 tokens or more, where reduction may pay. Measure what this model can leave out:\n"
               "    freetoken tune %s --text FILE --goal %s\n", 100 * share_above(&a->l, 256), q->word, tight ? "memory" : "ttft");
        if (tight) printf("- To make the longest fit, %.0f %% of the entries may stay: --kv-keep %.2f.\n", 100 * fits / most, floor(100 * fits / most) / 100);
    }
}

static void print_text(const advice *a, const advise_request *q)
{
    char x[UI_WORD], y[UI_WORD];
    printf("%s%zu prompts%s · half have up to %.0f tokens, 95 %% up to %.0f, the longest %.0f\n", ui_style(stdout, UI_BOLD), a->l.n,
           ui_style(stdout, UI_PLAIN), at_share(&a->l, 0.5), at_share(&a->l, 0.95), a->l.tokens[a->l.n - 1]);
    print_histogram(&a->l);
    printf("Weights and scratch %s; keys and values %s a token", ui_bytes(x, (double)a->fixed), ui_bytes(y, a->kv_per_token));
    printf(", %s for the longest", ui_bytes(x, a->kv_per_token * (a->l.tokens[a->l.n - 1] + (double)q->answer)));
    if (a->memory) printf("; there are %s", ui_bytes(y, (double)a->memory));
    printf("\n");
    print_advice(a, q);
}

static int print_json(const advice *a, const advise_request *q)
{
    json_t *j = json_object();
    double fits = a->memory ? longest(a, 1, (double)q->answer) : NAN;
    json_object_set_new(j, "model", json_text(q->word));
    json_object_set_new(j, "prompts", json_integer((json_int_t)a->l.n));
    json_object_set_new(j, "median_tokens", json_number(at_share(&a->l, 0.5)));
    json_object_set_new(j, "p95_tokens", json_number(at_share(&a->l, 0.95)));
    json_object_set_new(j, "longest_tokens", json_number(a->l.tokens[a->l.n - 1]));
    json_object_set_new(j, "fixed_bytes", json_integer((json_int_t)a->fixed));
    json_object_set_new(j, "kv_bytes_per_token", json_number(a->kv_per_token));
    json_object_set_new(j, "memory_bytes", a->memory ? json_integer((json_int_t)a->memory) : json_null());
    json_object_set_new(j, "fits_dense_tokens", json_number(floor(fits)));
    json_object_set_new(j, "share_too_long", json_number(a->memory ? share_above(&a->l, fits + 1) : NAN));
    json_object_set_new(j, "profile", a->has_profile ? json_text(a->profile.name) : json_null());
    json_object_set_new(j, "kv_keep", json_number(a->kept));
    json_object_set_new(j, "break_even", a->has_profile ? json_integer(a->break_even) : json_null());
    json_object_set_new(j, "share_paying", a->has_profile ? json_number(share_above(&a->l, a->break_even)) : json_null());
    return json_line(j) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
}

static int advise(const advise_request *q)
{
    advice a = {0};
    model_request open = {.word = q->word};
    int status = STATUS_GO_ON;
    if (q->memory && !reduce_read_bytes(q->memory, &a.memory))
        return args_refuse("advise", "--memory %s: must be a number of bytes, for example 2G", q->memory);
    if (q->lengths) status = read_lengths(&a.l, q->lengths);
    if (status == STATUS_GO_ON) status = models_open(&a.m, &open);
    if (status == STATUS_GO_ON) {
        ftk_model_get_info(a.m, &a.info);
        if (q->text) status = count_texts(&a.l, a.m, q->text);
    }
    if (status == STATUS_GO_ON && a.l.n == 0) {
        ui_error("%s: holds no prompts", q->text ? q->text : q->lengths);
        status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) {
        qsort(a.l.tokens, a.l.n, sizeof *a.l.tokens, by_value);
        status = measure_memory(&a, q->kv);
    }
    if (status == STATUS_GO_ON) status = take_profile(&a, q);
    if (status == STATUS_GO_ON) {
        if (q->json) status = print_json(&a, q);
        else print_text(&a, q);
    }
    if (status == STATUS_GO_ON && q->svg) status = write_svg(&a, q->svg, q->word);
    reduce_setting_close(&a.profile);
    ftk_model_close(a.m);
    free(a.l.tokens);
    return status;
}

int cmd_advise(int argc, char **argv)
{
    advise_request q = {.answer = 512};
    const arg_flag flags[] = {
        {ARG_TEXT, "lengths", 'l', &q.lengths, 0, 0, "FILE", "lengths of prompts in tokens, separated by spaces or lines"},
        {ARG_TEXT, "text", 'f', &q.text, 0, 0, "FOLDER", "or a folder whose files are prompts, or one file"},
        {ARG_TEXT, "memory", 'm', &q.memory, 0, 0, "BYTES", "what the device has for this, for example 2G"},
        {ARG_COUNT, "answer", 0, &q.answer, 0, 1e6, "N", "tokens of an answer; default 512"},
        {ARG_TEXT, "profile", 0, &q.profile, 0, 0, "NAME|FILE", "default: what `tune` left beside the model"},
        {ARG_CHOICE, "kv", 0, &q.kv, 0, 0, "int8|f16|f32", "how keys and values are stored; default int8"},
        {ARG_TEXT, "svg", 0, &q.svg, 0, 0, "FILE", "also draw the histogram"},
        {ARG_BOOL, "json", 0, &q.json, 0, 0, NULL, "print one JSON object"},
    };
    const arg_spec spec = {
        "advise", "MODEL --lengths FILE | --text FOLDER [--memory 2G]",
        "Says whether token reduction pays for the prompts you have: how long they are, what their keys\n"
        "and values take of the memory, and from which length on a profile gains.",
        "  freetoken advise smollm2-135m --text mails/ --memory 512M\n"
        "  freetoken advise smollm2-135m --lengths lengths.txt --svg lengths.svg\n",
        flags, sizeof flags / sizeof flags[0], 1, 1};
    const char *words[1];
    size_t n_words;
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (q.json) json_report_errors();
    q.word = words[0];
    if (!q.lengths == !q.text) return args_refuse("advise", "either --lengths FILE or --text FOLDER is needed");
    status = advise(&q);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

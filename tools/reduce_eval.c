// SPDX-License-Identifier: Apache-2.0
/* Documents outside, settings inside: the dense logits of a document are computed once and settings
 * take turns on a machine that drifts. */
#include "reduce_eval.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "reading.h"
#include "svg_plot.h"
#include "ui.h"

/* One setting over all documents. */
typedef struct result {
    const reduce_setting *setting;
    agreement agree;
    double *ttft, *decode, *reduce; /* [n_docs] seconds, sorted in the end */
    double *layers;                 /* [n_layers] share of entries, summed over documents */
    double kv_keep, token_keep;     /* sums over documents */
    double multiply_adds, multiply_adds_dense;
    uint64_t kv_bytes, peak_rss;    /* the most of any document */
    const char *dense_because;
    size_t n;
} result;

typedef struct measuring {
    const reduce_eval *e;
    reading_plan plan;
    ftk_model_info info;
    size_t n_docs;
    result dense, *results;  /* [e->n] */
    float *truth, *logits;   /* [score][n_vocab] */
    row_facts *facts;        /* [score] of truth */
    ui_progress progress;
} measuring;

static bool open_result(result *r, const reduce_setting *setting, size_t n_docs, size_t n_layers)
{
    *r = (result){.setting = setting};
    r->ttft = calloc(n_docs, sizeof *r->ttft);
    r->decode = calloc(n_docs, sizeof *r->decode);
    r->reduce = calloc(n_docs, sizeof *r->reduce);
    r->layers = calloc(n_layers, sizeof *r->layers);
    return r->ttft && r->decode && r->reduce && r->layers;
}

static void close_result(result *r)
{
    free(r->ttft);
    free(r->decode);
    free(r->reduce);
    free(r->layers);
}

static void keep_reading(result *r, const reading *one)
{
    r->ttft[r->n] = one->ttft;
    r->decode[r->n] = one->decode;
    r->reduce[r->n] = one->reduce_seconds;
    r->kv_keep += one->kv_keep;
    r->token_keep += one->tokens_in > 0 ? (double)one->tokens_out / one->tokens_in : 1;
    r->multiply_adds += (double)one->multiply_adds;
    r->multiply_adds_dense += (double)one->multiply_adds_dense;
    if (one->kv_bytes > r->kv_bytes) r->kv_bytes = one->kv_bytes;
    if (one->peak_rss > r->peak_rss) r->peak_rss = one->peak_rss;
    if (one->dense_because) r->dense_because = one->dense_because;
    r->n++;
}

static int measure_document(measuring *m, const ftk_token *ids, size_t doc)
{
    const reduce_eval *e = m->e;
    size_t score = m->plan.score, width = (size_t)m->info.n_vocab, turns = e->n + 1;
    reading one;
    int status = reading_take(&one, &m->plan, NULL, ids, m->truth, m->dense.layers);
    if (status != STATUS_GO_ON) return status;
    keep_reading(&m->dense, &one);
    for (size_t i = 0; i < score; i++) m->facts[i] = row_of(m->truth + i * width, width);
    agreement_add(&m->dense.agree, m->truth, m->truth, m->facts, ids + m->plan.context, score, width);
    for (size_t s = 0; s < e->n; s++) {
        if (!ui_on_progress(&m->progress, "evaluating", doc * turns + s + 1, m->n_docs * turns)) return STATUS_INTERRUPTED;
        result *r = &m->results[(s + doc) % e->n]; /* nobody is always first */
        status = reading_take(&one, &m->plan, r->setting->dense ? NULL : &r->setting->r, ids, m->logits, r->layers);
        if (status != STATUS_GO_ON) {
            ui_note("setting %s", r->setting->name);
            return status;
        }
        keep_reading(r, &one);
        agreement_add(&r->agree, m->logits, m->truth, m->facts, ids + m->plan.context, score, width);
    }
    return STATUS_GO_ON;
}

/* ----------------------------------------------------------------- figures */

/* What a row shows; names as in the JSON. */
typedef struct figures {
    double keep_asked, keep_achieved, kv_keep;
    double ppl_dense, ppl_reduced, loss, low, high, kl, kl_error, top1;
    double ttft_dense, ttft, ttft_p95, reduce, share_of_saving, decode_dense, decode, work;
} figures;

/* The share asked for: of tokens where hidden states are reduced, else of entries. */
static double asked(const reduce_setting *s)
{
    if (s->dense) return 1;
    if (s->r.keep > 0 && s->r.keep < 1) return s->r.keep;
    if (s->r.kv_keep > 0) return s->r.kv_keep;
    return NAN;
}

static bool asks_for_tokens(const reduce_setting *s)
{
    return !s->dense && ((s->r.keep > 0 && s->r.keep < 1) || s->r.keep_tokens > 0);
}

static figures figures_of(const measuring *m, result *r)
{
    double n = (double)r->n;
    figures f = {.keep_asked = asked(r->setting), .kv_keep = r->kv_keep / n};
    result *d = (result *)&m->dense;
    f.keep_achieved = asks_for_tokens(r->setting) ? r->token_keep / n : f.kv_keep;
    if (asks_for_tokens(r->setting) && r->setting->r.keep_tokens > 0) f.keep_asked = (double)r->setting->r.keep_tokens / (double)m->plan.context;
    f.ppl_dense = exp(tally_mean(&r->agree.nll_dense).mean);
    f.ppl_reduced = exp(tally_mean(&r->agree.nll).mean);
    f.loss = agreement_loss(&r->agree);
    agreement_interval(&r->agree, &f.low, &f.high);
    f.kl = tally_mean(&r->agree.kl).mean;
    f.kl_error = tally_mean(&r->agree.kl).error;
    f.top1 = agreement_top1(&r->agree);
    f.ttft_dense = median_of(d->ttft, d->n);
    f.ttft = median_of(r->ttft, r->n);
    f.ttft_p95 = percentile_of(r->ttft, r->n, 0.95);
    f.reduce = median_of(r->reduce, r->n);
    f.share_of_saving = f.ttft_dense > f.ttft ? f.reduce / (f.ttft_dense - f.ttft + f.reduce) : NAN;
    f.decode_dense = median_of(d->decode, d->n);
    f.decode = median_of(r->decode, r->n);
    f.work = r->multiply_adds_dense > 0 ? r->multiply_adds / r->multiply_adds_dense : 1;
    return f;
}

/* ------------------------------------------------------------------ report */

static void print_heading(const measuring *m)
{
    const reduce_eval *e = m->e;
    char a[UI_WORD], b[UI_WORD], c[UI_WORD];
    result *d = (result *)&m->dense;
    printf("%s: %zu document%s, %zu tokens of context, %zu scored\n", e->path, m->n_docs, m->n_docs == 1 ? "" : "s",
           m->plan.context, m->plan.score);
    printf("dense: perplexity %.4f, TTFT %s (P95 %s), KV %s", exp(tally_mean(&d->agree.nll).mean),
           ui_seconds(a, median_of(d->ttft, d->n)), ui_seconds(b, percentile_of(d->ttft, d->n, 0.95)),
           ui_bytes(c, (double)d->kv_bytes));
    if (m->plan.decode) printf(", decode %.2f ms a token", 1e3 * median_of(d->decode, d->n));
    printf(", peak RSS %s\n", ui_bytes(a, (double)d->peak_rss));
}

static void print_row(const measuring *m, result *r)
{
    figures f = figures_of(m, r);
    char a[UI_WORD], b[UI_WORD], share[UI_WORD] = "";
    printf("%s%s%s\n", ui_style(stdout, UI_BOLD), r->setting->name, ui_style(stdout, UI_PLAIN));
    printf("  keep        ");
    if (isfinite(f.keep_asked)) printf("asked %.3f, ", f.keep_asked);
    printf("achieved %.4f; tokens at the last layer %.3f, KV entries %.3f, work %.3f\n", f.keep_achieved,
           r->token_keep / (double)r->n, f.kv_keep, f.work);
    printf("  by layer    ");
    for (int32_t l = 0; l < m->info.n_layers; l++) printf("%s%.2f", l ? " " : "", r->layers[l] / (double)r->n);
    printf("\n  perplexity  %.4f, %+.2f %% (95 %%: %+.2f to %+.2f)\n", f.ppl_reduced, 100 * f.loss, 100 * f.low, 100 * f.high);
    printf("  mean KL     %.5f ± %.5f, largest %.3f; same top token %.2f %%\n", f.kl, 1.96 * f.kl_error, r->agree.largest_kl, 100 * f.top1);
    if (isfinite(f.share_of_saving)) snprintf(share, sizeof share, ", %.1f %% of what it saves", 100 * f.share_of_saving);
    printf("  TTFT        %s (P95 %s), %.2f of dense; reduction itself %s%s\n", ui_seconds(a, f.ttft),
           ui_seconds(b, f.ttft_p95), f.ttft / f.ttft_dense, f.reduce < 0.001 ? "under 1 ms" : ui_seconds((char[UI_WORD]){0}, f.reduce), share);
    if (m->plan.decode) printf("  decode      %.2f ms a token, %.2f of dense\n", 1e3 * f.decode, f.decode / f.decode_dense);
    printf("  memory      KV %s, %.3f of dense; peak RSS %s\n", ui_bytes(a, (double)r->kv_bytes),
           (double)r->kv_bytes / (double)m->dense.kv_bytes, ui_bytes(b, (double)r->peak_rss));
    if (r->dense_because) printf("  dense       in some documents: %s\n", r->dense_because);
}

static void print_table(const measuring *m)
{
    int width = 7;
    for (size_t i = 0; i < m->e->n; i++)
        if ((int)strlen(m->results[i].setting->name) > width) width = (int)strlen(m->results[i].setting->name);
    printf("%s%-*s %6s %6s %9s %8s %15s %8s %6s %7s %6s %7s %7s %8s %9s%s\n", ui_style(stdout, UI_BOLD), width, "setting", "asked", "kept",
           "ppl", "Δ %", "95 %", "KL", "top1 %", "TTFT ms", "ratio", "P95 ms", "red. ms", "dec. ms", "KV", ui_style(stdout, UI_PLAIN));
    for (size_t i = 0; i < m->e->n; i++) {
        result *r = &m->results[i];
        figures f = figures_of(m, r);
        char interval[32], kv[UI_WORD], keep[16] = "-";
        snprintf(interval, sizeof interval, "%+.2f..%+.2f", 100 * f.low, 100 * f.high);
        if (isfinite(f.keep_asked)) snprintf(keep, sizeof keep, "%.3f", f.keep_asked);
        printf("%-*s %6s %6.3f %9.4f %+7.2f %15s %8.5f %6.2f %7.0f %6.3f %7.0f %7.1f %8.2f %9s%s\n", width, r->setting->name, keep,
               f.keep_achieved, f.ppl_reduced, 100 * f.loss, interval, f.kl, 100 * f.top1, 1e3 * f.ttft,
               f.ttft / f.ttft_dense, 1e3 * f.ttft_p95, 1e3 * f.reduce, 1e3 * f.decode, ui_bytes(kv, (double)r->kv_bytes),
               r->dense_because ? " (dense)" : "");
    }
}

static json_t *json_of(const measuring *m, result *r)
{
    figures f = figures_of(m, r);
    json_t *j = json_object(), *layers = json_array();
    for (int32_t l = 0; l < m->info.n_layers; l++) json_array_append_new(layers, json_number(r->layers[l] / (double)r->n));
    json_object_set_new(j, "setting", json_text(r->setting->name));
    json_object_set_new(j, "keep_asked", json_number(f.keep_asked));
    json_object_set_new(j, "keep_achieved", json_number(f.keep_achieved));
    json_object_set_new(j, "token_keep", json_number(r->token_keep / (double)r->n));
    json_object_set_new(j, "kv_keep", json_number(f.kv_keep));
    json_object_set_new(j, "kv_keep_by_layer", layers);
    json_object_set_new(j, "work", json_number(f.work));
    json_object_set_new(j, "ppl_dense", json_number(f.ppl_dense));
    json_object_set_new(j, "ppl_reduced", json_number(f.ppl_reduced));
    json_object_set_new(j, "ppl_loss", json_number(f.loss));
    json_object_set_new(j, "ppl_loss_low", json_number(f.low));
    json_object_set_new(j, "ppl_loss_high", json_number(f.high));
    json_object_set_new(j, "kl", json_number(f.kl));
    json_object_set_new(j, "kl_error", json_number(f.kl_error));
    json_object_set_new(j, "top1", json_number(f.top1));
    json_object_set_new(j, "ttft_ms_dense", json_number(1e3 * f.ttft_dense));
    json_object_set_new(j, "ttft_ms", json_number(1e3 * f.ttft));
    json_object_set_new(j, "ttft_ms_p95", json_number(1e3 * f.ttft_p95));
    json_object_set_new(j, "merge_ms", json_number(1e3 * f.reduce));
    json_object_set_new(j, "merge_share_of_saving", json_number(f.share_of_saving));
    json_object_set_new(j, "decode_ms_dense", json_number(1e3 * f.decode_dense));
    json_object_set_new(j, "decode_ms", json_number(1e3 * f.decode));
    json_object_set_new(j, "kv_bytes_dense", json_integer((json_int_t)m->dense.kv_bytes));
    json_object_set_new(j, "kv_bytes", json_integer((json_int_t)r->kv_bytes));
    json_object_set_new(j, "rss_bytes", json_integer((json_int_t)r->peak_rss));
    json_object_set_new(j, "dense_because", r->dense_because ? json_text(r->dense_because) : json_null());
    return j;
}

static int print_json(const measuring *m)
{
    const reduce_eval *e = m->e;
    json_t *j = e->sweep ? json_object() : json_of(m, &m->results[0]);
    json_object_set_new(j, "model", json_text(e->word));
    json_object_set_new(j, "text", json_text(e->path));
    json_object_set_new(j, "context", json_integer((json_int_t)m->plan.context));
    json_object_set_new(j, "score", json_integer((json_int_t)m->plan.score));
    json_object_set_new(j, "documents", json_integer((json_int_t)m->n_docs));
    json_object_set_new(j, "kernels", json_text(m->info.isa));
    json_object_set_new(j, "version", json_text(ftk_version()));
    if (e->sweep) {
        json_t *rows = json_array();
        for (size_t i = 0; i < e->n; i++) json_array_append_new(rows, json_of(m, &m->results[i]));
        json_object_set_new(j, "rows", rows);
    }
    return json_line(j);
}

static int write_csv(const measuring *m)
{
    FILE *f = fopen(m->e->csv, "w");
    if (f) fprintf(f, "setting,context,documents,keep_asked,keep_achieved,token_keep,kv_keep,work,ppl_dense,ppl_reduced,ppl_loss,ppl_loss_low,ppl_loss_high,kl,top1,"
                      "ttft_ms_dense,ttft_ms,ttft_ms_p95,merge_ms,decode_ms_dense,decode_ms,kv_bytes_dense,kv_bytes,rss_bytes\n");
    for (size_t i = 0; f && i < m->e->n; i++) {
        result *r = &m->results[i];
        figures g = figures_of(m, r);
        char keep[32] = "";
        if (isfinite(g.keep_asked)) snprintf(keep, sizeof keep, "%.6g", g.keep_asked);
        fprintf(f, "\"%s\",%zu,%zu,%s,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%llu,%llu,%llu\n",
                r->setting->name, m->plan.context, m->n_docs, keep, g.keep_achieved, r->token_keep / (double)r->n, g.kv_keep, g.work, g.ppl_dense,
                g.ppl_reduced, g.loss, g.low, g.high, g.kl, g.top1, 1e3 * g.ttft_dense, 1e3 * g.ttft, 1e3 * g.ttft_p95, 1e3 * g.reduce,
                1e3 * g.decode_dense, 1e3 * g.decode, (unsigned long long)m->dense.kv_bytes, (unsigned long long)r->kv_bytes,
                (unsigned long long)r->peak_rss);
    }
    if (f && fclose(f) == 0) return STATUS_GO_ON;
    ui_error("%s: %s", m->e->csv, strerror(errno));
    return STATUS_FAILURE;
}

/* The setting without its numbers: what points of one line have in common. */
static char *series_of(const char *name)
{
    char *copy = strdup(name), *out = calloc(strlen(name) + 16, 1), *rest = copy;
    for (char *item; copy && out && (item = strsep(&rest, ",")) != NULL;) {
        const char *equals = strchr(item, '=');
        if (equals && equals[1] && strspn(equals + 1, "0123456789.kKmMG") == strlen(equals + 1)) continue;
        if (*out) strcat(out, ",");
        strcat(out, item);
    }
    free(copy);
    if (out && !*out) strcpy(out, "own default");
    return out;
}

static int write_svg(const measuring *m)
{
    size_t n = m->e->n;
    plot_point *by_time = calloc(n + 1, sizeof *by_time), *by_bytes = calloc(n + 1, sizeof *by_bytes);
    char **series = calloc(n + 1, sizeof *series);
    int status = by_time && by_bytes && series ? STATUS_GO_ON : STATUS_FAILURE;
    for (size_t i = 0; status == STATUS_GO_ON && i < n; i++) {
        result *r = &m->results[i];
        figures f = figures_of(m, r);
        series[i] = series_of(r->setting->name);
        plot_point p = {f.ttft / f.ttft_dense, 100 * f.loss, 100 * f.low, 100 * f.high, r->setting->name, series[i]};
        if (!isfinite(p.low) || !isfinite(p.high)) p.low = p.high = p.y;
        by_time[i] = by_bytes[i] = p;
        by_bytes[i].x = (double)r->kv_bytes / (double)m->dense.kv_bytes;
    }
    plot_point origin = {1, 0, 0, 0, "dense", "dense"};
    if (status == STATUS_GO_ON) {
        by_time[n] = by_bytes[n] = origin;
        plot_panel panels[] = {{"Quality against the time to the first token", "TTFT, share of dense", "perplexity, % above dense", by_time, n + 1, false, false},
                               {"Quality against the memory of keys and values", "KV bytes, share of dense", "perplexity, % above dense", by_bytes, n + 1, false, false}};
        char title[512];
        snprintf(title, sizeof title, "%s, %zu tokens of context, %zu documents of %s", m->e->word, m->plan.context, m->n_docs, m->e->path);
        status = plot_write(m->e->svg, title, panels, 2);
    }
    for (size_t i = 0; series && i < n; i++) free(series[i]);
    free(series);
    free(by_time);
    free(by_bytes);
    return status;
}

static int report(const measuring *m)
{
    const reduce_eval *e = m->e;
    int status = STATUS_GO_ON;
    if (e->json) status = print_json(m) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
    else {
        print_heading(m);
        if (e->sweep) print_table(m);
        else print_row(m, &m->results[0]);
    }
    if (status == STATUS_GO_ON && e->csv) status = write_csv(m);
    if (status == STATUS_GO_ON && e->svg) status = write_svg(m);
    return status;
}

int reduce_eval_run(const reduce_eval *e)
{
    static const reduce_setting nothing = {.dense = true};
    measuring m = {.e = e, .plan = {.model = e->side.model, .session = e->side.session, .context = (size_t)e->plan.context,
                                    .score = (size_t)e->plan.score, .decode = (size_t)e->decode}};
    token_list docs = {0};
    ftk_model_get_info(e->side.model, &m.info);
    size_t rows = m.plan.score * (size_t)m.info.n_vocab, width = m.plan.context + m.plan.score;
    int status = perplexity_cut(&e->plan, e->side.model, e->path, &docs, &m.n_docs);
    if (status == STATUS_GO_ON) {
        m.truth = malloc(rows * sizeof *m.truth);
        m.logits = malloc(rows * sizeof *m.logits);
        m.facts = malloc(m.plan.score * sizeof *m.facts);
        m.results = calloc(e->n, sizeof *m.results);
        bool fine = m.truth && m.logits && m.facts && m.results && open_result(&m.dense, &nothing, m.n_docs, (size_t)m.info.n_layers);
        for (size_t s = 0; fine && s < e->n; s++) fine = open_result(&m.results[s], &e->settings[s], m.n_docs, (size_t)m.info.n_layers);
        if (!fine) {
            ui_error("no memory for %zu rows of logits: a smaller --score needs less", 2 * m.plan.score);
            status = STATUS_FAILURE;
        }
    }
    if (status == STATUS_GO_ON && (int64_t)width > m.info.train_context)
        ui_warn("context + score is %zu tokens, the model was trained for %d", width, m.info.train_context);
    for (size_t d = 0; status == STATUS_GO_ON && d < m.n_docs; d++) status = measure_document(&m, docs.ids + d * width, d);
    ui_progress_clear(&m.progress);
    if (status == STATUS_GO_ON) status = report(&m);
    close_result(&m.dense);
    for (size_t s = 0; m.results && s < e->n; s++) close_result(&m.results[s]);
    free(m.results);
    free(m.facts);
    free(m.truth);
    free(m.logits);
    tokens_free(&docs);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* Readings and what is summed over them. */
#include "reading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "interrupt.h"
#include "machine.h"
#include "ui.h"

/* ---------------------------------------------------------------- readings */

/* Ctrl-C ends the call that runs. */
static ftk_status watched_prefill(ftk_session *s, const ftk_token *ids, size_t n, ftk_error *e)
{
    interrupt_watch(s);
    ftk_status status = ftk_prefill(s, ids, n, e);
    interrupt_watch(NULL);
    return status;
}

static ftk_status score(ftk_session *s, const ftk_token *ids, size_t n, bool one_by_one, size_t n_vocab, float *logits,
                        ftk_error *e)
{
    ftk_status status = FTK_OK;
    interrupt_watch(s);
    if (!one_by_one && n) status = ftk_score(s, ids, n, logits, e);
    for (size_t i = 0; one_by_one && status == FTK_OK && i < n; i++) {
        status = ftk_decode(s, ids[i], e);
        if (status == FTK_OK) memcpy(logits + i * n_vocab, ftk_logits(s, NULL), n_vocab * sizeof *logits);
    }
    interrupt_watch(NULL);
    return status;
}

/* Seconds of a token; which tokens they are does not matter. */
static ftk_status time_decode(ftk_session *s, const ftk_token *ids, size_t n, double *seconds, ftk_error *e)
{
    ftk_status status = FTK_OK;
    double start = ui_now();
    interrupt_watch(s);
    for (size_t i = 0; status == FTK_OK && i < n; i++) status = ftk_decode(s, ids[i], e);
    interrupt_watch(NULL);
    *seconds = n ? (ui_now() - start) / (double)n : 0;
    return status;
}

static void take_counts(reading *out, const ftk_session *s, const ftk_model_info *info, double *layers)
{
    ftk_stats stats;
    ftk_reduced reduced = {0};
    ftk_session_reduced(s, &reduced);
    ftk_session_stats(s, &stats);
    out->kv_bytes = stats.kv_bytes;
    out->reduce_seconds = reduced.seconds;
    out->tokens_in = reduced.tokens_in;
    out->tokens_out = reduced.tokens_out;
    out->multiply_adds = reduced.multiply_adds;
    out->multiply_adds_dense = reduced.multiply_adds_dense;
    out->dense_because = reduced.dense_because;
    double length = (double)ftk_session_length(s), sum = 0;
    for (int32_t l = 0; l < info->n_layers; l++) {
        double entries = 0;
        for (int32_t h = 0; reduced.kv_entries && h < info->n_kv_heads; h++)
            entries += reduced.kv_entries[l * info->n_kv_heads + h];
        if (!reduced.kv_entries) entries = length * info->n_kv_heads;
        double share = entries / (length * info->n_kv_heads);
        if (layers) layers[l] += share;
        sum += share;
    }
    out->kv_keep = sum / info->n_layers;
}

int reading_take(reading *out, const reading_plan *plan, const ftk_reduction *r, const ftk_token *ids, float *logits,
                 double *layers)
{
    ftk_error e = {0};
    ftk_session *s = NULL;
    ftk_model_info info;
    reading now = {0};
    ftk_session_opts o = plan->session;
    o.size = sizeof o;
    o.context = (int32_t)(plan->context + plan->score + plan->decode);
    ftk_model_get_info(plan->model, &info);
    size_t width = (size_t)info.n_vocab;
    bool one_by_one = r && ((r->read_keep > 0 && r->read_keep < 1) || r->read_pages > 0);
    machine_reset_peak_rss();
    ftk_status status = ftk_session_open(&s, plan->model, &o, &e);
    if (status == FTK_OK && r) status = ftk_session_reduce(s, r, &e);
    double start = ui_now();
    if (status == FTK_OK) status = watched_prefill(s, ids, plan->context, &e);
    now.ttft = ui_now() - start;
    if (status == FTK_OK) {
        memcpy(logits, ftk_logits(s, NULL), width * sizeof *logits);
        now.peak_rss = machine_peak_rss();
        take_counts(&now, s, &info, layers);
        status = score(s, ids + plan->context, plan->score - 1, one_by_one, width, logits + width, &e);
    }
    size_t again = plan->decode < plan->score ? plan->decode : plan->score;
    if (status == FTK_OK) status = time_decode(s, ids + plan->context, again, &now.decode, &e);
    ftk_session_close(s);
    if (status != FTK_OK) return ui_fail(NULL, &e);
    *out = now;
    return interrupt_count() ? STATUS_INTERRUPTED : STATUS_GO_ON;
}

/* --------------------------------------------------------------- agreement */

void agreement_add(agreement *a, const float *logits, const float *dense, const row_facts *dense_facts,
                   const ftk_token *targets, size_t n, size_t n_vocab)
{
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * n_vocab, *truth = dense + i * n_vocab;
        row_facts f = row_of(row, n_vocab);
        double nll = f.log_sum - row[targets[i]], nll_dense = dense_facts[i].log_sum - truth[targets[i]];
        double kl = kl_of(truth, dense_facts[i], row, f, n_vocab);
        tally_add(&a->nll, nll);
        tally_add(&a->nll_dense, nll_dense);
        tally_add(&a->difference, nll - nll_dense);
        tally_add(&a->kl, kl);
        if (kl > a->largest_kl) a->largest_kl = kl;
        a->same_top += f.top == dense_facts[i].top;
    }
    tally_close_document(&a->nll);
    tally_close_document(&a->nll_dense);
    tally_close_document(&a->difference);
    tally_close_document(&a->kl);
}

double agreement_top1(const agreement *a)
{
    return a->kl.n ? (double)a->same_top / (double)a->kl.n : 0;
}

double agreement_loss(const agreement *a)
{
    return exp(tally_mean(&a->difference).mean) - 1;
}

void agreement_interval(const agreement *a, double *low, double *high)
{
    mean_error d = tally_mean(&a->difference);
    *low = exp(d.mean - 1.96 * d.error) - 1;
    *high = exp(d.mean + 1.96 * d.error) - 1;
}

/* -------------------------------------------------------------- order */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n == 0 ? 0 : n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double percentile_of(double *values, size_t n, double share)
{
    qsort(values, n, sizeof *values, by_value);
    size_t rank = (size_t)ceil(share * (double)n);
    return n == 0 ? 0 : values[(rank ? rank : 1) - 1];
}

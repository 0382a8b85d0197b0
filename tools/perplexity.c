// SPDX-License-Identifier: Apache-2.0
/* The evaluation loop behind `eval` and `quantize --eval`. Sums are in double. */
#include "perplexity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "interrupt.h"
#include "ui.h"

enum { ROWS = 32 }; /* rows of logits held at once */

double perplexity_value(const perplexity *p)
{
    return exp(p->nll.mean);
}

double perplexity_factor(const perplexity *p)
{
    return exp(1.96 * p->nll.error);
}

/* ---------------------------------------------------------------- the loop */

typedef struct evaluation {
    const perplexity_plan *plan;
    size_t n_sides, n_vocab;
    ftk_session *sessions[2];
    float *logits[2]; /* [ROWS][n_vocab] */
    tally nll[2], difference, kl;
    double largest_kl, seconds[2];
    size_t same_top;
    ui_progress progress;
    uint64_t total; /* tokens of all documents */
} evaluation;

static void take_row(evaluation *v, size_t row, ftk_token target)
{
    row_facts facts[2];
    double nll[2] = {0};
    for (size_t s = 0; s < v->n_sides; s++) {
        const float *logits = v->logits[s] + row * v->n_vocab;
        facts[s] = row_of(logits, v->n_vocab);
        nll[s] = facts[s].log_sum - logits[target];
        tally_add(&v->nll[s], nll[s]);
    }
    if (v->n_sides == 1) return;
    double kl = kl_of(v->logits[1] + row * v->n_vocab, facts[1], v->logits[0] + row * v->n_vocab, facts[0], v->n_vocab);
    tally_add(&v->difference, nll[0] - nll[1]);
    tally_add(&v->kl, kl);
    if (kl > v->largest_kl) v->largest_kl = kl;
    v->same_top += facts[0].top == facts[1].top;
}

/* One call of the library on one side, cancelled by Ctrl-C. */
static int call(evaluation *v, size_t side, const ftk_token *ids, size_t n, float *logits)
{
    ftk_error e = {0};
    ftk_session *s = v->sessions[side];
    double start = ui_now();
    interrupt_watch(s);
    ftk_status status = logits ? ftk_score(s, ids, n, logits, &e) : ftk_prefill(s, ids, n, &e);
    interrupt_watch(NULL);
    v->seconds[side] += ui_now() - start;
    return status == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
}

static int evaluate_document(evaluation *v, const ftk_token *ids, uint64_t done)
{
    size_t context = (size_t)v->plan->context, score = (size_t)v->plan->score;
    int status = STATUS_GO_ON;
    for (size_t s = 0; status == STATUS_GO_ON && s < v->n_sides; s++) {
        ftk_error e = {0};
        if (ftk_session_rewind(v->sessions[s], 0, &e) != FTK_OK) return ui_fail(NULL, &e);
        status = call(v, s, ids, context, NULL);
        if (status == STATUS_GO_ON) memcpy(v->logits[s], ftk_logits(v->sessions[s], NULL), v->n_vocab * sizeof(float));
    }
    if (status != STATUS_GO_ON) return status;
    take_row(v, 0, ids[context]);
    for (size_t at = 0; at + 1 < score;) { /* the token at `at` predicts the one after it */
        size_t take = score - 1 - at < ROWS ? score - 1 - at : ROWS;
        if (!ui_on_progress(&v->progress, "evaluating", done + context + at, v->total)) return STATUS_INTERRUPTED;
        for (size_t s = 0; status == STATUS_GO_ON && s < v->n_sides; s++)
            status = call(v, s, ids + context + at, take, v->logits[s]);
        if (status != STATUS_GO_ON) return status;
        for (size_t row = 0; row < take; row++) take_row(v, row, ids[context + at + row + 1]);
        at += take;
    }
    for (size_t s = 0; s < v->n_sides; s++) tally_close_document(&v->nll[s]);
    if (v->n_sides == 2) {
        tally_close_document(&v->difference);
        tally_close_document(&v->kl);
    }
    return STATUS_GO_ON;
}

static int open_sides(evaluation *v, const perplexity_side *sides[2])
{
    ftk_model_info info[2];
    for (size_t s = 0; s < v->n_sides; s++) {
        ftk_error e = {0};
        ftk_session_opts o = sides[s]->session;
        o.size = sizeof o;
        o.context = (int32_t)(v->plan->context + v->plan->score);
        ftk_model_get_info(sides[s]->model, &info[s]);
        if (s == 1 && info[1].n_vocab != info[0].n_vocab) {
            ui_error("--against: the models' vocabularies differ (%d and %d tokens)", info[0].n_vocab, info[1].n_vocab);
            return STATUS_FAILURE;
        }
        v->n_vocab = (size_t)info[s].n_vocab;
        if (ftk_session_open(&v->sessions[s], sides[s]->model, &o, &e) != FTK_OK) return ui_fail(NULL, &e);
        v->logits[s] = calloc(ROWS * v->n_vocab, sizeof(float));
        if (!v->logits[s]) {
            ui_error("no memory for %d rows of logits", ROWS);
            return STATUS_FAILURE;
        }
        if (o.context > info[s].train_context)
            ui_warn("context + score is %d tokens, the model was trained for %d", o.context, info[s].train_context);
    }
    return STATUS_GO_ON;
}

int perplexity_cut(const perplexity_plan *plan, const ftk_model *m, const char *path, token_list *docs, size_t *n_docs)
{
    text_buffer input = {0};
    token_list all = {0};
    bool bos = tokens_want_bos(m);
    size_t width = (size_t)(plan->context + plan->score), own = width - bos;
    size_t stride = plan->stride ? (size_t)plan->stride : width;
    int status = text_read(&input, path);
    if (status == STATUS_GO_ON) status = text_check(path, input.data, input.len);
    if (status == STATUS_GO_ON) status = tokens_of(&all, m, path, input.data, input.len, 0);
    if (status == STATUS_GO_ON && all.n < own) {
        ui_error("%s: has %zu tokens, --context %lld and --score %lld need %zu", path, all.n,
                 (long long)plan->context, (long long)plan->score, own);
        status = STATUS_FAILURE;
    }
    *n_docs = 0;
    for (size_t at = 0; status == STATUS_GO_ON && at + own <= all.n; at += stride) {
        if (plan->max_docs && *n_docs == (size_t)plan->max_docs) break;
        ftk_token first = ftk_token_bos(m);
        if ((bos && !tokens_add(docs, &first, 1)) || !tokens_add(docs, all.ids + at, own)) {
            ui_error("out of memory");
            status = STATUS_FAILURE;
        }
        ++*n_docs;
    }
    text_free(&input);
    tokens_free(&all);
    return status;
}

int perplexity_run(const perplexity_plan *plan, const char *path, const perplexity_side *side,
                   const perplexity_side *other, perplexity *out, comparison *compared)
{
    evaluation v = {.plan = plan, .n_sides = other ? 2 : 1, .progress = {.unit = "tokens"}};
    const perplexity_side *sides[2] = {side, other};
    token_list docs = {0};
    size_t n_docs = 0, width = (size_t)(plan->context + plan->score);
    int status = perplexity_cut(plan, side->model, path, &docs, &n_docs);
    if (status == STATUS_GO_ON && other && other->model != side->model) {
        token_list same = {0};
        status = perplexity_cut(plan, other->model, path, &same, &n_docs);
        if (status == STATUS_GO_ON && (same.n != docs.n || memcmp(same.ids, docs.ids, docs.n * sizeof *docs.ids))) {
            ui_error("--against: the models turn the text into different tokens");
            status = STATUS_FAILURE;
        }
        tokens_free(&same);
    }
    v.total = n_docs * width;
    if (status == STATUS_GO_ON) status = open_sides(&v, sides);
    for (size_t d = 0; status == STATUS_GO_ON && d < n_docs; d++) {
        status = evaluate_document(&v, docs.ids + d * width, d * width);
        if (!ui_on_progress(&v.progress, "evaluating", (d + 1) * width, v.total) && status == STATUS_GO_ON)
            status = STATUS_INTERRUPTED;
    }
    ui_progress_clear(&v.progress);
    perplexity results[2];
    for (size_t s = 0; s < 2; s++) {
        results[s] = (perplexity){.nll = tally_mean(&v.nll[s]), .n = v.nll[s].n, .n_docs = v.nll[s].n_docs,
                                  .seconds = v.seconds[s]};
        ftk_session_close(v.sessions[s]);
        free(v.logits[s]);
    }
    tokens_free(&docs);
    if (status != STATUS_GO_ON) return status;
    *out = results[0];
    if (other)
        *compared = (comparison){.other = results[1], .difference = tally_mean(&v.difference), .kl = tally_mean(&v.kl),
                                 .largest_kl = v.largest_kl, .same_top = (double)v.same_top / (double)v.kl.n};
    return STATUS_GO_ON;
}

// SPDX-License-Identifier: Apache-2.0
/* Measuring settings against dense logits that are computed once, and remembering what came of it. */
#include "tune.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "interrupt.h"
#include "ui.h"

/* ------------------------------------------------------------------ bounds */

const char *tune_read_bound(const char *text, tune_bound *out)
{
    static const char *const names[] = {"ppl", "kl", "top1"};
    tune_bound b = {0};
    size_t len = strcspn(text, " =");
    int which = 0;
    while (which < 3 && (strlen(names[which]) != len || strncmp(names[which], text, len) != 0)) which++;
    if (which == 3 || !text[len]) return "must be \"ppl 1%\", \"kl 0.02\" or \"top1 97%\"";
    char *end;
    b.what = (tune_measure)which;
    b.value = strtod(text + len + 1, &end);
    bool percent = *end == '%';
    if (end == text + len + 1 || end[percent]) return "must end in a number, or a number and %";
    if (percent) b.value /= 100;
    else if (b.what != BOUND_KL) return "needs a % behind the number";
    if (!(b.value > 0) || b.value > (b.what == BOUND_TOP1 ? 1 : 10)) return "has a number out of range";
    *out = b;
    return NULL;
}

double tune_use(const tune_bound *b, const tune_figures *f)
{
    switch (b->what) {
    case BOUND_PPL: return f->loss / b->value;
    case BOUND_KL: return f->kl / b->value;
    case BOUND_TOP1: return (1 - f->top1) / fmax(1 - b->value, 1e-9);
    }
    return INFINITY;
}

bool tune_meets(const tune_bound *b, const tune_figures *f)
{
    return tune_use(b, f) <= 1;
}

/* ------------------------------------------------------------------ memory */

static uint64_t mix(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* What a setting does, as a number. The struct is zeroed by its makers, so that its gaps are equal too. */
static uint64_t key_of(const tuner *t, const ftk_reduction *r, bool check)
{
    ftk_reduction flat = *r;
    size_t cells = (size_t)t->info.n_layers * (size_t)t->info.n_kv_heads;
    uint64_t hash = mix(0xcbf29ce484222325u, &check, sizeof check);
    flat.layers = flat.windows = NULL;
    flat.budgets = NULL;
    flat.protect = NULL;
    hash = mix(hash, &flat, sizeof flat);
    if (r->layers) hash = mix(hash, r->layers, r->n_layers_listed * sizeof *r->layers);
    if (r->budgets) hash = mix(hash, r->budgets, cells * sizeof *r->budgets);
    if (r->windows) hash = mix(mix(hash, "w", 1), r->windows, cells * sizeof *r->windows);
    return hash;
}

static bool remember(tuner *t, uint64_t key, const tune_figures *f)
{
    tune_trial *grown = realloc(t->trials, (t->n_trials + 1) * sizeof *grown);
    if (!grown) return false;
    t->trials = grown;
    t->trials[t->n_trials++] = (tune_trial){key, *f};
    return true;
}

static const char line_form[] = "%" SCNx64 " %" SCNx64 " %lf %lf %lf %lf %lf %lf %lf";

/* Lines "identity key figures..."; those of another identity, or cut off, are passed over. */
static int read_state(tuner *t)
{
    FILE *f = t->state ? fopen(t->state, "r") : NULL;
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        uint64_t identity, key;
        tune_figures g;
        if (!strchr(line, '\n') || sscanf(line, line_form, &identity, &key, &g.kl, &g.loss, &g.low, &g.high, &g.top1, &g.kv_keep, &g.work) != 9)
            continue;
        if (identity == t->identity && !remember(t, key, &g)) break;
    }
    if (f) fclose(f);
    if (t->n_trials) ui_note("%s: goes on after %zu measurements", t->state, t->n_trials);
    return STATUS_GO_ON;
}

static int write_state(tuner *t, uint64_t key, const tune_figures *f)
{
    if (!remember(t, key, f)) return STATUS_FAILURE;
    if (!t->state) return STATUS_GO_ON;
    FILE *out = fopen(t->state, "a");
    if (out)
        fprintf(out, "%" PRIx64 " %" PRIx64 " %.9g %.9g %.9g %.9g %.9g %.9g %.9g\n", t->identity, key, f->kl, f->loss, f->low, f->high,
                f->top1, f->kv_keep, f->work);
    if (out && fclose(out) == 0) return STATUS_GO_ON;
    ui_error("%s: %s", t->state, strerror(errno));
    return STATUS_FAILURE;
}

/* --------------------------------------------------------------- measuring */

/* One window read under r, added to the sums. */
static int add_window(tuner *t, const ftk_reduction *r, size_t doc, const float *truth, const row_facts *facts, agreement *a,
                      tune_figures *sums)
{
    size_t width = t->plan.context + t->plan.score;
    const ftk_token *ids = t->docs.ids + doc * width;
    reading one;
    int status = reading_take(&one, &t->plan, r, ids, t->logits, NULL);
    if (status != STATUS_GO_ON) return status;
    agreement_add(a, t->logits, truth, facts, ids + t->plan.context, t->plan.score, (size_t)t->info.n_vocab);
    sums->kv_keep += one.kv_keep;
    sums->work += one.multiply_adds_dense ? (double)one.multiply_adds / (double)one.multiply_adds_dense : 1;
    return STATUS_GO_ON;
}

/* Dense logits of a window and what they say. */
static int read_dense(tuner *t, size_t doc, float *truth, row_facts *facts)
{
    size_t width = t->plan.context + t->plan.score, n_vocab = (size_t)t->info.n_vocab;
    reading one;
    int status = reading_take(&one, &t->plan, NULL, t->docs.ids + doc * width, truth, NULL);
    for (size_t i = 0; status == STATUS_GO_ON && i < t->plan.score; i++) facts[i] = row_of(truth + i * n_vocab, n_vocab);
    return status;
}

static tune_figures figures_of(const agreement *a, const tune_figures *sums, size_t n)
{
    tune_figures f = {.kl = tally_mean(&a->kl).mean, .loss = agreement_loss(a), .top1 = agreement_top1(a),
                      .kv_keep = sums->kv_keep / (double)n, .work = sums->work / (double)n};
    agreement_interval(a, &f.low, &f.high);
    return f;
}

int tuner_measure(tuner *t, const ftk_reduction *r, bool check, tune_figures *out)
{
    uint64_t key = key_of(t, r, check);
    for (size_t i = 0; i < t->n_trials; i++)
        if (t->trials[i].key == key) {
            *out = t->trials[i].figures;
            t->remembered++;
            return STATUS_GO_ON;
        }
    agreement a = {0};
    tune_figures sums = {0};
    size_t rows = t->plan.score * (size_t)t->info.n_vocab, n = check ? t->n_check : t->n_tune;
    int status = STATUS_GO_ON;
    double start = ui_now();
    for (size_t d = 0; status == STATUS_GO_ON && d < n; d++) {
        if (check) { /* too many windows to keep their logits */
            row_facts *facts = t->facts + t->n_tune * t->plan.score;
            status = read_dense(t, t->n_tune + d, t->other, facts);
            if (status == STATUS_GO_ON) status = add_window(t, r, t->n_tune + d, t->other, facts, &a, &sums);
        } else status = add_window(t, r, d, t->truth + d * rows, t->facts + d * t->plan.score, &a, &sums);
    }
    if (status != STATUS_GO_ON) return status;
    t->seconds += ui_now() - start;
    t->measured++;
    *out = figures_of(&a, &sums, n);
    return write_state(t, key, out);
}

int tuner_time(const tuner *t, const ftk_reduction *r, size_t n, int rounds, double seconds[2], uint64_t bytes[2])
{
    enum { MOST = 16 };
    double taken[2][MOST];
    size_t width = t->plan.context + t->plan.score, all = (t->n_tune + t->n_check) * width;
    ftk_token *ids = malloc((n + 1) * sizeof *ids);
    float *logits = malloc((size_t)t->info.n_vocab * sizeof *logits);
    reading_plan plan = t->plan;
    plan.context = n;
    plan.score = 1;
    plan.decode = 0;
    int status = ids && logits ? STATUS_GO_ON : STATUS_FAILURE;
    for (size_t i = 0; ids && i <= n; i++) ids[i] = t->docs.ids[i % all];
    if (rounds > MOST) rounds = MOST;
    for (int i = 0; status == STATUS_GO_ON && i < rounds; i++)
        for (int which = 0; status == STATUS_GO_ON && which < 2; which++) {
            reading one;
            status = reading_take(&one, &plan, which ? r : NULL, ids, logits, NULL);
            taken[which][i] = one.ttft;
            bytes[which] = one.kv_bytes;
        }
    free(ids);
    free(logits);
    if (status != STATUS_GO_ON) return status;
    for (int which = 0; which < 2; which++) seconds[which] = median_of(taken[which], (size_t)rounds);
    return STATUS_GO_ON;
}

/* ----------------------------------------------------------------- opening */

int tuner_open(tuner *t, const ftk_model *m, const ftk_session_opts *session, const char *word, const char *text_path,
               const perplexity_plan *plan, size_t n_tune, size_t n_check, const char *state)
{
    size_t n_docs = 0, width = (size_t)(plan->context + plan->score);
    *t = (tuner){.model = m, .plan = {.model = m, .session = *session, .context = (size_t)plan->context, .score = (size_t)plan->score},
                 .n_tune = n_tune, .n_check = n_check, .state = state};
    ftk_model_get_info(m, &t->info);
    perplexity_plan all = *plan;
    all.max_docs = (int64_t)(n_tune + n_check);
    int status = perplexity_cut(&all, m, text_path, &t->docs, &n_docs);
    if (status != STATUS_GO_ON) return status;
    if (n_docs < n_tune + n_check) {
        ui_error("%s: has %zu windows of %zu tokens, tuning needs %zu and verifying %zu more: a longer text, or smaller --context, --windows or --check",
                 text_path, n_docs, width, n_tune, n_check);
        return STATUS_FAILURE;
    }
    size_t rows = t->plan.score * (size_t)t->info.n_vocab;
    t->truth = malloc(n_tune * rows * sizeof *t->truth);
    t->facts = malloc((n_tune + 1) * t->plan.score * sizeof *t->facts);
    t->logits = malloc(rows * sizeof *t->logits);
    t->other = malloc(rows * sizeof *t->other);
    if (!t->truth || !t->facts || !t->logits || !t->other) {
        ui_error("no memory for %zu rows of logits: smaller --windows or --score need less", (n_tune + 2) * t->plan.score);
        return STATUS_FAILURE;
    }
    ui_progress progress = {0};
    for (size_t d = 0; status == STATUS_GO_ON && d < n_tune; d++) {
        status = read_dense(t, d, t->truth + d * rows, t->facts + d * t->plan.score);
        if (!ui_on_progress(&progress, "reading dense", d + 1, n_tune) && status == STATUS_GO_ON) status = STATUS_INTERRUPTED;
    }
    ui_progress_clear(&progress);
    t->identity = mix(mix(0xcbf29ce484222325u, word, strlen(word)), t->docs.ids, t->docs.n * sizeof *t->docs.ids);
    uint64_t numbers[] = {n_tune, n_check, t->plan.context, t->plan.score, t->info.file_bytes, (uint64_t)session->kv_type};
    t->identity = mix(t->identity, numbers, sizeof numbers);
    return status == STATUS_GO_ON ? read_state(t) : status;
}

void tuner_close(tuner *t)
{
    tokens_free(&t->docs);
    free(t->truth);
    free(t->facts);
    free(t->logits);
    free(t->other);
    free(t->trials);
    *t = (tuner){0};
}

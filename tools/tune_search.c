// SPDX-License-Identifier: Apache-2.0
/* The search, in the order of what costs least: letting the prompt go, near readers, then budgets or merging
 * up to the bound. Single layers and heads are ranked by the KL they cost alone; what is taken together is
 * always measured together, because the costs do not quite add up. */
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "ui.h"

/* The window tried for near readers: 128 entries cost nothing in a good part of the layers of the models
 * measured, 64 did. Cuts from which a layer's curve is fitted, and the one for single heads. */
enum { WINDOW = 128, BISECTIONS = 6 };
static const double DEEP_CUT = 0.1, HALF_CUT = 0.4, HEAD_CUT = 0.2, STEP = 0.05;
/* Shares of the bound that the first two steps may use up, by goal: what they take is not there for the rest. */
static const double let_go_share[] = {[TUNE_MEMORY] = 0.25, [TUNE_TTFT] = 0.4, [TUNE_DECODE] = 0.25};
static const double near_share[] = {[TUNE_MEMORY] = 0.5, [TUNE_TTFT] = 0.7, [TUNE_DECODE] = 0.5};
static const double MARGIN = 0.8; /* of the bound on the tuning windows: other text is never quite alike */

typedef struct candidate {
    size_t cell;
    double kl;
} candidate;

typedef struct search {
    tuner *t;
    tune_goal goal;
    const tune_bound *bound;
    tune_result *out;
    size_t heads, cells;
    double allowed;    /* KL that is about what the bound allows */
    bool *fixed;       /* [n_layers] the layer's cache cannot be cut: it slides already */
    double *cost, *power; /* [cells] KL of keeping the share k: cost * (1 - k)^power */
    candidate *near;   /* [cells] cheapest first */
    size_t n_candidates;
    ui_progress progress;
} search;

static ftk_reduction nothing(void)
{
    ftk_reduction r;
    memset(&r, 0, sizeof r); /* gaps too: settings are compared as bytes */
    r.size = sizeof r;
    r.min_length = 1;        /* the windows of text are what they are */
    return r;
}

static int trial(search *s, const char *phase, uint64_t done, uint64_t total, const ftk_reduction *r, tune_figures *out)
{
    if (!ui_on_progress(&s->progress, phase, done, total)) return STATUS_INTERRUPTED;
    return tuner_measure(s->t, r, false, out);
}

/* ------------------------------------------------------------------- probe */

static ftk_status open_small(search *s, ftk_session **session, ftk_error *e)
{
    ftk_session_opts o = s->t->plan.session;
    o.size = sizeof o;
    o.context = 64;
    return ftk_session_open(session, s->t->model, &o, e);
}

/* Whether the library carries a mechanism out; steps of the search that it does not are left out. */
static bool offered(search *s, const ftk_reduction *r)
{
    ftk_session *session = NULL;
    ftk_error e = {0};
    if (open_small(s, &session, &e) != FTK_OK) return false;
    ftk_status status = ftk_session_reduce(session, r, &e);
    ftk_session_close(session);
    return status != FTK_UNSUPPORTED;
}

/* Layers whose cache the library will not cut. */
static int find_fixed(search *s)
{
    ftk_session *session = NULL;
    ftk_error e = {0};
    if (open_small(s, &session, &e) != FTK_OK) return ui_fail(NULL, &e);
    for (int32_t l = 0; l < s->t->info.n_layers; l++) {
        ftk_reduction r = nothing();
        for (size_t c = 0; c < s->cells; c++) s->out->budgets[c] = 1;
        for (size_t h = 0; h < s->heads; h++) s->out->budgets[(size_t)l * s->heads + h] = 0.5f;
        r.budgets = s->out->budgets;
        r.budget = FTK_BUDGET_WEIGHTS;
        ftk_status status = ftk_session_reduce(session, &r, &e);
        s->fixed[l] = status != FTK_OK;
        if (status != FTK_OK && status != FTK_UNSUPPORTED) {
            ftk_session_close(session);
            return ui_fail(NULL, &e);
        }
    }
    for (size_t c = 0; c < s->cells; c++) s->out->budgets[c] = 1;
    ftk_session_close(session);
    return STATUS_GO_ON;
}

/* ------------------------------------------------------------------ let go */

/* Goes down from the last layer but one while a tenth of the prompt is enough for what follows. Two
 * failures in a row end it: models have a cliff there. */
static int find_let_go(search *s)
{
    int32_t n = s->t->info.n_layers, failures = 0;
    ftk_reduction probe = nothing();
    probe.let_go_layer = n - 2 > 0 ? n - 2 : 1;
    probe.let_go_keep = 0.5f;
    if (!offered(s, &probe)) return STATUS_GO_ON;
    for (int32_t l = n - 2; l >= n / 2 && failures < 2; l--) {
        ftk_reduction r = nothing();
        tune_figures f;
        r.let_go_layer = l;
        r.let_go_keep = 0.1f;
        int status = trial(s, "how long the prompt is read", (uint64_t)(n - 1 - l), (uint64_t)(n / 2), &r, &f);
        if (status != STATUS_GO_ON) return status;
        if (f.kl <= let_go_share[s->goal] * s->allowed) {
            s->out->let_go = l;
            failures = 0;
        } else failures++;
    }
    return STATUS_GO_ON;
}

static void take_let_go(const search *s, ftk_reduction *r)
{
    if (!s->out->let_go) return;
    r->let_go_layer = s->out->let_go;
    r->let_go_keep = 0.1f;
}

/* ------------------------------------------------------------ near readers */

static int try_window(search *s, size_t first, size_t n, uint64_t done, uint64_t total, double *kl)
{
    ftk_reduction r = nothing();
    tune_figures f;
    memset(s->out->windows, 0, s->cells * sizeof *s->out->windows);
    for (size_t i = 0; i < n; i++) s->out->windows[first + i] = WINDOW;
    r.windows = s->out->windows;
    int status = trial(s, "which heads read only what is near", done, total, &r, &f);
    *kl = f.kl;
    return status;
}

static int by_kl(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->kl != y->kl ? (x->kl > y->kl) - (x->kl < y->kl) : (x->cell > y->cell) - (x->cell < y->cell);
}

/* Ranks heads by the KL of their window. Layers that cost next to nothing, and layers that cost more than
 * all is worth in each head, are not taken apart. */
static int rank_near(search *s)
{
    size_t n_layers = (size_t)s->t->info.n_layers;
    double little = 0.1 * s->allowed / (double)n_layers;
    ftk_reduction probe = nothing();
    size_t free_layer = 0;
    while (free_layer + 1 < n_layers && s->fixed[free_layer]) free_layer++;
    memset(s->out->windows, 0, s->cells * sizeof *s->out->windows);
    for (size_t h = 0; h < s->heads; h++) s->out->windows[free_layer * s->heads + h] = WINDOW;
    probe.windows = s->out->windows;
    bool windows = offered(s, &probe);
    memset(s->out->windows, 0, s->cells * sizeof *s->out->windows);
    if (!windows) return STATUS_GO_ON;
    for (size_t l = 0; l < n_layers; l++) {
        double kl;
        if (s->fixed[l]) continue;
        int status = try_window(s, l * s->heads, s->heads, l, n_layers, &kl);
        if (status != STATUS_GO_ON) return status;
        for (size_t h = 0; h < s->heads; h++) {
            double own = kl / (double)s->heads;
            if (kl > little && s->heads > 1) status = try_window(s, l * s->heads + h, 1, l, n_layers, &own);
            if (status != STATUS_GO_ON) return status;
            s->near[s->n_candidates++] = (candidate){l * s->heads + h, own};
        }
    }
    qsort(s->near, s->n_candidates, sizeof *s->near, by_kl);
    return STATUS_GO_ON;
}

static void take_near(search *s, size_t n, ftk_reduction *r)
{
    memset(s->out->windows, 0, s->cells * sizeof *s->out->windows);
    for (size_t i = 0; i < n; i++) s->out->windows[s->near[i].cell] = WINDOW;
    s->out->n_near = n;
    r->windows = n ? s->out->windows : NULL;
}

/* The most heads, cheapest first, that stay within the step's share of the bound together. */
static int find_near(search *s)
{
    size_t low = 0, high = s->n_candidates + 1;
    double allowed = near_share[s->goal] * s->allowed;
    if (s->n_candidates == 0) return STATUS_GO_ON;
    for (int i = 0; high - low > 1; i++) {
        size_t middle = (low + high) / 2;
        ftk_reduction r = nothing();
        tune_figures f;
        take_let_go(s, &r);
        take_near(s, middle, &r);
        int status = trial(s, "how many of them together", (uint64_t)i, BISECTIONS + 2, &r, &f);
        if (status != STATUS_GO_ON) return status;
        if (f.kl <= allowed) low = middle;
        else high = middle;
    }
    ftk_reduction ignored = nothing();
    take_near(s, low, &ignored);
    return STATUS_GO_ON;
}

/* ----------------------------------------------------------------- budgets */

static int try_budget(search *s, size_t first, size_t n, double keep, uint64_t done, uint64_t total, double *kl)
{
    ftk_reduction r = nothing();
    tune_figures f;
    for (size_t c = 0; c < s->cells; c++) s->out->budgets[c] = 1;
    for (size_t i = 0; i < n; i++) s->out->budgets[first + i] = (float)keep;
    r.budgets = s->out->budgets;
    r.budget = FTK_BUDGET_WEIGHTS;
    int status = trial(s, "what each layer's cache is worth", done, total, &r, &f);
    *kl = fmax(f.kl, 1e-9);
    return status;
}

/* The curve of each head: its layer's exponent from two cuts, its own height from one. */
static int fit_costs(search *s)
{
    size_t n_layers = (size_t)s->t->info.n_layers;
    double little = 0.05 * s->allowed / (double)n_layers;
    for (size_t l = 0; l < n_layers; l++) {
        double deep, half;
        size_t near = 0;
        for (size_t h = 0; h < s->heads; h++) near += s->out->windows[l * s->heads + h] > 0;
        if (s->fixed[l] || near == s->heads) continue; /* nothing to decide */
        int status = try_budget(s, l * s->heads, s->heads, DEEP_CUT, l, n_layers, &deep);
        if (status == STATUS_GO_ON) status = try_budget(s, l * s->heads, s->heads, HALF_CUT, l, n_layers, &half);
        if (status != STATUS_GO_ON) return status;
        s->out->layer_kl[l] = deep;
        double power = fmin(fmax(log(deep / half) / log((1 - DEEP_CUT) / (1 - HALF_CUT)), 1), 6);
        for (size_t h = 0; h < s->heads; h++) {
            size_t cell = l * s->heads + h;
            double own = deep / (double)s->heads, cut = DEEP_CUT;
            if (deep > little && s->heads > 1) {
                status = try_budget(s, cell, 1, HEAD_CUT, l, n_layers, &own);
                cut = HEAD_CUT;
            }
            if (status != STATUS_GO_ON) return status;
            s->cost[cell] = own / pow(1 - cut, power);
            s->power[cell] = power;
        }
    }
    return STATUS_GO_ON;
}

/* Shares that keep `average` of all entries at the least sum of costs: the cheapest step first. Heads with
 * a window and fixed layers stay whole. */
static void share_out(const search *s, double average)
{
    float *share = s->out->budgets;
    size_t movable = 0, steps = 0;
    for (size_t c = 0; c < s->cells; c++) {
        share[c] = 1;
        movable += !s->fixed[c / s->heads] && !s->out->windows[c];
    }
    size_t wanted = (size_t)lround((1 - average) * (double)movable / STEP);
    while (steps < wanted) {
        size_t best = s->cells;
        double least = INFINITY;
        for (size_t c = 0; c < s->cells; c++) {
            if (s->fixed[c / s->heads] || s->out->windows[c] || share[c] < 2 * STEP - 1e-6) continue;
            double gone = 1 - share[c];
            double more = s->cost[c] * (pow(gone + STEP, s->power[c]) - pow(gone, s->power[c]));
            if (more < least) least = more, best = c;
        }
        if (best == s->cells) return;
        share[best] = (float)(round((share[best] - STEP) / STEP) * STEP);
        steps++;
    }
}

/* ---------------------------------------------------------------- together */

/* The setting at one strength in [0, 1]: 0 is what the first steps found, 1 the most there is. */
static void compose(search *s, double strength, bool merges, ftk_reduction *r)
{
    *r = nothing();
    take_let_go(s, r);
    r->windows = s->out->n_near ? s->out->windows : NULL;
    if (strength <= 0) return;
    if (merges) r->keep = (float)(1 - 0.9 * strength);
    else {
        share_out(s, 1 - 0.95 * strength);
        r->budgets = s->out->budgets;
        r->budget = FTK_BUDGET_WEIGHTS;
    }
}

/* The largest strength that meets the bound with a margin on the tuning windows. */
static int bisect(search *s, bool merges, double *strength)
{
    double low = 0, high = 1;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = (low + high) / 2;
        ftk_reduction r;
        tune_figures f;
        compose(s, middle, merges, &r);
        int status = trial(s, "how much the bound allows", (uint64_t)i, BISECTIONS, &r, &f);
        if (status != STATUS_GO_ON) return status;
        if (tune_use(s->bound, &f) <= MARGIN) low = middle;
        else high = middle;
    }
    *strength = low;
    return STATUS_GO_ON;
}

/* Other text decides: as long as the bound is not met there, less is taken of everything, the less the farther
 * away it is; letting go, which cannot be taken by halves, is given up on the way. */
static int verify(search *s, bool merges, double strength)
{
    enum { TRIES = 8 };
    tune_result *o = s->out;
    for (int i = 0; i < TRIES; i++) {
        compose(s, strength, merges, &o->r);
        if (!ui_on_progress(&s->progress, "verifying on other text", (uint64_t)i, TRIES)) return STATUS_INTERRUPTED;
        int status = tuner_measure(s->t, &o->r, false, &o->tuned);
        if (status == STATUS_GO_ON) status = tuner_measure(s->t, &o->r, true, &o->checked);
        if (status != STATUS_GO_ON) return status;
        o->met = tune_meets(s->bound, &o->checked);
        if (o->met) return STATUS_GO_ON;
        double factor = fmax(0.4, 0.9 / tune_use(s->bound, &o->checked));
        ftk_reduction ignored = nothing();
        strength = strength > 0.02 ? strength * factor : 0;
        take_near(s, (size_t)((double)o->n_near * (1 + factor) / 2), &ignored);
        if (i == 2) o->let_go = 0;
    }
    o->r = nothing();
    return STATUS_GO_ON;
}

static double allowed_kl(const tune_bound *b)
{
    /* Rough, for ranking only: on the models measured a loss of perplexity of x came with a KL of about x, and a
     * twentieth of changed top tokens with about 0.02. */
    return b->what == BOUND_TOP1 ? 0.4 * (1 - b->value) : b->value;
}

int tune_search(tuner *t, tune_goal goal, const tune_bound *bound, tune_result *out)
{
    *out = (tune_result){0};
    search s = {.t = t, .goal = goal, .bound = bound, .out = out, .heads = (size_t)t->info.n_kv_heads, .allowed = allowed_kl(bound)};
    s.cells = (size_t)t->info.n_layers * s.heads;
    out->budgets = calloc(s.cells, sizeof *out->budgets);
    out->windows = calloc(s.cells, sizeof *out->windows);
    out->layer_kl = calloc((size_t)t->info.n_layers, sizeof *out->layer_kl);
    s.fixed = calloc((size_t)t->info.n_layers, sizeof *s.fixed);
    s.cost = calloc(s.cells, sizeof *s.cost);
    s.power = calloc(s.cells, sizeof *s.power);
    s.near = calloc(s.cells, sizeof *s.near);
    int status = out->budgets && out->windows && out->layer_kl && s.fixed && s.cost && s.power && s.near ? STATUS_GO_ON : STATUS_FAILURE;
    bool merges = goal == TUNE_TTFT;
    double strength = 0;
    if (status == STATUS_GO_ON && merges) {
        ftk_reduction probe = nothing();
        probe.keep = 0.5f;
        if (!offered(&s, &probe)) {
            ui_error("--goal ttft merges tokens in prefill, which this version of the library does not do: use --goal memory");
            status = STATUS_FAILURE;
        }
    }
    if (status == STATUS_GO_ON) status = find_fixed(&s);
    if (status == STATUS_GO_ON) status = find_let_go(&s);
    if (status == STATUS_GO_ON) status = rank_near(&s);
    if (status == STATUS_GO_ON) status = find_near(&s);
    if (status == STATUS_GO_ON && !merges) status = fit_costs(&s);
    if (status == STATUS_GO_ON) status = bisect(&s, merges, &strength);
    if (status == STATUS_GO_ON) status = verify(&s, merges, strength);
    ui_progress_clear(&s.progress);
    free(s.fixed);
    free(s.cost);
    free(s.power);
    free(s.near);
    return status;
}

void tune_result_close(tune_result *r)
{
    free(r->budgets);
    free(r->windows);
    free(r->layer_kl);
    *r = (tune_result){0};
}

// SPDX-License-Identifier: Apache-2.0
/* Checking a reduction against a model, and working out how much of a segment stays where. */
#include "reduce/policy.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"
#include "reduce/score.h"

enum { PAGE_ENTRIES = 32, MIN_LENGTH = 256, MAX_BLOCK = 64, MAX_OBSERVE = 64 };

/* ------------------------------------------------------------------ validation */

static ftk_status bad(ftk_error *e, const char *text) { return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s", text); }

/* 0 becomes `otherwise`. The comparison is written so that NaN fails it. */
static ftk_status share(float *x, float otherwise, const char *name, ftk_error *e) {
    if (*x == 0.0f) *x = otherwise;
    if (!(*x > 0.0f && *x <= 1.0f))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %g, must be above 0 and at most 1", name, (double)*x);
    return FTK_OK;
}

static ftk_status number(int32_t *x, int32_t otherwise, int32_t low, int32_t high, const char *name, ftk_error *e) {
    if (*x == 0) *x = otherwise;
    if (*x < low || *x > high)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %d, must be %d to %d", name, *x, low, high);
    return FTK_OK;
}

static ftk_status choice(int value, int last, const char *name, ftk_error *e) {
    if (value < 0 || value > last)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %d, must be 0 to %d", name, value, last);
    return FTK_OK;
}

static ftk_status check_choices(const ftk_reduction *r, ftk_error *e) {
    FTKI_TRY(choice((int)r->how, FTK_REDUCE_SHARE, "how", e));
    FTKI_TRY(choice((int)r->similarity, FTK_SIMILARITY_EUCLIDEAN, "similarity", e));
    FTKI_TRY(choice((int)r->similar_what, FTK_SIMILAR_KEYS, "similar_what", e));
    FTKI_TRY(choice((int)r->pairing, FTK_PAIRING_BLOCK, "pairing", e));
    FTKI_TRY(choice((int)r->weight, FTK_WEIGHT_ATTENTION, "weight", e));
    FTKI_TRY(choice((int)r->position, FTK_POSITION_CONTIGUOUS, "position", e));
    FTKI_TRY(choice((int)r->scorer, FTK_SCORER_MEAN, "scorer", e));
    return choice((int)r->budget, FTK_BUDGET_WEIGHTS, "budget", e);
}

static ftk_status check_numbers(ftk_reduction *r, ftk_error *e) {
    FTKI_TRY(share(&r->keep, 1, "keep", e));
    FTKI_TRY(share(&r->share_scale, 1, "share_scale", e));
    FTKI_TRY(share(&r->let_go_keep, 0.1f, "let_go_keep", e));
    FTKI_TRY(share(&r->kv_keep, 1, "kv_keep", e));
    FTKI_TRY(share(&r->read_keep, 1, "read_keep", e));
    FTKI_TRY(share(&r->prefill_blocks, 1, "prefill_blocks", e));
    FTKI_TRY(number(&r->keep_tokens, 0, 0, INT32_MAX, "keep_tokens", e));
    FTKI_TRY(number(&r->interval, 4, 1, INT32_MAX, "interval", e));
    FTKI_TRY(number(&r->block, 32, 2, MAX_BLOCK, "block", e));
    FTKI_TRY(number(&r->min_length, MIN_LENGTH, 1, INT32_MAX, "min_length", e));
    if (r->full_length != 0)
        FTKI_TRY(number(&r->full_length, 0, r->min_length, INT32_MAX, "full_length", e));
    FTKI_TRY(number(&r->pool, ftki_scorer_default_pool(r->scorer), 1, 63, "pool", e));
    if (r->pool % 2 == 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "pool is %d, must be odd", r->pool);
    if (r->read_pages != 0) FTKI_TRY(number(&r->read_pages, 0, 2, INT32_MAX, "read_pages", e));
    FTKI_TRY(number(&r->sinks, 4, -1, INT32_MAX / 4, "sinks", e));
    FTKI_TRY(number(&r->recent, 32, -1, INT32_MAX / 4, "recent", e));
    if (r->sinks < 0) r->sinks = 0;
    if (r->recent < 0) r->recent = 0;
    FTKI_TRY(number(&r->observe, ftki_scorer_default_observe(r->scorer), 1, MAX_OBSERVE, "observe", e));
    FTKI_TRY(number(&r->segment, 8192, r->min_length, INT32_MAX, "segment", e));
    if (r->keep_tokens > 0 && r->keep_tokens < r->sinks + r->recent)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "keep_tokens is %d, below the %d protected as sinks and recent; "
                         "ask for more or protect less", r->keep_tokens, r->sinks + r->recent);
    return FTK_OK;
}

static ftk_status check_schedule(ftk_reduction *r, const ftki_policy_model *m, ftk_error *e) {
    int32_t last = m->n_layers - 2; /* after the last layer there is nothing to save */
    bool reduces = r->keep < 1.0f || r->keep_tokens > 0;
    if (r->first_layer < 0 || (r->first_layer > 0 && r->first_layer > last))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "first_layer is %d, must be at most %d", r->first_layer, last);
    if (r->let_go_layer < 0 || (r->let_go_layer > 0 && r->let_go_layer > last))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "let_go_layer is %d, must be at most %d", r->let_go_layer, last);
    if (r->n_layers_listed > 0 && r->layers == NULL) return bad(e, "layers is NULL but n_layers_listed is not 0");
    if (r->n_layers_listed > (size_t)(last + 1))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "layers lists %zu layers, more than the %d there are", r->n_layers_listed, last + 1);
    for (size_t i = 0; i < r->n_layers_listed; i++) {
        int32_t l = r->layers[i];
        if (l < 0 || l > last || (i > 0 && l <= r->layers[i - 1]))
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "layers[%zu] is %d, must be ascending and at most %d", i, l, last);
        if (r->let_go_layer > 0 && l >= r->let_go_layer)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "layers[%zu] is %d, must be before let_go_layer %d", i, l, r->let_go_layer);
    }
    if (r->first_layer == 0) r->first_layer = m->n_layers / 3;
    if (!reduces || r->n_layers_listed > 0) return FTK_OK;
    if (last < 0) return ftki_fail(e, FTK_UNSUPPORTED, "keep: a model of one layer has nothing after it to save");
    if (r->first_layer > last) r->first_layer = last;
    if (r->let_go_layer > 0 && r->first_layer >= r->let_go_layer)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "first_layer is %d, must be before let_go_layer %d", r->first_layer, r->let_go_layer);
    return FTK_OK;
}

static bool slides(const ftki_policy_model *m, int32_t layer) { return m->slides != NULL && m->slides[layer]; }

static ftk_status check_lists(const ftk_reduction *r, const ftki_policy_model *m, ftk_error *e) {
    double sum = 0;
    if (r->budget == FTK_BUDGET_WEIGHTS && r->budgets == NULL) return bad(e, "budgets is NULL but budget asks for weights");
    if (r->budget != FTK_BUDGET_WEIGHTS && r->budgets != NULL) return bad(e, "budgets are given but budget does not ask for weights");
    if (r->kv_shared && r->budget == FTK_BUDGET_ADAPTIVE)
        return bad(e, "budget is adaptive, which kv_shared leaves nothing to adapt; drop one of them");
    if (r->n_protect > 0 && r->protect == NULL) return bad(e, "protect is NULL but n_protect is not 0");
    for (size_t i = 0; i < r->n_protect; i++)
        if (r->protect[i].begin < 0 || r->protect[i].end < r->protect[i].begin)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "protect[%zu] is [%d, %d), must be ascending and not negative", i,
                             r->protect[i].begin, r->protect[i].end);
    for (int32_t l = 0; l < m->n_layers; l++) {
        for (int32_t h = 0; h < m->n_kv_heads; h++) {
            size_t i = (size_t)l * (size_t)m->n_kv_heads + (size_t)h, first = i - (size_t)h;
            if (r->budgets != NULL) {
                float b = r->budgets[i];
                if (!(b >= 0.0f && b <= 1.0f))
                    return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, l, "budgets[%d][%d] is %g, must be 0 to 1", l, h, (double)b);
                if (slides(m, l) && b < 1.0f)
                    return ftki_fail_layer(e, FTK_UNSUPPORTED, l, "budgets[%d][%d] is %g, but layer %d has a sliding window "
                                           "and is left whole: give 1", l, h, (double)b, l);
                if (r->kv_shared && b != r->budgets[first])
                    return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, l, "budgets differ between the heads of layer %d, which "
                                           "kv_shared keeps alike", l);
                sum += (double)b;
            }
            if (r->windows != NULL) {
                if (r->windows[i] < 0)
                    return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, l, "windows[%d][%d] is %d, must not be negative", l, h, r->windows[i]);
                if (slides(m, l) && r->windows[i] > 0)
                    return ftki_fail_layer(e, FTK_UNSUPPORTED, l, "windows[%d][%d] is %d, but layer %d has a sliding window "
                                           "of its own: give 0", l, h, r->windows[i], l);
                if (r->kv_shared && r->windows[i] != r->windows[first])
                    return ftki_fail_layer(e, FTK_INVALID_ARGUMENT, l, "windows differ between the heads of layer %d, which "
                                           "kv_shared keeps alike", l);
            }
        }
    }
    if (r->budgets != NULL && sum == 0) return bad(e, "budgets are all 0");
    bool compressible = false;
    for (int32_t l = 0; l < m->n_layers; l++) compressible |= !slides(m, l);
    if (!compressible && (r->kv_keep < 1.0f || r->kv_bytes > 0))
        return ftki_fail(e, FTK_UNSUPPORTED, "kv_keep and kv_bytes: every layer of this model has a sliding window, its "
                         "cache is bounded already");
    return FTK_OK;
}

/* ------------------------------------------------------------- opening */

static void plan_events(ftki_policy *p) {
    const ftk_reduction *r = &p->r;
    int32_t end = r->let_go_layer > 0 ? r->let_go_layer : p->n_layers - 1;
    if (r->keep < 1.0f || r->keep_tokens > 0) {
        if (r->n_layers_listed > 0)
            for (size_t i = 0; i < r->n_layers_listed; i++) p->events[p->n_events++] = r->layers[i];
        else
            for (int64_t l = r->first_layer; l < end; l += r->interval) p->events[p->n_events++] = (int32_t)l;
    }
    if (r->let_go_layer > 0 && r->let_go_keep < 1.0f) p->events[p->n_events++] = r->let_go_layer;
}

static void describe(ftki_policy *p) {
    const ftk_reduction *r = &p->r;
    size_t n = (size_t)p->n_layers * (size_t)p->n_kv_heads;
    p->hidden = p->n_events > 0;
    p->cache = r->kv_keep < 1.0f || r->kv_bytes > 0;
    for (size_t i = 0; i < n; i++) {
        if (r->windows != NULL && r->windows[i] > 0) p->near = true;
        if (p->as_given && r->budgets[i] < 1.0f) p->cache = true;
    }
    bool reduces = r->keep < 1.0f || r->keep_tokens > 0, lets_go = r->let_go_layer > 0 && r->let_go_keep < 1.0f;
    p->columns = lets_go ||
                 (reduces && (r->how == FTK_REDUCE_DROP || !r->ignore_importance || r->weight == FTK_WEIGHT_ATTENTION)) ||
                 (p->cache && (ftki_scorer_needs_columns(r->scorer) || (r->kv_merge && !r->ignore_importance)));
}

static void *take(unsigned char **at, const void *from, size_t bytes) {
    void *p = *at;
    if (from != NULL && bytes > 0) memcpy(p, from, bytes);
    *at += (bytes + 7) & ~(size_t)7;
    return p;
}

static ftk_status copy_lists(ftki_policy *p, const ftki_policy_model *m, ftk_error *e) {
    ftk_reduction *r = &p->r;
    size_t layers = (size_t)m->n_layers, heads = layers * (size_t)m->n_kv_heads, protect = 0, bytes;
    if (!ftki_mul_size(r->n_protect, sizeof(ftk_range), &protect) ||
        !ftki_add_size(protect, heads * 8 + layers * 12 + r->n_layers_listed * 4 + 128, &bytes) ||
        (p->memory = ftki_alloc(bytes, 1)) == NULL)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a policy with %zu protected ranges", r->n_protect);
    unsigned char *at = p->memory;
    p->events = take(&at, NULL, layers * sizeof(int32_t));
    p->slides = take(&at, m->slides, layers * sizeof(bool));
    r->layers = r->n_layers_listed > 0 ? take(&at, r->layers, r->n_layers_listed * sizeof(int32_t)) : NULL;
    if (r->budgets != NULL) r->budgets = take(&at, r->budgets, heads * sizeof(float));
    if (r->windows != NULL) r->windows = take(&at, r->windows, heads * sizeof(int32_t));
    r->protect = r->n_protect > 0 ? take(&at, r->protect, protect) : NULL;
    return FTK_OK;
}

ftk_status ftki_policy_open(ftki_policy *out, const ftk_reduction *given, const ftki_policy_model *m, ftk_error *e) {
    ftki_policy p = {.n_layers = m->n_layers, .n_kv_heads = m->n_kv_heads};
    ftki_options_read(&p.r, sizeof p.r, given);
    p.r.size = sizeof p.r;
    p.as_given = p.r.budget == FTK_BUDGET_WEIGHTS && p.r.kv_keep == 0.0f && p.r.kv_bytes == 0;
    FTKI_TRY(check_choices(&p.r, e));
    FTKI_TRY(check_numbers(&p.r, e));
    FTKI_TRY(check_schedule(&p.r, m, e));
    FTKI_TRY(check_lists(&p.r, m, e));
    FTKI_TRY(copy_lists(&p, m, e));
    plan_events(&p);
    describe(&p);
    *out = p;
    return FTK_OK;
}

void ftki_policy_close(ftki_policy *p) {
    ftki_free(p->memory);
    *p = (ftki_policy){0};
}

const char *ftki_policy_dense_because(const ftki_policy *p, int32_t n) {
    bool sparse = p->r.prefill_blocks < 1.0f && p->r.prefill_blocks > 0.0f;
    if (!p->hidden && !p->cache && !p->near && !sparse) return "no reduction was asked for";
    return n < p->r.min_length ? "shorter than min_length" : NULL;
}

/* ------------------------------------------------------------- tokens */

/* n * keep to the nearest, with the share removed grown to the segment's length. */
static int32_t target(const ftki_policy *p, int32_t n, double keep, int32_t n_protected) {
    double grown = 1.0;
    if (p->r.full_length > p->r.min_length && n < p->r.full_length)
        grown = n <= p->r.min_length ? 0.0 : (double)(n - p->r.min_length) / (double)(p->r.full_length - p->r.min_length);
    int64_t t = llround((double)n * (1.0 - (1.0 - keep) * grown));
    int32_t floor = n_protected > 1 ? n_protected : 1;
    if (t < floor) t = floor;
    return t > n ? n : (int32_t)t;
}

ftk_status ftki_policy_tokens(const ftki_policy *p, int32_t n, int32_t n_protected, int32_t *counts, ftk_error *e) {
    const ftk_reduction *r = &p->r;
    bool lets_go = r->let_go_layer > 0 && r->let_go_keep < 1.0f;
    int32_t n_before = p->n_events - (lets_go ? 1 : 0), next = 0, left = n, last = n;
    if (n_protected > n) n_protected = n;
    if (r->keep_tokens > 0 && r->keep_tokens < n && r->keep_tokens < n_protected)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "keep_tokens is %d, below the %d tokens of this segment that are "
                         "protected; ask for more or protect less", r->keep_tokens, n_protected);
    bool dense = n <= 0 || ftki_policy_dense_because(p, n) != NULL;
    if (!dense && n_before > 0) {
        double keep = r->keep_tokens == 0 ? (double)r->keep : r->keep_tokens < n ? (double)r->keep_tokens / n : 1.0;
        last = target(p, n, keep, n_protected);
    }
    for (int32_t l = 0; l < p->n_layers; l++) {
        if (!dense && next < p->n_events && p->events[next] == l) {
            next++;
            if (next < n_before)
                left = (int32_t)llround(n * pow((double)last / n, (double)next / n_before));
            else if (next == n_before)
                left = last;
            else {
                int32_t t = target(p, n, (double)r->let_go_keep, n_protected);
                if (t < left) left = t;
            }
        }
        counts[l] = left;
    }
    return FTK_OK;
}

/* ------------------------------------------------------------- entries */

/* One thing that gets a part of the budget: a KV head, or a layer of them with kv_shared; counted in
 * entries or, with kv_bytes, in pages of `unit` entries. */
typedef struct sharing {
    const ftki_policy *p;
    const int32_t *entries;
    int32_t n_protected, unit, n_items;
} sharing;

static int32_t layer_of(const sharing *s, int32_t i) { return s->p->r.kv_shared ? i : i / s->p->n_kv_heads; }
static size_t head_of(const sharing *s, int32_t i) {
    return s->p->r.kv_shared ? (size_t)i * (size_t)s->p->n_kv_heads : (size_t)i;
}
static int32_t units(const sharing *s, int32_t entries) { return (entries + s->unit - 1) / s->unit; }

static int32_t most_entries(const sharing *s, int32_t i) {
    int32_t n = s->entries[layer_of(s, i)];
    const int32_t *windows = s->p->r.windows;
    int32_t window = windows != NULL ? windows[head_of(s, i)] : 0;
    return window > 0 && (int64_t)window + s->p->r.sinks < n ? window + s->p->r.sinks : n;
}
static int32_t most(const sharing *s, int32_t i) { return units(s, most_entries(s, i)); }
static int32_t least(const sharing *s, int32_t i) {
    int32_t n = most_entries(s, i);
    if (s->p->slides[layer_of(s, i)]) return units(s, n);
    return units(s, s->n_protected < n ? s->n_protected : n);
}

static double weight(const sharing *s, int32_t i) {
    const ftk_reduction *r = &s->p->r;
    int32_t l = layer_of(s, i), n = s->p->n_layers;
    if (r->budget == FTK_BUDGET_WEIGHTS) return (double)r->budgets[head_of(s, i)];
    if (r->budget == FTK_BUDGET_PYRAMID && n > 1) return 1.5 - (double)l / (n - 1);
    return 1.0;
}

/* What item i gets at water level `level`; items without weight rise only by `extra` of what they have. */
static double part(const sharing *s, int32_t i, double level, double extra) {
    double w = weight(s, i), x = (w > 0 ? level * w : extra) * units(s, s->entries[layer_of(s, i)]);
    double lo = least(s, i), hi = most(s, i);
    return x < lo ? lo : x > hi ? hi : x;
}

static double filled(const sharing *s, double level, double extra) {
    double sum = 0;
    for (int32_t i = 0; i < s->n_items; i++) sum += part(s, i, level, extra);
    return sum;
}

/* Finds the level at which the parts add up to `total` (between the sums of least and most), and
 * rounds the running sum, so that each part is rounded up or down and the total is exact. Fixed point,
 * because a whole part must stay whole. */
static void fill(const sharing *s, int64_t total, int32_t *kept) {
    double most_level = 1.0, least_weight = INFINITY;
    for (int32_t i = 0; i < s->n_items; i++)
        if (weight(s, i) > 0 && weight(s, i) < least_weight) least_weight = weight(s, i);
    if (isfinite(least_weight)) most_level = 1.0 / least_weight;
    bool overflow = filled(s, most_level, 0) < (double)total; /* the weightless must take the rest */
    double lo = 0, hi = overflow ? 1.0 : most_level;
    for (int step = 0; step < 100; step++) {
        double mid = 0.5 * (lo + hi), sum = overflow ? filled(s, most_level, mid) : filled(s, mid, 0);
        if (sum < (double)total) lo = mid;
        else hi = mid;
    }
    int64_t running = 32768, before = 0;
    for (int32_t i = 0; i < s->n_items; i++) {
        running += llround((overflow ? part(s, i, most_level, hi) : part(s, i, hi, 0)) * 65536.0);
        kept[i] = (int32_t)((running >> 16) - before);
        before = running >> 16;
    }
}

static void spread(const sharing *s, int32_t *kept) {
    int32_t heads = s->p->n_kv_heads;
    for (int32_t i = s->n_items - 1; i >= 0; i--) {
        int64_t n = (int64_t)kept[i] * s->unit;
        int32_t x = n < most_entries(s, i) ? (int32_t)n : most_entries(s, i);
        if (!s->p->r.kv_shared) kept[i] = x;
        else for (int32_t h = 0; h < heads; h++) kept[(size_t)i * (size_t)heads + (size_t)h] = x;
    }
}

ftk_status ftki_policy_entries(const ftki_policy *p, const int32_t *entries, int32_t n_protected, size_t page_bytes,
                               int32_t *kept, ftk_error *e) {
    const ftk_reduction *r = &p->r;
    sharing s = {p, entries, n_protected, r->kv_bytes > 0 ? PAGE_ENTRIES : 1,
                 r->kv_shared ? p->n_layers : p->n_layers * p->n_kv_heads};
    int64_t low = 0, high = 0, all = 0, whole = 0, total;
    for (int32_t i = 0; i < s.n_items; i++) {
        low += least(&s, i);
        high += most(&s, i);
        if (p->slides[layer_of(&s, i)]) whole += units(&s, entries[layer_of(&s, i)]);
        else all += units(&s, entries[layer_of(&s, i)]);
    }
    if (r->kv_bytes > 0) {
        uint64_t pages = r->kv_bytes / (page_bytes > 0 ? page_bytes : 1);
        if (r->kv_shared) pages /= (uint64_t)p->n_kv_heads;
        if (pages < (uint64_t)low)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "kv_bytes is %llu, but what is protected alone takes %llu",
                             (unsigned long long)r->kv_bytes,
                             (unsigned long long)low * page_bytes * (r->kv_shared ? (uint64_t)p->n_kv_heads : 1));
        total = pages < (uint64_t)high ? (int64_t)pages : high;
    } else if (p->as_given) {
        for (int32_t i = 0; i < s.n_items; i++) kept[i] = (int32_t)llround(part(&s, i, 1.0, 0));
        spread(&s, kept);
        return FTK_OK;
    } else {
        total = whole + llround((double)r->kv_keep * (double)all);
    }
    if (total < low) total = low;
    if (total > high) total = high;
    fill(&s, total, kept);
    spread(&s, kept);
    return FTK_OK;
}

/* ------------------------------------------------------------- identity */

uint64_t ftki_policy_hash(const ftki_policy *p) {
    ftki_hash h;
    const ftk_reduction *r = &p->r;
    size_t heads = (size_t)p->n_layers * (size_t)p->n_kv_heads;
    bool reads = r->read_pages > 0 || (r->read_keep > 0.0f && r->read_keep < 1.0f) ||
                 (r->prefill_blocks > 0.0f && r->prefill_blocks < 1.0f);
    if (!p->hidden && !p->cache && !p->near && !reads) return 0;
    /* Field by field: the struct has padding. */
    const float floats[] = {r->keep, r->share_scale, r->let_go_keep, r->kv_keep, r->read_keep, r->prefill_blocks};
    const int64_t numbers[] = {r->keep_tokens, r->how, r->first_layer, r->interval, (int64_t)r->n_layers_listed,
        r->similarity, r->similar_what, r->pairing, r->block, r->weight, r->position, r->no_size_bias,
        r->ignore_importance, r->min_length, r->full_length, r->let_go_layer, (int64_t)r->kv_bytes, r->scorer, r->budget,
        r->kv_merge, r->kv_shared, r->pool, r->read_pages, r->sinks, r->recent, (int64_t)r->n_protect, r->merge_special,
        r->protect_digits, r->observe, (int64_t)r->seed, r->segment, p->as_given, r->budgets != NULL, r->windows != NULL};
    ftki_hash_start(&h);
    ftki_hash_add(&h, floats, sizeof floats);
    ftki_hash_add(&h, numbers, sizeof numbers);
    if (r->layers != NULL) ftki_hash_add(&h, r->layers, r->n_layers_listed * sizeof r->layers[0]);
    if (r->budgets != NULL) ftki_hash_add(&h, r->budgets, heads * sizeof r->budgets[0]);
    if (r->windows != NULL) ftki_hash_add(&h, r->windows, heads * sizeof r->windows[0]);
    if (r->protect != NULL) ftki_hash_add(&h, r->protect, r->n_protect * sizeof r->protect[0]);
    return ftki_hash_end(&h);
}

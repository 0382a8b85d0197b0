// SPDX-License-Identifier: Apache-2.0
/* What an encoder leaves out: between attention and feed-forward tokens are selected by the attention they received
 * and merged by their keys; after the feed-forward exits are asked and the next layer's candidates chosen. The states
 * that stay are moved together in place, so nothing behind here computes what left. */
#include <math.h>
#include <string.h>

#include "model/encoder.h"
#include "reduce/encoder_match.h"
#include "reduce/encoder_select.h"

static bool selects_before(const ftki_encoder_plan *p, int32_t layer) { return p->keep[layer] < 1.0f; }
static bool selects_within(const ftki_encoder_plan *p, int32_t layer) { return p->fine_keep[layer] < 1.0f; }

/* Scores of the next layer's candidates come from this layer, unless they are learned. */
static bool scores_next(const ftki_encoder_run *r, int32_t layer) {
    return layer + 1 < r->model->config.n_layers && selects_before(r->plan, layer + 1) &&
           r->plan->r.by != FTK_SELECT_LEARNED;
}

bool ftki_encoder_reduces_middle(const ftki_encoder_run *r, int32_t layer) {
    const ftki_encoder_plan *p = r->plan;
    return p->any && (p->merge[layer] > 0 || selects_within(p, layer) || scores_next(r, layer));
}

static bool may_exit(const ftki_encoder_run *r, int32_t layer) {
    const ftk_encoder_reduction *p = &r->plan->r;
    return r->want_logits && (p->exit_tau > 0.0f || p->patience > 0) && r->model->layers[layer].has_exit;
}

bool ftki_encoder_reduces_end(const ftki_encoder_run *r, int32_t layer) {
    if (!r->plan->any) return false;
    return may_exit(r, layer) || (layer + 1 < r->model->config.n_layers && selects_before(r->plan, layer + 1));
}

int32_t ftki_encoder_wants_columns(const ftki_encoder_run *r, int32_t layer) {
    if (!r->plan->any) return 0;
    bool wants = selects_within(r->plan, layer) || (scores_next(r, layer) && r->plan->r.by == FTK_SELECT_ATTENTION);
    if (!wants) return 0;
    return r->model->config.pooling == FTKI_POOL_CLS ? 1 : 2;
}

/* ------------------------------------------------------------------ moving */

/* Rows that always stay: the prefix, or [CLS] and [SEP]. */
static void free_rows(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t *first, int32_t *last) {
    bool bert = r->model->config.arch == FTKI_BERT;
    *first = bert ? 1 : r->model->config.n_prefix;
    *last = bert ? item->n - 1 : item->n;
    if (*first > item->n) *first = item->n;
    if (*last < *first) *last = *first;
}

static float *row_at(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t row) {
    return r->x + (size_t)(item->first + row) * (size_t)r->model->config.hidden;
}

/* log(size) of the rows, for the attention of the layers to come. */
static void write_bias(ftki_encoder_run *r, const ftki_encoder_item *item) {
    for (int32_t t = 0; t < item->n; t++)
        r->bias[(size_t)item->page * FTKI_PAGE + (size_t)t] = logf(r->size[item->first + t]);
}

/* Moves the rows that stay together. target [n]: FTKI_ROW_STAYS, FTKI_ROW_LEAVES, or the row it has merged into. */
static void compact(ftki_encoder_run *r, ftki_encoder_item *item, const int32_t *target) {
    size_t d = (size_t)r->model->config.hidden, first = (size_t)item->first;
    int32_t *where = r->where + first, *source = r->source + first, *place = r->place + first, n = 0;
    for (int32_t t = 0; t < item->n; t++) {
        place[t] = target[t] == FTKI_ROW_STAYS ? n++ : -1;
        if (place[t] < 0 || place[t] == t) continue;
        size_t to = (size_t)place[t];
        memcpy(row_at(r, item, place[t]), row_at(r, item, t), d * sizeof(float));
        r->size[first + to] = r->size[first + (size_t)t];
        r->next_scores[first + to] = r->next_scores[first + (size_t)t];
        source[to] = source[t];
    }
    for (int32_t t = 0; t < item->tokens_in; t++)
        if (where[t] >= 0) where[t] = target[where[t]] >= 0 ? place[target[where[t]]] : place[where[t]];
    item->n = n;
}

/* Row `to` becomes the mean of both by weight; sizes add. */
static void join_rows(ftki_encoder_run *r, ftki_encoder_item *item, int32_t from, int32_t to, float from_weight,
                      float to_weight) {
    float *x = row_at(r, item, from), *y = row_at(r, item, to), total = from_weight + to_weight;
    float a = total > 0.0f ? from_weight / total : 0.5f, b = total > 0.0f ? to_weight / total : 0.5f;
    for (int32_t i = 0; i < r->model->config.hidden; i++) y[i] = fmaf(a, x[i], b * y[i]);
    r->size[item->first + to] += r->size[item->first + from];
    item->merged = true;
}

/* --------------------------------------------------------------- selecting */

/* Of the rows that leave one stays: their mean by score (EViT). */
static void fuse(ftki_encoder_run *r, ftki_encoder_item *item, int32_t *target, const float *score) {
    int32_t into = -1;
    float weight = 0.0f;
    for (int32_t t = item->n - 1; t >= 0; t--) {
        if (target[t] != FTKI_ROW_LEAVES) continue;
        float own = score[t] > 0.0f ? score[t] : 0.0f;
        if (into < 0) {
            into = t;
            target[t] = FTKI_ROW_STAYS;
        } else {
            join_rows(r, item, t, into, own, weight);
            target[t] = into;
        }
        weight += own;
    }
}

static void select_rows(ftki_encoder_run *r, ftki_encoder_item *item, const float *score, float keep, float threshold) {
    int32_t *target = r->target + item->first;
    ftki_selection s = {.n = item->n, .score = score, .keep = keep, .threshold = threshold, .tile = r->plan->r.tile};
    free_rows(r, item, &s.first, &s.last);
    if (ftki_select_rows(&s, r->order + item->first, target) == item->n) return;
    if (r->plan->r.fuse) fuse(r, item, target, score);
    compact(r, item, target);
}

/* ----------------------------------------------------------------- scoring */

static const float *key_of(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t row) {
    size_t d = (size_t)r->model->config.hidden;
    return r->qkv + (size_t)(item->first + row) * 3 * d + d;
}

/* Attention received by each row, summed over heads and the tasks' rows. */
static void sum_columns(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t wants, float *score) {
    size_t n = (size_t)item->n, rows = (size_t)ftki_encoder_block_rows(item->n), tasks = wants == 1 ? 1 : (n + rows - 1) / rows;
    const float *columns = r->columns + item->columns;
    memcpy(score, columns, n * sizeof *score);
    for (size_t i = 1; i < tasks; i++) r->model->kernels->add(columns + i * n, (int32_t)n, score);
}

static float dot(const float *x, const float *y, int32_t n) {
    float part[4] = {0};
    for (int32_t i = 0; i + 3 < n; i += 4)
        for (int32_t k = 0; k < 4; k++) part[k] = fmaf(x[i + k], y[i + k], part[k]);
    return (part[0] + part[1]) + (part[2] + part[3]);
}

static void score_norms(const ftki_encoder_run *r, const ftki_encoder_item *item, float *score) {
    int32_t d = r->model->config.hidden;
    for (int32_t t = 0; t < item->n; t++) score[t] = sqrtf(dot(key_of(r, item, t), key_of(r, item, t), d));
}

/* 1 - mean cosine to the rows before and after. */
static void score_distinct(const ftki_encoder_run *r, const ftki_encoder_item *item, float *score) {
    int32_t d = r->model->config.hidden;
    float before = 0.0f, norm = sqrtf(dot(key_of(r, item, 0), key_of(r, item, 0), d));
    for (int32_t t = 0; t < item->n; t++) {
        float after = 0.0f, next = 0.0f;
        if (t + 1 < item->n) {
            next = sqrtf(dot(key_of(r, item, t + 1), key_of(r, item, t + 1), d));
            after = dot(key_of(r, item, t), key_of(r, item, t + 1), d) / (norm * next + 1e-20f);
        }
        int32_t n = (t > 0) + (t + 1 < item->n);
        score[t] = 1.0f - (before + after) / (float)(n ? n : 1);
        before = after;
        norm = next;
    }
}

/* The file's scorer: sigmoid(out . relu(token x + context mean(x) + bias)). */
static void score_learned(ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t layer,
                          float *score) {
    const ftki_encoder_layer *y = &r->model->layers[layer];
    size_t d = (size_t)r->model->config.hidden, width = (size_t)r->model->select_width;
    float *mean = r->pooled + (size_t)(item - r->items) * d, *inner = w->ffn, context[512];
    memset(mean, 0, d * sizeof *mean);
    for (int32_t t = 0; t < item->n; t++) r->model->kernels->add(row_at(r, item, t), (int32_t)d, mean);
    for (size_t i = 0; i < d; i++) mean[i] /= (float)item->n;
    memcpy(context, y->select_bias, width * sizeof *context);
    ftki_encoder_product(r, w, &y->select_context, mean, d, 1, context, width, true);
    for (int32_t at = 0; at < item->n; at += FTKI_ENCODER_BLOCK) {
        int32_t rows = item->n - at < FTKI_ENCODER_BLOCK ? item->n - at : FTKI_ENCODER_BLOCK;
        ftki_encoder_product(r, w, &y->select_token, row_at(r, item, at), d, rows, inner, width, false);
        for (int32_t i = 0; i < rows; i++) {
            float sum = 0.0f;
            for (size_t k = 0; k < width; k++) {
                float v = inner[(size_t)i * width + k] + context[k];
                if (v > 0.0f) sum = fmaf(v, y->select_out[k], sum);
            }
            score[at + i] = 1.0f / (1.0f + expf(-sum));
        }
    }
}

/* ----------------------------------------------------------------- merging */

static void merge_rows(ftki_encoder_run *r, ftki_encoder_work *w, ftki_encoder_item *item, int32_t pairs) {
    const ftki_encoder_config *c = &r->model->config;
    size_t dim = (size_t)c->head_dim, first = (size_t)item->first, d = (size_t)c->hidden;
    float *metric = r->metric + 2 * (first + 32 * (size_t)(item - r->items)) * (size_t)ftki_kv_dim(c->head_dim);
    for (int32_t t = 0; t < item->n; t++) { /* keys, averaged over heads */
        const float *key = key_of(r, item, r->source[first + (size_t)t]);
        float *to = metric + (size_t)t * dim;
        memcpy(to, key, dim * sizeof *to);
        for (size_t h = dim; h < d; h += dim) r->model->kernels->add(key + h, (int32_t)dim, to);
    }
    ftki_soft_match m = {.kernels = r->model->kernels, .metric = metric, .n = item->n, .dim = c->head_dim,
                         .local = r->plan->r.merge_local, .least = r->plan->r.merge_similarity,
                         .panels = metric + (size_t)item->n * dim, .similar = r->similar + (size_t)w->index * r->similar_stride,
                         .best = r->best + first, .order = r->order + first};
    free_rows(r, item, &m.first, &m.last);
    int32_t *target = r->target + first;
    if (ftki_soft_match_pairs(&m, pairs, target) == 0) return;
    for (int32_t t = 0; t < item->n; t++) {
        if (target[t] < 0) continue;
        join_rows(r, item, t, target[t], r->size[first + (size_t)t], r->size[first + (size_t)target[t]]);
        if (r->next_scores[first + (size_t)t] > r->next_scores[first + (size_t)target[t]])
            r->next_scores[first + (size_t)target[t]] = r->next_scores[first + (size_t)t];
    }
    compact(r, item, target);
}

void ftki_encoder_reduce_middle(ftki_encoder_run *r, ftki_encoder_work *w, int32_t index, int32_t layer) {
    ftki_encoder_item *item = &r->items[index];
    const ftki_encoder_plan *p = r->plan;
    size_t first = (size_t)item->first;
    int32_t wants = ftki_encoder_wants_columns(r, layer);
    if (item->tokens_in < p->r.min_tokens) return;
    for (int32_t t = 0; t < item->n; t++) r->source[first + (size_t)t] = t;
    if (wants) sum_columns(r, item, wants, r->scores + first);
    if (scores_next(r, layer)) {
        float *next = r->next_scores + first;
        if (p->r.by == FTK_SELECT_ATTENTION) memcpy(next, r->scores + first, (size_t)item->n * sizeof *next);
        if (p->r.by == FTK_SELECT_KEY_NORM) score_norms(r, item, next);
        if (p->r.by == FTK_SELECT_DISTINCT) score_distinct(r, item, next);
    }
    if (selects_within(p, layer)) select_rows(r, item, r->scores + first, p->fine_keep[layer], p->r.fine_threshold);
    if (p->merge[layer] > 0) merge_rows(r, w, item, p->merge[layer]);
    if (item->merged) write_bias(r, item);
}

/* ------------------------------------------------------------------- exits */

static void ask_exit(ftki_encoder_run *r, ftki_encoder_work *w, int32_t index, int32_t layer) {
    const ftki_encoder_config *c = &r->model->config;
    const ftki_encoder_layer *y = &r->model->layers[layer];
    const ftk_encoder_reduction *p = &r->plan->r;
    ftki_encoder_item *item = &r->items[index];
    float *pooled = r->pooled + (size_t)index * (size_t)c->hidden, *logits = r->logits + (size_t)index * (size_t)c->n_labels;
    int32_t label;
    if (layer + 1 < p->min_layers) return;
    ftki_encoder_head(r, w, item, y->exit_norm, y->exit_norm_bias, pooled);
    memcpy(logits, y->exit_bias, (size_t)c->n_labels * sizeof *logits);
    ftki_encoder_product(r, w, &y->exit, pooled, (size_t)c->hidden, 1, logits, (size_t)c->n_labels, true);
    item->confidence = ftki_exit_confidence(p->exit_by, logits, c->n_labels, &label);
    item->agreed = label == item->agreed_label ? item->agreed + 1 : 1;
    item->agreed_label = label;
    bool sure = p->exit_tau <= 0.0f || item->confidence >= p->exit_tau;
    if (!sure || item->agreed < p->patience) return;
    item->done = item->exited = true;
    item->layers = layer + 1;
}

void ftki_encoder_reduce_end(ftki_encoder_run *r, ftki_encoder_work *w, int32_t index, int32_t layer) {
    ftki_encoder_item *item = &r->items[index];
    const ftki_encoder_plan *p = r->plan;
    if (may_exit(r, layer)) ask_exit(r, w, index, layer);
    int32_t next = layer + 1;
    if (item->done || item->tokens_in < p->r.min_tokens || next >= r->model->config.n_layers || !selects_before(p, next)) return;
    float *score = r->next_scores + item->first;
    if (p->r.by == FTK_SELECT_LEARNED) {
        if (!r->model->layers[next].has_scorer) return;
        score_learned(r, w, item, next, score);
    }
    select_rows(r, item, score, p->keep[next], p->r.threshold);
    if (item->merged) write_bias(r, item);
}

/* -------------------------------------------------------------------- plan */

static ftk_status check_share(float share, const char *name, ftk_error *e) {
    if (share >= 0.0f && share <= 1.0f) return FTK_OK;
    return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %g, must be 0 (all) to 1", name, (double)share);
}

static ftk_status check_numbers(const ftk_encoder_reduction *p, const ftki_encoder *m, ftk_error *e) {
    const struct {
        int32_t value, limit;
        const char *name;
    } counts[] = {{p->first_layer, m->config.n_layers - 1, "first_layer"}, {p->interval, m->config.n_layers, "interval"},
                  {p->merge, m->config.max_tokens, "merge"}, {p->patience, m->config.n_layers, "patience"},
                  {p->min_layers, m->config.n_layers, "min_layers"}, {p->attend, m->config.max_tokens, "attend"},
                  {p->min_tokens, INT32_MAX, "min_tokens"}, {p->tile, 256, "tile"}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < 0 || counts[i].value > counts[i].limit)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %d, must be 0 to %d", counts[i].name, counts[i].value,
                             counts[i].limit);
    FTKI_TRY(check_share(p->keep, "keep", e));
    FTKI_TRY(check_share(p->fine_keep, "fine_keep", e));
    FTKI_TRY(check_share(p->exit_tau, "exit_tau", e));
    if (!(p->threshold >= 0.0f && p->threshold < 1e6f) || !(p->fine_threshold >= 0.0f && p->fine_threshold < 1e6f))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a threshold must be 0 or above, in times the mean score");
    if (!(p->merge_similarity >= -1.0f && p->merge_similarity <= 1.0f))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "merge_similarity must be -1 to 1");
    if ((unsigned)p->by > FTK_SELECT_LEARNED || (unsigned)p->exit_by > FTK_EXIT_ENTROPY)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "unknown score or exit rule");
    int32_t room = FTKI_ENCODER_BLOCK * m->config.ffn - FTKI_PAGE; /* for their columns */
    if (p->attend > room) return ftki_fail(e, FTK_INVALID_ARGUMENT, "attend is %d, must be 0 to %d", p->attend, room);
    if (p->by == FTK_SELECT_LEARNED && m->config.info.n_scorers == 0)
        return ftki_fail(e, FTK_UNSUPPORTED, "the model's file has no learned scorers (blk.N.select_token.weight)");
    if ((p->exit_tau > 0.0f || p->patience > 0) && m->config.info.n_exits == 0)
        return ftki_fail(e, FTK_UNSUPPORTED, "the model's file has no exit heads (blk.N.exit.weight)");
    return FTK_OK;
}

ftk_status ftki_encoder_plan_make(ftki_encoder_plan *out, const ftki_encoder *m, const ftk_encoder_reduction *r, ftk_error *e) {
    ftki_encoder_plan p = {.r.tile = 1};
    int32_t n = m->config.n_layers;
    for (int32_t i = 0; i < FTKI_ENCODER_MAX_LAYERS; i++) p.keep[i] = p.fine_keep[i] = 1.0f;
    if (!r) {
        *out = p;
        return FTK_OK;
    }
    FTKI_TRY(check_numbers(r, m, e));
    p.r = *r;
    if (p.r.tile == 0) p.r.tile = 1;
    int32_t quarter = n / 4 > 1 ? n / 4 : 1;
    int32_t first = r->first_layer ? r->first_layer : quarter, interval = r->interval ? r->interval : quarter;
    for (int32_t i = 0; i < n; i++) {
        bool selects = i >= first && (i - first) % interval == 0;
        float keep = r->keeps ? r->keeps[i] : selects && (r->keep > 0.0f || r->threshold > 0.0f) ? r->keep : 1.0f;
        float fine = r->fine_keeps ? r->fine_keeps[i]
                     : selects && (r->fine_keep > 0.0f || r->fine_threshold > 0.0f) ? r->fine_keep : 1.0f;
        FTKI_TRY(check_share(keep, "a layer's keep", e));
        FTKI_TRY(check_share(fine, "a layer's fine_keep", e));
        p.keep[i] = keep == 0.0f && r->threshold <= 0.0f ? 1.0f : keep;
        p.fine_keep[i] = fine == 0.0f && r->fine_threshold <= 0.0f ? 1.0f : fine;
        p.merge[i] = r->merges ? r->merges[i] : r->merge;
        if (p.merge[i] < 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "layer %d merges %d pairs", i, p.merge[i]);
        if (i == 0 && p.keep[0] < 1.0f)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "keeps[0] must be 1: before the first layer there is no score");
        p.any |= p.keep[i] < 1.0f || p.fine_keep[i] < 1.0f || p.merge[i] > 0;
    }
    p.any |= r->exit_tau > 0.0f || r->patience > 0;
    p.r.keeps = p.r.fine_keeps = NULL;
    p.r.merges = NULL;
    *out = p;
    return FTK_OK;
}

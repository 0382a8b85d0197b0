// SPDX-License-Identifier: Apache-2.0
/* Token reduction of a session: sets the policy, observes a segment's queries through the forward
 * pass, and compresses the cache when the segment is in. What was chosen by src/reduce is carried out
 * here: entries that leave are not stored, their pages go back. */
#include "engine/reduce.h"

#include <math.h>
#include <string.h>

#include "engine/model.h"
#include "reduce/score.h"
#include "reduce/select.h"

enum { UNKNOWN_KEY = 1 }; /* of tokens restored from a snapshot of a reduced session */

/* What one worker needs to choose the entries of a layer. */
typedef struct choice {
    float *scores;   /* [n_kv_heads][capacity] */
    float *spare;    /* [n_kv_heads][capacity] */
    float *norms;    /* [capacity] */
    float *key_norms;/* [capacity] */
    float *seen_by;  /* [capacity] */
    int32_t *chosen; /* [capacity] */
    int32_t *places; /* [n_kv_heads][capacity] */
} choice;

static size_t lay_choice(choice *c, int32_t n_kv_heads, int32_t capacity, unsigned char *base) {
    size_t one = (size_t)capacity * sizeof(float), all = one * (size_t)n_kv_heads, at = 0;
    uintptr_t from = (uintptr_t)base;
    choice unused;
    if (!c) c = &unused;
    c->scores = (float *)(from + at), at += all;
    c->spare = (float *)(from + at), at += all;
    c->norms = (float *)(from + at), at += one;
    c->key_norms = (float *)(from + at), at += one;
    c->seen_by = (float *)(from + at), at += one;
    c->chosen = (int32_t *)(from + at), at += one;
    c->places = (int32_t *)(from + at), at += all;
    return at;
}

/* ------------------------------------------------------------------ policy */

/* What the engine does not carry out yet is refused by name. */
static ftk_status check_offered(const ftki_policy *p, ftk_error *e) {
    const ftk_reduction *r = &p->r;
    const char *field = p->hidden                                      ? "keep, keep_tokens or let_go_layer"
                        : p->near                                      ? "windows"
                        : r->kv_merge                                  ? "kv_merge"
                        : (r->read_keep < 1.0f && r->read_keep > 0.0f) ? "read_keep"
                        : r->read_pages > 0                            ? "read_pages"
                        : (r->prefill_blocks < 1.0f && r->prefill_blocks > 0.0f) ? "prefill_blocks"
                                                                       : NULL;
    if (!field) return FTK_OK;
    return ftki_fail(e, FTK_UNSUPPORTED, "%s: this version reduces the KV cache by eviction only (kv_keep, kv_bytes, "
                     "budgets); leave the field at 0", field);
}

static ftk_status plan_memory(ftki_reducer *r, const ftk_session *s, ftk_error *e) {
    const ftki_config *c = &s->model->decoder.config;
    size_t lists = (size_t)c->n_layers * (size_t)c->n_kv_heads;
    r->capacity = s->kv.max_pages * FTKI_PAGE;
    r->worker_bytes = lay_choice(NULL, c->n_kv_heads, r->capacity, NULL);
    size_t columns = ftki_arena_plan(&r->arena, lists * (size_t)r->capacity, sizeof(float));
    size_t flags = ftki_arena_plan(&r->arena, (size_t)r->capacity, sizeof(bool));
    size_t kept = ftki_arena_plan(&r->arena, lists, sizeof(int32_t));
    size_t workers = ftki_arena_plan(&r->arena, (size_t)ftki_team_size(s->team), r->worker_bytes);
    FTKI_TRY(ftki_arena_commit_small(&r->arena, e));
    r->columns = ftki_arena_at(&r->arena, columns);
    r->flags = ftki_arena_at(&r->arena, flags);
    r->kept = ftki_arena_at(&r->arena, kept);
    r->workers = ftki_arena_at(&r->arena, workers);
    return FTK_OK;
}

void ftki_reducer_close(ftki_reducer *r) {
    ftki_policy_close(&r->policy);
    ftki_arena_close(&r->arena);
    r->active = false;
    r->key = 0;
}

ftk_status ftk_session_reduce(ftk_session *s, const ftk_reduction *r, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session must not be NULL");
    ftki_reducer new = s->reducer;
    memset(&new.policy, 0, sizeof new.policy);
    memset(&new.arena, 0, sizeof new.arena);
    new.active = false;
    new.key = 0;
    if (r) {
        const ftki_config *c = &s->model->decoder.config;
        bool slides[FTKI_MAX_LAYERS];
        for (int32_t i = 0; i < c->n_layers; i++) slides[i] = ftki_layer_slides(c, i);
        ftki_policy_model m = {.n_layers = c->n_layers, .n_kv_heads = c->n_kv_heads, .slides = slides};
        FTKI_TRY(ftki_policy_open(&new.policy, r, &m, e));
        ftk_status status = check_offered(&new.policy, e);
        new.active = new.policy.cache;
        if (status == FTK_OK && new.active) status = plan_memory(&new, s, e);
        if (status != FTK_OK) {
            ftki_reducer_close(&new);
            return status;
        }
        uint64_t hash = ftki_policy_hash(&new.policy);
        new.key = new.active ? (uint32_t)(hash ^ hash >> 32) | 2u : 0;
    }
    ftki_reducer_close(&s->reducer);
    s->reducer = new;
    return FTK_OK;
}

/* --------------------------------------------------------------- a segment */

const char *ftki_reducer_skips(const ftk_session *s, int32_t n) {
    const ftki_reducer *r = &s->reducer;
    if (!r->active) return "no policy is set";
    return ftki_policy_dense_because(&r->policy, n);
}

static bool has_digit(const ftk_model *m, ftk_token token) {
    size_t len;
    const char *bytes = ftk_token_bytes(m, token, true, &len);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] >= '0' && bytes[i] <= '9') return true;
    return false;
}

static bool joins_the_one_before(const ftk_model *m, ftk_token token) {
    size_t len;
    const char *bytes = ftk_token_bytes(m, token, true, &len);
    return len > 0 && bytes[0] != ' ' && bytes[0] != '\n' && bytes[0] != '\t';
}

/* Tokens with digits, and what hangs on them without a space. */
static void protect_digits(bool *flags, const ftk_model *m, const ftk_token *tokens, int32_t n) {
    for (int32_t word = 0, end; word < n; word = end) {
        bool digit = has_digit(m, tokens[word]);
        for (end = word + 1; end < n && joins_the_one_before(m, tokens[end]); end++)
            digit |= has_digit(m, tokens[end]);
        for (int32_t t = word; digit && t < end; t++) flags[t] = true;
    }
}

static int32_t protect(ftk_session *s, const ftk_token *tokens, int32_t n) {
    const ftk_reduction *p = &s->reducer.policy.r;
    bool *flags = s->reducer.flags;
    int32_t first = s->n_tokens, count = 0;
    for (int32_t t = 0; t < n; t++)
        flags[t] = first + t < p->sinks || t >= n - p->recent ||
                   (!p->merge_special && ftk_token_is_special(s->model, tokens[t]));
    for (size_t i = 0; i < p->n_protect; i++)
        for (int32_t t = p->protect[i].begin; t < p->protect[i].end; t++)
            if (t >= first && t < first + n) flags[t - first] = true;
    if (p->protect_digits) protect_digits(flags, s->model, tokens, n);
    for (int32_t t = 0; t < n; t++) count += flags[t];
    return count;
}

ftk_status ftki_reducer_begin(ftk_session *s, const ftk_token *tokens, int32_t n, ftk_error *e) {
    ftki_reducer *r = &s->reducer;
    const ftki_config *c = &s->model->decoder.config;
    int32_t entries[FTKI_MAX_LAYERS], n_protected = protect(s, tokens, n);
    for (int32_t i = 0; i < c->n_layers; i++) entries[i] = n;
    FTKI_TRY(ftki_policy_entries(&r->policy, entries, n_protected, s->kv.page_bytes, r->kept, e));
    if (r->policy.columns)
        memset(r->columns, 0, (size_t)c->n_layers * (size_t)c->n_kv_heads * (size_t)r->capacity * sizeof(float));
    return FTK_OK;
}

void ftki_reducer_observe(ftk_session *s, ftki_forward *f, int32_t at, int32_t n, int32_t total) {
    const ftki_reducer *r = &s->reducer;
    if (!r->policy.columns) return;
    int32_t queries = at + n - (total - r->policy.r.observe);
    if (ftki_scorer_needs_all_queries(r->policy.r.scorer) || queries > n) queries = n;
    if (queries <= 0) return;
    f->observe = queries;
    f->columns = r->columns;
    f->columns_stride = (size_t)r->capacity;
}

/* ------------------------------------------------------------- compression */

typedef struct compression {
    ftk_session *s;
    int32_t n; /* the session's last tokens */
} compression;

/* The norms of the keys of a list's entries [first, first + n), without what was added to cached keys (k_shift). */
static void key_norms(const ftk_session *s, int32_t layer, int32_t head, int32_t first, int32_t n, float *norms) {
    float key[FTKI_MAX_HEAD_DIM];
    const ftki_kv_list *l = ftki_kv_at(&s->kv, layer, head);
    const float *shift = s->model->decoder.layers[layer].k_shift;
    for (int32_t i = 0; i < n; i++) {
        s->model->decoder.kernels->kv_read(s->kv.format, s->kv.head_dim, ftki_kv_page(l, first + i),
                                           (first + i) % FTKI_PAGE, key, NULL);
        double sum = 0.0;
        for (int32_t d = 0; d < s->kv.head_dim; d++) {
            double x = (double)key[d] - (shift ? (double)shift[head * s->kv.head_dim + d] : 0.0);
            sum += x * x;
        }
        norms[i] = (float)sqrt(sum);
    }
}

static void score_head(const compression *x, int32_t layer, int32_t head, const choice *w, float *scores) {
    const ftk_session *s = x->s;
    const ftki_reducer *r = &s->reducer;
    const ftk_reduction *p = &r->policy.r;
    const ftki_kv_list *l = ftki_kv_at(&s->kv, layer, head);
    int32_t n = x->n, first = l->n_entries - n;
    size_t list = (size_t)layer * (size_t)s->kv.n_kv_heads + (size_t)head;
    ftki_score_input in = {.n = n, .seed = p->seed ^ (list + 1) * 0x9e3779b97f4a7c15u, .pool = p->pool};
    if (ftki_scorer_needs_columns(p->scorer)) in.columns = r->columns + list * (size_t)r->capacity + first;
    if (ftki_scorer_needs_all_queries(p->scorer)) {
        for (int32_t i = 0; i < n; i++) w->seen_by[i] = (float)(n - i);
        in.seen_by = w->seen_by;
    }
    if (ftki_scorer_needs_value_norms(p->scorer)) {
        s->model->decoder.kernels->value_norms(s->kv.format, s->kv.head_dim, (const unsigned char *const *)l->pages,
                                               l->n_entries, w->norms);
        in.value_norms = w->norms + first;
    }
    if (ftki_scorer_needs_key_norms(p->scorer)) {
        key_norms(s, layer, head, first, n, w->key_norms);
        in.key_norms = w->key_norms;
    }
    ftki_score(p->scorer, &in, scores, w->spare);
}

static void to_shares(float *scores, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += scores[i];
    for (int32_t i = 0; sum > 0.0 && i < n; i++) scores[i] = (float)(scores[i] / sum);
}

static void compress_layer(const compression *x, int32_t layer, const choice *w) {
    ftk_session *s = x->s;
    ftki_reducer *r = &s->reducer;
    int32_t n = x->n, heads = s->kv.n_kv_heads, *kept = r->kept + (size_t)layer * (size_t)heads, least = 0;
    const ftk_reduction *p = &r->policy.r;
    for (int32_t h = 0; h < heads; h++) score_head(x, layer, h, w, w->scores + (size_t)h * (size_t)n);
    if (p->budget == FTK_BUDGET_ADAPTIVE)
        for (int32_t h = 0; h < heads; h++) to_shares(w->scores + (size_t)h * (size_t)n, n);
    if (p->kv_shared)
        for (int32_t h = 1; h < heads; h++)
            for (int32_t i = 0; i < n; i++) w->scores[i] += w->scores[(size_t)h * (size_t)n + (size_t)i];
    if (p->budget == FTK_BUDGET_ADAPTIVE && kept[0] < n) {
        /* A fifth of an equal share is every head's own, as in AdaKV. */
        for (int32_t i = 0; i < n; i++) least += r->flags[i];
        least += (kept[heads - 1] - least) / 5;
        ftki_budget_adapt(w->scores, heads, n, least, kept, w->places);
    }
    for (int32_t h = 0; h < heads; h++) {
        int32_t first = ftki_kv_at(&s->kv, layer, h)->n_entries - n;
        ftki_select_top(w->scores + (p->kv_shared ? 0 : (size_t)h * (size_t)n), r->flags, n, kept[h], w->chosen, w->places);
        for (int32_t i = 0; i < kept[h]; i++) w->chosen[i] += first;
        (void)ftki_kv_move(&s->kv, layer, h, first, w->chosen, kept[h], NULL); /* ascending and in range by construction */
    }
}

static void compress_worker(void *ctx, int32_t worker, int32_t n_workers) {
    const compression *x = ctx;
    const ftki_reducer *r = &x->s->reducer;
    choice w;
    (void)n_workers;
    lay_choice(&w, x->s->kv.n_kv_heads, r->capacity, r->workers + (size_t)worker * r->worker_bytes);
    for (int32_t layer = ftki_team_next(x->s->team); layer < x->s->kv.n_layers; layer = ftki_team_next(x->s->team))
        if (!r->policy.slides[layer]) compress_layer(x, layer, &w);
    ftki_team_barrier(x->s->team);
}

ftk_status ftki_reducer_finish(ftk_session *s, int32_t n, ftk_error *e) {
    ftki_reducer *r = &s->reducer;
    compression x = {s, n};
    (void)e;
    double start = ftki_seconds();
    ftki_team_run(s->team, compress_worker, &x);
    for (int32_t layer = 0; layer < s->kv.n_layers; layer++) {
        if (r->policy.slides[layer]) continue;
        for (int32_t h = 0; h < s->kv.n_kv_heads; h++) {
            int32_t first = ftki_kv_at(&s->kv, layer, h)->n_entries - n;
            ftki_kv_shrink(&s->kv, layer, h, first + r->kept[layer * s->kv.n_kv_heads + h]);
        }
    }
    for (int32_t t = s->n_tokens - n + 1; t < s->n_tokens; t++) r->inside[t] = 1;
    r->last.seconds += ftki_seconds() - start;
    return FTK_OK;
}

int32_t ftki_reducer_border(const ftk_session *s, int32_t n) {
    while (n > 0 && n < s->n_tokens && s->reducer.inside[n]) n--;
    return n;
}

/* ----------------------------------------------------------------- reports */

void ftk_session_reduced(const ftk_session *s, ftk_reduced *out) {
    *out = s->reducer.last;
    int32_t *layer_tokens = s->reducer.counts, *entries = layer_tokens + s->kv.n_layers;
    for (int32_t i = 0; i < s->kv.n_layers; i++) layer_tokens[i] = s->reducer.last.tokens_in;
    for (int32_t i = 0; i < s->kv.n_layers * s->kv.n_kv_heads; i++) entries[i] = s->kv.lists[i].n_entries;
    out->layer_tokens = layer_tokens;
    out->kv_entries = entries;
}

ftk_status ftk_session_survivors(const ftk_session *s, int32_t layer, int32_t head, int32_t *owners, int32_t *positions,
                                 size_t cap, size_t *n, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session must not be NULL");
    if (layer < 0 || layer >= s->kv.n_layers)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "layer is %d, the model has %d", layer, s->kv.n_layers);
    if (head < 0 || head >= s->kv.n_kv_heads)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "head is %d, the model has %d KV heads", head, s->kv.n_kv_heads);
    const ftki_kv_list *l = ftki_kv_at(&s->kv, layer, head);
    for (int32_t t = 0; owners && t < s->n_tokens; t++) owners[t] = -1;
    for (int32_t i = 0; i < l->n_entries; i++) {
        if (owners) owners[ftki_kv_position(l, i)] = i;
        if (positions && (size_t)i < cap) positions[i] = ftki_kv_position(l, i);
    }
    if (n) *n = (size_t)l->n_entries;
    return FTK_OK;
}

void ftki_reducer_restored(ftk_session *s) {
    bool reduced = false;
    for (int32_t i = 0; i < s->kv.n_layers * s->kv.n_kv_heads; i++) reduced |= s->kv.lists[i].n_entries < s->n_tokens;
    for (int32_t t = 0; t < s->n_tokens; t++) {
        s->reducer.held_under[t] = reduced ? UNKNOWN_KEY : 0;
        s->reducer.inside[t] = reduced && t > 0;
    }
}

// SPDX-License-Identifier: Apache-2.0
/* The layers of an encoder, read top to bottom: see forward_worker.
 *
 * A task is a block of an input's rows, which one worker takes through everything that needs no other rows:
 * attention, output projection, feed-forward and the next layer's queries, keys and values. Keys and values have
 * two halves that layers use in turn, so one barrier per layer is all that dense inference waits for. Each number
 * is computed by the same operations in the same order whatever the threads and the other inputs of the call. */
#include "model/encoder.h"

#include <math.h>
#include <string.h>

#include "kernels/kv_layout.h"
#include "reduce/encoder_select.h"

/* ------------------------------------------------------------------- memory */

static size_t round_up(size_t n) { return (n + FTKI_ALIGN - 1) & ~(size_t)(FTKI_ALIGN - 1); }

static int32_t largest(int32_t a, int32_t b) { return a > b ? a : b; }

/* Bytes of one worker's piece; with `base` also lays it out. */
static size_t lay_work(ftki_encoder_work *w, const ftki_encoder *m, ftki_kv_format format, size_t max_pages,
                       unsigned char *base) {
    const ftki_encoder_config *c = &m->config;
    size_t rows = FTKI_ENCODER_BLOCK, at = 0;
    int32_t widest = largest(largest(c->hidden, c->ffn), c->input_cols);
    if (c->arch == FTKI_WHISPER) widest = largest(widest, 3 * c->hidden);
    widest = (widest + FTKI_BLOCK - 1) / FTKI_BLOCK * FTKI_BLOCK;
    uintptr_t from = (uintptr_t)base;
    size_t dim = (size_t)ftki_kv_dim(c->head_dim);
#define TAKE(field, size) ((field) = (void *)(from + at), at += round_up(size))
    TAKE(w->rows, rows * (size_t)largest(c->hidden, c->input_cols) * sizeof(float));
    TAKE(w->ffn, rows * (size_t)c->ffn * sizeof(float));
    TAKE(w->blocks, ftki_acts_bytes((int32_t)rows, widest));
    TAKE(w->prepared, ftki_attn_prepared_bytes(format, c->head_dim, (int32_t)rows));
    TAKE(w->segment.out, rows * dim * sizeof(float));
    TAKE(w->segment.max, rows * sizeof(float));
    TAKE(w->segment.sum, rows * sizeof(float));
    TAKE(w->total.out, rows * dim * sizeof(float));
    TAKE(w->total.max, rows * sizeof(float));
    TAKE(w->total.sum, rows * sizeof(float));
    TAKE(w->end, rows * sizeof(int32_t));
    TAKE(w->pages, max_pages * sizeof *w->pages);
    TAKE(w->bias, max_pages * sizeof *w->bias);
    TAKE(w->page_order, max_pages * sizeof(int32_t));
    TAKE(w->page_numbers, max_pages * sizeof(int32_t));
    TAKE(w->page_score, max_pages * sizeof(float));
#undef TAKE
    return at;
}

ftk_status ftki_encoder_run_open(ftki_encoder_run *out, const ftki_encoder *m, ftki_team *team, ftki_kv_format format,
                                 int32_t max_tokens, int32_t max_items, uint64_t max_bytes, ftk_error *e) {
    const ftki_encoder_config *c = &m->config;
    ftki_encoder_run r = {.model = m, .team = team, .format = format, .max_tokens = max_tokens, .max_items = max_items};
    size_t tokens = (size_t)max_tokens, items = (size_t)max_items, d = (size_t)c->hidden, heads = (size_t)c->n_heads;
    size_t layers = (size_t)c->n_layers, n_workers = (size_t)ftki_team_size(team);
    r.max_pages = max_tokens / FTKI_PAGE + max_items;
    r.page_bytes = ftki_kv_page_bytes(format, c->head_dim);
    size_t pages = (size_t)r.max_pages, half = (tokens + 1) / 2;
    r.kv_half = heads * pages;
    r.similar_stride = FTKI_ENCODER_BLOCK * (half + FTKI_PANEL);
    ftki_encoder_work measured;
    size_t work_bytes = lay_work(&measured, m, format, pages, NULL);
    ftki_arena *a = &r.arena;
    struct {
        void **field;
        size_t count, bytes, at;
    } plan[] = {
        {(void **)&r.works, n_workers, sizeof *r.works, 0},
        {(void **)&r.x, tokens * d, sizeof(float), 0},
        {(void **)&r.qkv, tokens * 3 * d, sizeof(float), 0},
        {(void **)&r.pages, 2 * r.kv_half, r.page_bytes, 0},
        {(void **)&r.page_list, 2 * r.kv_half, sizeof(void *), 0},
        {(void **)&r.conv, c->arch == FTKI_WHISPER ? (2 * tokens + 2 * items) * d : 0, sizeof(float), 0},
        {(void **)&r.ones, (size_t)c->ffn, sizeof(float), 0},
        {(void **)&r.logits, items * (size_t)c->n_labels, sizeof(float), 0},
        {(void **)&r.pooled, items * d, sizeof(float), 0},
        {(void **)&r.items, items, sizeof *r.items, 0},
        {(void **)&r.size, tokens, sizeof(float), 0},
        {(void **)&r.bias, pages * FTKI_PAGE, sizeof(float), 0},
        {(void **)&r.bias_list, pages, sizeof(void *), 0},
        {(void **)&r.columns, tokens * (tokens / FTKI_ENCODER_BLOCK + 5), sizeof(float), 0},
        {(void **)&r.scores, tokens, sizeof(float), 0},
        {(void **)&r.metric, 2 * (tokens + 32 * items) * (size_t)ftki_kv_dim(c->head_dim), sizeof(float), 0},
        {(void **)&r.next_scores, tokens, sizeof(float), 0},
        {(void **)&r.best, tokens, sizeof(float), 0},
        {(void **)&r.similar, n_workers * r.similar_stride, sizeof(float), 0},
        {(void **)&r.order, tokens, sizeof(int32_t), 0},
        {(void **)&r.target, tokens, sizeof(int32_t), 0},
        {(void **)&r.place, tokens, sizeof(int32_t), 0},
        {(void **)&r.source, tokens, sizeof(int32_t), 0},
        {(void **)&r.where, tokens, sizeof(int32_t), 0},
        {(void **)&r.owners, layers * tokens, sizeof(int32_t), 0},
        {(void **)&r.attention_tokens, items * layers, sizeof(int32_t), 0},
        {(void **)&r.ffn_tokens, items * layers, sizeof(int32_t), 0},
    };
    enum { N_PLAN = sizeof plan / sizeof plan[0] };
    for (size_t i = 0; i < N_PLAN; i++) plan[i].at = ftki_arena_plan(a, plan[i].count, plan[i].bytes);
    size_t works_at = ftki_arena_plan(a, n_workers, work_bytes);
    if (a->overflow) return ftki_fail(e, FTK_OUT_OF_MEMORY, "%d tokens overflow the memory plan", max_tokens);
    if (max_bytes && a->bytes > max_bytes)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "%d tokens need %llu MiB, the limit is %llu; ask for fewer max_tokens",
                         max_tokens, (unsigned long long)(a->bytes >> 20), (unsigned long long)(max_bytes >> 20));
    FTKI_TRY(ftki_arena_commit(a, e));
    for (size_t i = 0; i < N_PLAN; i++) *plan[i].field = ftki_arena_at(a, plan[i].at);
    for (size_t i = 0; i < n_workers; i++) r.works[i].index = (int32_t)i;
    for (size_t i = 0; i < (size_t)r.max_pages; i++) r.bias_list[i] = r.bias + i * FTKI_PAGE;
    for (size_t i = 0; i < n_workers; i++)
        lay_work(&r.works[i], m, format, pages, (unsigned char *)ftki_arena_at(a, works_at) + i * work_bytes);
    for (size_t i = 0; i < 2 * r.kv_half; i++) r.page_list[i] = r.pages + i * r.page_bytes;
    for (int32_t i = 0; i < c->ffn; i++) r.ones[i] = 1.0f;
    *out = r;
    return FTK_OK;
}

void ftki_encoder_run_close(ftki_encoder_run *r) {
    ftki_arena_close(&r->arena);
    memset(r, 0, sizeof *r);
}

/* -------------------------------------------------------------------- tasks */

/* A quarter of the rows, so that two and four threads end together, of few rows a half, since each task reads all
 * weights; more than 64 push the weights of the next product out of the cache. */
int32_t ftki_encoder_block_rows(int32_t n) {
    int32_t parts = n < 96 ? 2 : 4, rows = (n + parts * FTKI_ACT_ROWS - 1) / (parts * FTKI_ACT_ROWS) * FTKI_ACT_ROWS;
    return rows < FTKI_ENCODER_BLOCK ? rows : FTKI_ENCODER_BLOCK;
}

typedef struct piece {
    int32_t item, number; /* number: of the task within its item */
    int32_t begin, end;   /* rows of the item */
} piece;

static bool next_piece(ftki_encoder_run *r, piece *p) {
    int32_t task = ftki_team_next(r->team);
    for (int32_t i = 0; i < r->n_items; i++) {
        const ftki_encoder_item *item = &r->items[i];
        if (item->done) continue;
        int32_t rows = ftki_encoder_block_rows(item->n), blocks = (item->n + rows - 1) / rows;
        if (task < blocks) {
            int32_t begin = task * rows;
            *p = (piece){i, task, begin, begin + rows < item->n ? begin + rows : item->n};
            return true;
        }
        task -= blocks;
    }
    return false;
}

void ftki_encoder_product(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_matrix *m, const float *x,
                          size_t stride, int32_t rows, float *y, size_t y_stride, bool add) {
    ftki_acts a = {.rows = rows, .cols = m->cols, .blocks = w->blocks, .f = x, .f_stride = stride};
    if (m->kind == FTKI_W_U8 || m->kind == FTKI_W_U4) r->model->kernels->quantize(&a, x, stride, 0, rows);
    r->model->kernels->matmul(m, &a, 0, m->n_panels, y, y_stride, add);
}

/* --------------------------------------------------------- what a task does */

static float *state_row(const ftki_encoder_run *r, const ftki_encoder_item *item, int32_t row) {
    return r->x + (size_t)(item->first + row) * (size_t)r->model->config.hidden;
}

static const unsigned char **pages_of(const ftki_encoder_run *r, int32_t layer, int32_t head, const ftki_encoder_item *item) {
    return r->page_list + (size_t)(layer & 1) * r->kv_half + (size_t)head * (size_t)r->max_pages + (size_t)item->page;
}

static ftki_attn attention_of(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item,
                              int32_t layer, int32_t head, int32_t begin, int32_t n) {
    const ftki_encoder_config *c = &r->model->config;
    size_t stride = 3 * (size_t)c->hidden;
    for (int32_t i = 0; i < n; i++) w->end[i] = item->n;
    return (ftki_attn){.format = r->format, .head_dim = c->head_dim, .n_tokens = n, .group = 1,
                       .q = r->qkv + (size_t)(item->first + begin) * stride + (size_t)(head * c->head_dim),
                       .q_stride = stride, .scale = 1.0f / sqrtf((float)c->head_dim),
                       .pages = pages_of(r, layer, head, item), .end = w->end,
                       .bias = item->merged && !r->plan->r.no_size_bias ? r->bias_list + item->page : NULL};
}

/* Leaves of a's pages those whose mean key agrees most with the mean of a's queries, `attend` keys at least, the first
 * page among them (it holds the class token); page_numbers says which. Returns the entries that are left. Choosing for
 * a block of queries keeps a page's keys in the registers of many rows; bounds of pages as in Quest are for one. */
static int32_t choose_pages(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, int32_t head,
                            ftki_attn *a, int32_t attend) {
    size_t stride = 3 * (size_t)r->model->config.hidden, dim = (size_t)a->head_dim;
    int32_t n_pages = (item->n + FTKI_PAGE - 1) / FTKI_PAGE, keep = (attend + FTKI_PAGE - 1) / FTKI_PAGE;
    if (keep >= n_pages) return item->n;
    float query[FTKI_MAX_HEAD_DIM] = {0}, key[FTKI_MAX_HEAD_DIM];
    for (int32_t i = 0; i < a->n_tokens; i++) r->model->kernels->add(a->q + (size_t)i * stride, a->head_dim, query);
    for (int32_t p = 0; p < n_pages; p++) {
        int32_t end = (p + 1) * FTKI_PAGE < item->n ? (p + 1) * FTKI_PAGE : item->n;
        memset(key, 0, dim * sizeof *key);
        for (int32_t t = p * FTKI_PAGE; t < end; t++)
            r->model->kernels->add(r->qkv + (size_t)(item->first + t) * stride + stride / 3 + (size_t)head * dim, a->head_dim, key);
        float score = 0.0f;
        for (size_t i = 0; i < dim; i++) score = fmaf(query[i], key[i], score);
        score = isfinite(score) ? score / (float)(end - p * FTKI_PAGE) : -INFINITY;
        w->page_score[p] = p == 0 ? INFINITY : score;
        w->page_order[p] = p;
    }
    ftki_order_descending(w->page_order, n_pages, w->page_score);
    for (int32_t i = 0; i < keep; i++) w->page_score[w->page_order[i]] = INFINITY;
    int32_t n = 0;
    for (int32_t p = 0; p < n_pages; p++) {
        if (w->page_score[p] != INFINITY) continue;
        w->pages[n] = a->pages[p];
        w->bias[n] = a->bias ? a->bias[p] : NULL;
        w->page_numbers[n++] = p;
    }
    a->pages = w->pages;
    a->bias = a->bias ? w->bias : NULL;
    bool whole = w->page_numbers[n - 1] < n_pages - 1; /* the last page of the item may be a part of one */
    int32_t entries = whole ? n * FTKI_PAGE : (n - 1) * FTKI_PAGE + item->n - (n_pages - 1) * FTKI_PAGE;
    for (int32_t i = 0; i < a->n_tokens; i++) w->end[i] = entries;
    return entries;
}

/* Adds the attention that entries received to the columns of the tokens they are. */
static void add_columns(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_encoder_item *item, const ftki_attn *a,
                        int32_t entries, float *columns) {
    if (entries == item->n) {
        r->model->kernels->attn_columns(a, w->prepared, &w->total, entries, columns);
        return;
    }
    memset(w->ffn, 0, (size_t)entries * sizeof *w->ffn);
    r->model->kernels->attn_columns(a, w->prepared, &w->total, entries, w->ffn);
    for (int32_t i = 0; i < entries; i++) columns[w->page_numbers[i / FTKI_PAGE] * FTKI_PAGE + i % FTKI_PAGE] += w->ffn[i];
}

/* Softmax state of a's rows over its first n_tokens entries, in w->total. */
static void attend_all(const ftki_encoder_run *r, ftki_encoder_work *w, const ftki_attn *a, int32_t n_tokens) {
    const ftki_kernels *k = r->model->kernels;
    int32_t n_pages = (n_tokens + FTKI_PAGE - 1) / FTKI_PAGE, dim = ftki_kv_dim(a->head_dim);
    k->attn_prepare(a, w->prepared);
    for (int32_t begin = 0; begin < n_pages; begin += FTKI_SEGMENT) {
        int32_t end = begin + FTKI_SEGMENT < n_pages ? begin + FTKI_SEGMENT : n_pages;
        k->attn_segment(a, w->prepared, begin, end, begin ? &w->segment : &w->total);
        if (begin) k->attn_merge(&w->total, &w->segment, a->n_tokens, dim);
    }
}

static void attend_rows(ftki_encoder_run *r, ftki_encoder_work *w, const piece *p, int32_t layer) {
    const ftki_encoder_config *c = &r->model->config;
    const ftki_encoder_layer *y = &r->model->layers[layer];
    const ftki_kernels *k = r->model->kernels;
    ftki_encoder_item *item = &r->items[p->item];
    int32_t rows = p->end - p->begin, d = c->hidden, wants = ftki_encoder_wants_columns(r, layer);
    int32_t attend = item->tokens_in < r->plan->r.min_tokens ? 0 : r->plan->r.attend;
    float *columns = r->columns + item->columns + (size_t)p->number * (size_t)item->n;
    if (wants == 2 || (wants == 1 && p->number == 0)) memset(columns, 0, (size_t)item->n * sizeof *columns);
    for (int32_t h = 0; h < c->n_heads; h++) {
        ftki_attn a = attention_of(r, w, item, layer, h, p->begin, rows);
        int32_t entries = attend ? choose_pages(r, w, item, h, &a, attend) : item->n;
        attend_all(r, w, &a, entries);
        k->attn_finish(&a, &w->total, w->rows + h * c->head_dim, (size_t)d);
        if (wants == 2) add_columns(r, w, item, &a, entries, columns);
        if (wants == 1 && p->number == 0) {
            a.n_tokens = 1;
            k->attn_prepare(&a, w->prepared); /* its layout depends on the number of rows */
            add_columns(r, w, item, &a, entries, columns);
        }
    }
    float *x = state_row(r, item, p->begin);
    for (int32_t i = 0; i < rows; i++) k->add(y->o_bias, d, x + (size_t)i * (size_t)d);
    ftki_encoder_product(r, w, &y->o, w->rows, (size_t)d, rows, x, (size_t)d, true);
    if (c->post_norm)
        for (int32_t i = 0; i < rows; i++)
            k->layer_norm(x + (size_t)i * (size_t)d, y->attn_norm, y->attn_norm_bias, c->norm_eps, d, x + (size_t)i * (size_t)d);
}

/* The input of a branch: the states themselves, or their norm in w->rows. */
static const float *branch_input(const ftki_encoder_run *r, ftki_encoder_work *w, const float *x, int32_t rows,
                                 const float *norm, const float *bias) {
    const ftki_encoder_config *c = &r->model->config;
    size_t d = (size_t)c->hidden;
    if (c->post_norm) return x;
    for (size_t i = 0; i < (size_t)rows; i++)
        r->model->kernels->layer_norm(x + i * d, norm, bias, c->norm_eps, c->hidden, w->rows + i * d);
    return w->rows;
}

static void feed_forward_rows(ftki_encoder_run *r, ftki_encoder_work *w, const piece *p, int32_t layer) {
    const ftki_encoder_config *c = &r->model->config;
    const ftki_encoder_layer *y = &r->model->layers[layer];
    const ftki_kernels *k = r->model->kernels;
    int32_t rows = p->end - p->begin;
    size_t d = (size_t)c->hidden, ffn = (size_t)c->ffn;
    float *x = state_row(r, &r->items[p->item], p->begin);
    const float *in = branch_input(r, w, x, rows, y->ffn_norm, y->ffn_norm_bias);
    ftki_encoder_product(r, w, &y->up, in, d, rows, w->ffn, ffn, false);
    for (size_t i = 0; i < (size_t)rows; i++) {
        float *f = w->ffn + i * ffn;
        if (c->gelu_tanh) {
            k->add(y->up_bias, c->ffn, f);
            k->gelu_mul(f, r->ones, c->ffn, f);
        } else {
            k->gelu(f, y->up_bias, c->ffn, f);
        }
        k->add(y->down_bias, c->hidden, x + i * d);
    }
    ftki_encoder_product(r, w, &y->down, w->ffn, ffn, rows, x, d, true);
    if (c->post_norm)
        for (size_t i = 0; i < (size_t)rows; i++)
            k->layer_norm(x + i * d, y->ffn_norm, y->ffn_norm_bias, c->norm_eps, c->hidden, x + i * d);
}

/* Queries, keys and values of `layer`; keys and values go into its half of the pages. */
static void project_rows(ftki_encoder_run *r, ftki_encoder_work *w, const piece *p, int32_t layer) {
    const ftki_encoder_config *c = &r->model->config;
    const ftki_encoder_layer *y = &r->model->layers[layer];
    ftki_encoder_item *item = &r->items[p->item];
    int32_t rows = p->end - p->begin;
    size_t d = (size_t)c->hidden, wide = 3 * d;
    const float *in = branch_input(r, w, state_row(r, item, p->begin), rows, y->attn_norm, y->attn_norm_bias);
    float *qkv = r->qkv + (size_t)(item->first + p->begin) * wide;
    for (size_t i = 0; i < (size_t)rows; i++) memcpy(qkv + i * wide, y->qkv_bias, wide * sizeof *qkv);
    ftki_encoder_product(r, w, &y->qkv, in, d, rows, qkv, wide, true);
    for (int32_t h = 0; h < c->n_heads; h++) {
        const unsigned char **pages = pages_of(r, layer, h, item);
        const float *key = qkv + d + (size_t)(h * c->head_dim);
        for (int32_t row = p->begin; row < p->end; row++, key += wide)
            r->model->kernels->kv_write(r->format, c->head_dim, (unsigned char *)(uintptr_t)pages[row / FTKI_PAGE],
                                        row % FTKI_PAGE, key, key + d);
    }
}

/* ------------------------------------------------------------------ the run */

static void run_pieces(ftki_encoder_run *r, ftki_encoder_work *w, int32_t layer, int32_t what) {
    piece p;
    while (next_piece(r, &p)) {
        if (what & FTKI_ROWS_ATTEND) attend_rows(r, w, &p, layer);
        if (what & FTKI_ROWS_FFN) feed_forward_rows(r, w, &p, layer);
        if (what & FTKI_ROWS_QKV) project_rows(r, w, &p, layer + 1);
    }
    ftki_team_barrier(r->team);
}

static void embed(ftki_encoder_run *r, ftki_encoder_work *w, bool project) {
    piece p;
    if (r->model->config.arch == FTKI_WHISPER) {
        while (next_piece(r, &p)) ftki_encoder_conv_rows(r, w, p.item, p.begin, p.end);
        ftki_team_barrier(r->team);
    }
    while (next_piece(r, &p)) {
        ftki_encoder_embed_rows(r, w, &r->items[p.item], p.begin, p.end);
        if (project) project_rows(r, w, &p, 0);
    }
    ftki_team_barrier(r->team);
}

static void reduce_items(ftki_encoder_run *r, ftki_encoder_work *w, int32_t layer,
                         void (*reduce)(ftki_encoder_run *, ftki_encoder_work *, int32_t, int32_t)) {
    for (int32_t i; (i = ftki_team_next(r->team)) < r->n_items;) {
        if (r->items[i].done) continue;
        double start = ftki_seconds();
        reduce(r, w, i, layer);
        r->items[i].reduce_seconds += ftki_seconds() - start;
    }
    ftki_team_barrier(r->team);
}

static void tap(ftki_encoder_run *r, int32_t worker, int32_t layer) {
    if (!r->tap) return;
    for (int32_t i = 0; worker == 0 && i < r->n_items; i++)
        if (!r->items[i].done)
            r->tap(r->tap_ctx, layer, state_row(r, &r->items[i], 0), (size_t)r->items[i].n, (size_t)r->model->config.hidden);
    ftki_team_barrier(r->team);
}

/* Counts what the layer is about to do. Worker 0, between barriers. */
static void account(ftki_encoder_run *r, int32_t layer, int32_t *counts) {
    for (int32_t i = 0; i < r->n_items; i++) {
        const ftki_encoder_item *item = &r->items[i];
        if (item->done) continue;
        counts[i * r->model->config.n_layers + layer] = item->n;
        if (r->plan->any && counts == r->ffn_tokens)
            memcpy(r->owners + (size_t)layer * (size_t)r->max_tokens + (size_t)item->first, r->where + item->first,
                   (size_t)item->tokens_in * sizeof *r->where);
    }
}

static void forward_worker(void *ctx, int32_t worker, int32_t n_workers) {
    ftki_encoder_run *r = ctx;
    ftki_encoder_work *w = &r->works[worker];
    int32_t last = r->model->config.n_layers - 1;
    (void)n_workers;
    embed(r, w, true);
    tap(r, worker, -1);
    for (int32_t i = 0; i <= last; i++) {
        bool middle = ftki_encoder_reduces_middle(r, i), end = i < last && ftki_encoder_reduces_end(r, i);
        int32_t project = i < last && !end ? FTKI_ROWS_QKV : 0;
        if (worker == 0) {
            account(r, i, r->attention_tokens);
            if (!middle) account(r, i, r->ffn_tokens);
        }
        /* Sparse attention looks at keys as they were projected, which the next projection overwrites. */
        bool sparse = r->plan->r.attend > 0;
        run_pieces(r, w, i, FTKI_ROWS_ATTEND | (middle ? 0 : FTKI_ROWS_FFN | (sparse ? 0 : project)));
        if (!middle && sparse && project) run_pieces(r, w, i, project);
        if (middle) {
            reduce_items(r, w, i, ftki_encoder_reduce_middle);
            if (worker == 0) account(r, i, r->ffn_tokens);
            run_pieces(r, w, i, FTKI_ROWS_FFN | project);
        }
        tap(r, worker, i);
        if (end) {
            reduce_items(r, w, i, ftki_encoder_reduce_end);
            if (worker == 0) r->stop = atomic_load(r->cancel);
            run_pieces(r, w, i, FTKI_ROWS_QKV);
        } else {
            if (worker == 0) r->stop = atomic_load(r->cancel);
            if (i % 4 == 3) ftki_team_barrier(r->team); /* publishes the wish to stop */
            else continue;
        }
        if (r->stop) return;
    }
    for (int32_t i; (i = ftki_team_next(r->team)) < r->n_items;) ftki_encoder_finish(r, w, i);
}

static uint64_t layer_madds(const ftki_encoder_config *c, int64_t n_attention, int64_t n_keys, int64_t n_ffn) {
    int64_t d = c->hidden;
    return (uint64_t)(n_attention * (4 * d * d + 2 * n_keys * d) + n_ffn * 2 * d * c->ffn);
}

ftk_status ftki_encoder_run_all(ftki_encoder_run *r, ftk_error *e) {
    const ftki_encoder_config *c = &r->model->config;
    int32_t first = 0, page = 0;
    size_t columns = 0;
    for (int32_t i = 0; i < r->n_items; i++) {
        ftki_encoder_item *item = &r->items[i];
        int32_t rows = ftki_encoder_block_rows(item->n);
        *item = (ftki_encoder_item){.input = item->input, .tokens_in = item->n, .n = item->n, .first = first,
                                    .page = page, .columns = columns, .agreed_label = -1, .layers = c->n_layers};
        first += item->n;
        page += (item->n + FTKI_PAGE - 1) / FTKI_PAGE;
        columns += (size_t)item->n * (size_t)((item->n + rows - 1) / rows);
    }
    for (int32_t i = 0; i < first; i++) r->size[i] = 1.0f;
    for (int32_t i = 0; i < r->n_items; i++)
        for (int32_t t = 0; t < r->items[i].n; t++) r->where[r->items[i].first + t] = t;
    size_t counts = (size_t)r->n_items * (size_t)c->n_layers * sizeof(int32_t);
    memset(r->attention_tokens, 0, counts);
    memset(r->ffn_tokens, 0, counts);
    r->stop = false;
    ftki_team_run(r->team, forward_worker, r);
    if (r->stop) return ftki_fail(e, FTK_CANCELLED, "cancelled");
    for (int32_t i = 0; i < r->n_items; i++)
        for (int32_t y = 0; y < c->n_layers; y++) {
            size_t at = (size_t)(i * c->n_layers + y);
            int32_t n = r->attention_tokens[at], in = r->items[i].tokens_in, keys = n;
            int32_t read = (r->plan->r.attend + FTKI_PAGE - 1) / FTKI_PAGE * FTKI_PAGE;
            if (read > 0 && read < n && in >= r->plan->r.min_tokens) keys = read;
            r->items[i].madds += layer_madds(c, n, keys, r->ffn_tokens[at]);
            r->items[i].madds_dense += layer_madds(c, in, in, in);
        }
    return FTK_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* The forward pass of a decoder-only Transformer, read top to bottom: see forward_worker.
 *
 * All workers run it together, stage by stage; a stage's tasks are handed out by ftki_team_next
 * and a barrier closes it. Whatever the number of workers or the cut into chunks, each number is
 * computed by the same operations in the same order. */
#include "model/decoder.h"

#include <math.h>
#include <string.h>

#include "format/quants.h"

enum {
    TOKENS_PER_TASK = 8,  /* of the stages that work token by token */
    PANELS_PER_TASK = 4,  /* of a matrix product in prefill */
    ROWS_PER_TASK = 96,   /* query rows of an attention task, about: K/V pages are shared by them */
    MAX_TASK_ROWS = 256
};

/* ------------------------------------------------------------------ scratch */

/* What one worker needs for attention, carved from its piece of the scratch. */
typedef struct attn_work {
    void *prepared;
    ftki_attn_state segment, total;
    int32_t *begin, *end; /* [tokens of a task] */
} attn_work;

static size_t round_up(size_t n) { return (n + FTKI_ALIGN - 1) & ~(size_t)(FTKI_ALIGN - 1); }

static int32_t group_of(const ftki_config *c) { return c->n_heads / c->n_kv_heads; }

/* Query tokens of one attention task: whole tokens, a multiple of 16 rows where that is cheap. */
static int32_t task_tokens(const ftki_config *c, int32_t n) {
    int32_t tokens = ROWS_PER_TASK / group_of(c);
    tokens = tokens < 1 ? 1 : tokens >= 16 ? tokens & ~15 : tokens;
    return tokens < n ? tokens : n;
}

/* Lays the pieces out from `base` (NULL: only measures) and returns their bytes. */
static size_t lay_work(attn_work *w, const ftki_decoder *d, ftki_kv_format format, int32_t tokens,
                       unsigned char *base) {
    int32_t rows = tokens * group_of(&d->config), dim = ftki_kv_dim(d->config.head_dim);
    size_t at = 0, row_floats = round_up((size_t)rows * sizeof(float));
    size_t out_bytes = round_up((size_t)rows * (size_t)dim * sizeof(float));
    attn_work unused;
    if (!w) w = &unused;
    uintptr_t from = (uintptr_t)base; /* no arithmetic on a null pointer */
#define TAKE(field, type, size) ((field) = (type *)(from + at), at += (size))
    TAKE(w->prepared, void, round_up(ftki_attn_prepared_bytes(format, d->config.head_dim, rows)));
    TAKE(w->segment.out, float, out_bytes);
    TAKE(w->total.out, float, out_bytes);
    TAKE(w->segment.max, float, row_floats);
    TAKE(w->segment.sum, float, row_floats);
    TAKE(w->total.max, float, row_floats);
    TAKE(w->total.sum, float, row_floats);
    TAKE(w->begin, int32_t, round_up((size_t)tokens * sizeof(int32_t)));
    TAKE(w->end, int32_t, round_up((size_t)tokens * sizeof(int32_t)));
#undef TAKE
    return at;
}

/* Offsets of the plan, kept between plan and commit in the pointers' places. */
#define AT(offset) ((void *)(uintptr_t)(offset))

ftk_status ftki_scratch_plan(ftki_scratch *out, const ftki_decoder *d, int32_t chunk,
                             int32_t n_workers, int32_t context, ftk_error *e) {
    const ftki_config *c = &d->config;
    ftki_scratch s = {.chunk = chunk, .n_workers = n_workers};
    size_t rows = (size_t)chunk, q_width = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t kv_width = (size_t)c->n_kv_heads * (size_t)c->head_dim, hidden = (size_t)c->hidden;
    size_t ffn = (size_t)c->ffn, widest = hidden > ffn ? hidden : ffn;
    if (q_width > widest) widest = q_width;
    widest = (widest + 31) & ~(size_t)31;
    ftki_arena *a = &s.arena;
    s.hidden = AT(ftki_arena_plan(a, rows * hidden, sizeof(float)));
    s.normed = AT(ftki_arena_plan(a, rows * hidden, sizeof(float)));
    s.q = AT(ftki_arena_plan(a, rows * q_width, sizeof(float)));
    s.k = AT(ftki_arena_plan(a, rows * kv_width, sizeof(float)));
    s.v = AT(ftki_arena_plan(a, rows * kv_width, sizeof(float)));
    s.attended = AT(ftki_arena_plan(a, rows * q_width, sizeof(float)));
    s.gate = AT(ftki_arena_plan(a, rows * ffn, sizeof(float)));
    s.up = AT(ftki_arena_plan(a, rows * ffn, sizeof(float)));
    if (d->layers[0].attn_post_norm) s.branch = AT(ftki_arena_plan(a, rows * hidden, sizeof(float)));
    s.cos = AT(ftki_arena_plan(a, rows * (size_t)c->head_dim, sizeof(float)));
    s.sin = AT(ftki_arena_plan(a, rows * (size_t)c->head_dim, sizeof(float)));
    s.acts.blocks = AT(ftki_arena_plan(a, ftki_acts_bytes((int32_t)rows, (int32_t)widest), 1));
    for (ftki_kv_format f = FTKI_KV_INT8; f <= FTKI_KV_F32; f++) {
        size_t bytes = lay_work(NULL, d, f, task_tokens(c, chunk), NULL);
        if (bytes > s.worker_bytes) s.worker_bytes = bytes;
    }
    s.workers = AT(ftki_arena_plan(a, (size_t)n_workers, s.worker_bytes));
    s.max_segments = (context + FTKI_PAGE * FTKI_SEGMENT - 1) / (FTKI_PAGE * FTKI_SEGMENT);
    s.partial = AT(ftki_arena_plan(a, (size_t)c->n_heads * (size_t)s.max_segments,
                                   ((size_t)ftki_kv_dim(c->head_dim) + 2) * sizeof(float)));
    if (a->overflow) return ftki_fail(e, FTK_OUT_OF_MEMORY, "the scratch plan overflows");
    *out = s;
    return FTK_OK;
}

ftk_status ftki_scratch_commit(ftki_scratch *s, const ftki_decoder *d, ftk_error *e) {
    FTKI_TRY(ftki_arena_commit(&s->arena, e));
#define PLACE(field) ((field) = (void *)(s->arena.base + (uintptr_t)(field)))
    PLACE(s->hidden), PLACE(s->normed), PLACE(s->q), PLACE(s->k), PLACE(s->v), PLACE(s->attended);
    PLACE(s->gate), PLACE(s->up), PLACE(s->cos), PLACE(s->sin), PLACE(s->workers), PLACE(s->partial);
    PLACE(s->acts.blocks);
    if (d->layers[0].attn_post_norm) PLACE(s->branch);
#undef PLACE
    return FTK_OK;
}

void ftki_scratch_close(ftki_scratch *s) {
    ftki_arena_close(&s->arena);
    memset(s, 0, sizeof *s);
}

/* ------------------------------------------------------------------- stages */

/* The forward pass as its workers share it. */
typedef struct run {
    ftki_forward *f;
    const ftki_decoder *d;
    const ftki_config *c;
    const ftki_kernels *kern;
    ftki_scratch *s;
    ftki_team *team;
    int32_t n;           /* tokens of the chunk */
    ftk_status status;   /* written by worker 0 before a barrier */
    ftk_error *e;
} run;

/* Takes the next piece [*begin, *end) of `total` tokens; false when none is left. */
static bool next_tokens(run *r, int32_t total, int32_t *begin, int32_t *end) {
    *begin = ftki_team_next(r->team) * TOKENS_PER_TASK;
    *end = *begin + TOKENS_PER_TASK < total ? *begin + TOKENS_PER_TASK : total;
    return *begin < total;
}

static void embed(run *r) {
    int32_t begin, end, pairs = r->c->head_dim / 2;
    while (next_tokens(r, r->n, &begin, &end)) {
        for (int32_t t = begin; t < end; t++) {
            float *x = r->s->hidden + (size_t)t * (size_t)r->c->hidden;
            ftk_token token = r->f->tokens[t];
            const ftki_tensor *raw = r->d->embedding;
            if (raw) {
                size_t row_bytes = (size_t)(raw->bytes / raw->dims[1]);
                ftki_dequantize_row(raw->type, raw->data + (size_t)token * row_bytes, x, (size_t)r->c->hidden);
            } else {
                ftki_matrix_row(&r->d->output, token, x);
            }
            if (r->c->embed_scale != 1.0f)
                for (int32_t i = 0; i < r->c->hidden; i++) x[i] *= r->c->embed_scale;
            for (int32_t which = 0; which < (r->c->window ? 2 : 1); which++) {
                const float *freq = which ? r->d->freq_local : r->d->freq;
                float scale = which ? r->d->rope_scale_local : r->d->rope_scale;
                size_t at = ((size_t)which * (size_t)r->s->chunk + (size_t)t) * (size_t)pairs;
                for (int32_t p = 0; p < pairs; p++) {
                    double angle = (double)freq[p] * (r->f->position + t);
                    r->s->cos[at + (size_t)p] = (float)cos(angle) * scale;
                    r->s->sin[at + (size_t)p] = (float)sin(angle) * scale;
                }
            }
        }
    }
    ftki_team_barrier(r->team);
}

/* Makes rows [begin, end) of x [n][cols] the input of the next matrix products. */
static void set_input(run *r, const float *x, int32_t cols, int32_t begin, int32_t end) {
    ftki_acts a = r->s->acts;
    a.rows = r->n;
    a.cols = cols;
    if (cols % FTKI_BLOCK == 0) r->kern->quantize(&a, x, (size_t)cols, begin, end);
}

/* normed = rms_norm(hidden), as the input of the next products. */
static void norm_input(run *r, const float *weight) {
    int32_t begin, end, width = r->c->hidden;
    while (next_tokens(r, r->n, &begin, &end)) {
        for (int32_t t = begin; t < end; t++)
            r->kern->rms_norm(r->s->hidden + (size_t)t * (size_t)width, weight, r->c->norm_eps, width,
                              r->s->normed + (size_t)t * (size_t)width);
        set_input(r, r->s->normed, width, begin, end);
    }
    ftki_team_barrier(r->team);
}

/* One product of a stage: y [rows][w->rows] (+)= x W^T. */
typedef struct product {
    const ftki_matrix *w;
    float *y;
    bool add;
} product;

/* Products that share the input x [rows][cols], whose rows begin at `first_row` of the activations. */
static void multiply(run *r, const float *x, int32_t cols, int32_t first_row, int32_t rows,
                     const product *products, size_t n_products) {
    ftki_acts a = r->s->acts;
    a.rows = rows;
    a.cols = cols;
    a.first = first_row;
    a.f = x;
    a.f_stride = (size_t)cols;
    /* In decode a claim should be worth more than its cost: bigger pieces. */
    int32_t panels = rows >= 16 ? PANELS_PER_TASK : 4 * PANELS_PER_TASK;
    for (;;) {
        int32_t task = ftki_team_next(r->team);
        size_t i = 0;
        for (; i < n_products; i++) {
            int32_t tasks = (products[i].w->n_panels + panels - 1) / panels;
            if (task < tasks) break;
            task -= tasks;
        }
        if (i == n_products) break;
        const product *p = &products[i];
        int32_t begin = task * panels, end = begin + panels;
        if (end > p->w->n_panels) end = p->w->n_panels;
        r->kern->matmul(p->w, &a, begin, end, p->y, (size_t)p->w->rows, p->add);
    }
    ftki_team_barrier(r->team);
}

/* Bias, head norms and rotation of q and k; keys and values into the cache. */
static void rotate_and_store(run *r, const ftki_layer *y, int32_t layer) {
    const ftki_config *c = r->c;
    int32_t begin, end, dim = c->head_dim, q_width = c->n_heads * dim, kv_width = c->n_kv_heads * dim;
    size_t table = ftki_layer_slides(c, layer) ? (size_t)r->s->chunk * (size_t)(dim / 2) : 0;
    while (next_tokens(r, r->n, &begin, &end)) {
        for (int32_t t = begin; t < end; t++) {
            float *q = r->s->q + (size_t)t * (size_t)q_width;
            float *k = r->s->k + (size_t)t * (size_t)kv_width, *v = r->s->v + (size_t)t * (size_t)kv_width;
            const float *cosines = r->s->cos + table + (size_t)t * (size_t)(dim / 2);
            const float *sines = r->s->sin + table + (size_t)t * (size_t)(dim / 2);
            if (y->q_bias) r->kern->add(y->q_bias, q_width, q);
            if (y->k_bias) r->kern->add(y->k_bias, kv_width, k);
            if (y->v_bias) r->kern->add(y->v_bias, kv_width, v);
            for (int32_t h = 0; h < c->n_heads; h++) {
                if (y->q_norm) r->kern->rms_norm(q + h * dim, y->q_norm, c->norm_eps, dim, q + h * dim);
                r->kern->rope(q + h * dim, cosines, sines, dim, c->rope_interleaved);
            }
            for (int32_t h = 0; h < c->n_kv_heads; h++) {
                if (y->k_norm) r->kern->rms_norm(k + h * dim, y->k_norm, c->norm_eps, dim, k + h * dim);
                r->kern->rope(k + h * dim, cosines, sines, dim, c->rope_interleaved);
                if (y->k_shift) r->kern->add(y->k_shift + h * dim, dim, k + h * dim);
                ftki_kv_list *list = ftki_kv_at(r->f->kv, layer, h);
                int32_t entry = list->n_entries - r->n + t;
                r->kern->kv_write(r->f->kv->format, dim, ftki_kv_page(list, entry), entry % FTKI_PAGE,
                                  k + h * dim, v + h * dim);
            }
        }
    }
    ftki_team_barrier(r->team);
}

/* ---------------------------------------------------------------- attention */

/* First entry of the list whose position is at least `position`. */
static int32_t first_entry_from(const ftki_kv_list *list, int32_t position) {
    int32_t low = 0, high = list->n_entries;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (ftki_kv_positions(ftki_kv_page(list, middle))[middle % FTKI_PAGE] < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The attention of tokens [first, first + n) of the chunk to KV head `head`. */
static ftki_attn attn_of(run *r, int32_t layer, int32_t head, int32_t first, int32_t n, attn_work *w) {
    const ftki_config *c = r->c;
    const ftki_kv_list *list = ftki_kv_at(r->f->kv, layer, head);
    bool slides = ftki_layer_slides(c, layer);
    for (int32_t t = 0; t < n; t++) {
        w->end[t] = list->n_entries - r->n + first + t + 1;
        if (slides) w->begin[t] = first_entry_from(list, r->f->position + first + t - c->window + 1);
    }
    size_t q_width = (size_t)c->n_heads * (size_t)c->head_dim;
    return (ftki_attn){
        .format = r->f->kv->format, .head_dim = c->head_dim, .n_tokens = n, .group = group_of(c),
        .q = r->s->q + (size_t)first * q_width + (size_t)(head * group_of(c) * c->head_dim),
        .q_stride = q_width, .scale = c->attn_scale, .pages = (const unsigned char *const *)list->pages,
        .begin = slides ? w->begin : NULL, .end = w->end, .bias = ftki_kv_biases(list)};
}

static int32_t n_segments(int32_t end) {
    return (end + FTKI_PAGE * FTKI_SEGMENT - 1) / (FTKI_PAGE * FTKI_SEGMENT);
}

/* Pages of a segment that end at entry `end` at the latest. */
static int32_t segment_end(int32_t segment, int32_t end) {
    int32_t pages = (end + FTKI_PAGE - 1) / FTKI_PAGE, limit = (segment + 1) * FTKI_SEGMENT;
    return pages < limit ? pages : limit;
}

static void nothing_seen(const ftki_attn_state *s, int32_t rows, int32_t dim) {
    memset(s->out, 0, (size_t)rows * (size_t)dim * sizeof(float));
    memset(s->sum, 0, (size_t)rows * sizeof(float));
    for (int32_t i = 0; i < rows; i++) s->max[i] = -INFINITY;
}

static float *attended_of(run *r, int32_t head, int32_t first) {
    const ftki_config *c = r->c;
    return r->s->attended + (size_t)first * (size_t)(c->n_heads * c->head_dim) +
           (size_t)(head * group_of(c) * c->head_dim);
}

static attn_work work_of(run *r, int32_t worker) {
    attn_work w;
    lay_work(&w, r->d, r->f->kv->format, task_tokens(r->c, r->s->chunk),
             r->s->workers + (size_t)worker * r->s->worker_bytes);
    return w;
}

/* Prefill: a task is a KV head and a run of tokens, walked segment by segment. */
static void attend_prefill(run *r, int32_t layer, int32_t worker) {
    const ftki_config *c = r->c;
    attn_work w = work_of(r, worker);
    int32_t per_task = task_tokens(c, r->n), dim = ftki_kv_dim(c->head_dim);
    int32_t blocks = (r->n + per_task - 1) / per_task;
    for (;;) {
        int32_t task = ftki_team_next(r->team);
        if (task >= blocks * c->n_kv_heads) break;
        /* The last tokens see most: they go first, so that the end of the stage is even. */
        int32_t head = task % c->n_kv_heads, first = (blocks - 1 - task / c->n_kv_heads) * per_task;
        int32_t n = r->n - first < per_task ? r->n - first : per_task, rows = n * group_of(c);
        ftki_attn a = attn_of(r, layer, head, first, n, &w);
        r->kern->attn_prepare(&a, w.prepared);
        nothing_seen(&w.total, rows, dim);
        int32_t end = w.end[n - 1], begin = a.begin ? w.begin[0] : 0;
        for (int32_t g = begin / (FTKI_PAGE * FTKI_SEGMENT); g < n_segments(end); g++) {
            r->kern->attn_segment(&a, w.prepared, g * FTKI_SEGMENT, segment_end(g, end), &w.segment);
            r->kern->attn_merge(&w.total, &w.segment, rows, dim);
        }
        r->kern->attn_finish(&a, &w.total, attended_of(r, head, first), a.q_stride);
    }
    ftki_team_barrier(r->team);
}

/* Where segment g of a head's group keeps its state between the two stages of decode. */
static ftki_attn_state partial_of(run *r, int32_t head, int32_t g) {
    int32_t group = group_of(r->c), dim = ftki_kv_dim(r->c->head_dim);
    float *at = r->s->partial +
                ((size_t)head * (size_t)r->s->max_segments + (size_t)g) * (size_t)(group * (dim + 2));
    return (ftki_attn_state){.out = at, .max = at + group * dim, .sum = at + group * (dim + 1)};
}

/* Decode: one token. Segments are tasks of their own, merged in order afterwards, which is what
 * prefill computes too. */
static void attend_decode(run *r, int32_t layer, int32_t worker) {
    const ftki_config *c = r->c;
    attn_work w = work_of(r, worker);
    int32_t group = group_of(c), dim = ftki_kv_dim(c->head_dim), prepared_head = -1;
    ftki_attn a = {0};
    int32_t at = 0, head = 0, first = 0, last = 0; /* tasks `at`.. belong to `head`, segments [first, last) */
    for (int32_t task = ftki_team_next(r->team);; task = ftki_team_next(r->team)) {
        for (; head < c->n_kv_heads; at += last - first, head++) {
            const ftki_kv_list *list = ftki_kv_at(r->f->kv, layer, head);
            first = ftki_layer_slides(c, layer)
                        ? first_entry_from(list, r->f->position - c->window + 1) / (FTKI_PAGE * FTKI_SEGMENT)
                        : 0;
            last = n_segments(list->n_entries);
            if (task < at + last - first) break;
        }
        if (head == c->n_kv_heads) break;
        if (prepared_head != head) {
            a = attn_of(r, layer, head, 0, 1, &w);
            r->kern->attn_prepare(&a, w.prepared);
            prepared_head = head;
        }
        int32_t g = first + task - at;
        ftki_attn_state state = partial_of(r, head, g);
        r->kern->attn_segment(&a, w.prepared, g * FTKI_SEGMENT, segment_end(g, w.end[0]), &state);
    }
    ftki_team_barrier(r->team);
    for (head = ftki_team_next(r->team); head < c->n_kv_heads; head = ftki_team_next(r->team)) {
        a = attn_of(r, layer, head, 0, 1, &w);
        nothing_seen(&w.total, group, dim);
        int32_t begin = a.begin ? w.begin[0] : 0;
        for (int32_t g = begin / (FTKI_PAGE * FTKI_SEGMENT); g < n_segments(w.end[0]); g++) {
            ftki_attn_state state = partial_of(r, head, g);
            r->kern->attn_merge(&w.total, &state, group, dim);
        }
        r->kern->attn_finish(&a, &w.total, attended_of(r, head, 0), a.q_stride);
    }
    ftki_team_barrier(r->team);
}

/* What the chunk's last `observe` tokens attend to, per KV head: a by-product for reduction. */
static void observe(run *r, int32_t layer, int32_t worker) {
    const ftki_config *c = r->c;
    attn_work w = work_of(r, worker);
    int32_t per_task = task_tokens(c, r->n), dim = ftki_kv_dim(c->head_dim);
    for (int32_t head = ftki_team_next(r->team); head < c->n_kv_heads; head = ftki_team_next(r->team)) {
        float *columns = r->f->columns + ((size_t)layer * (size_t)c->n_kv_heads + (size_t)head) * r->f->columns_stride;
        for (int32_t first = r->n - r->f->observe; first < r->n; first += per_task) {
            int32_t n = r->n - first < per_task ? r->n - first : per_task, rows = n * group_of(c);
            ftki_attn a = attn_of(r, layer, head, first, n, &w);
            r->kern->attn_prepare(&a, w.prepared);
            nothing_seen(&w.total, rows, dim);
            for (int32_t g = 0; g < n_segments(w.end[n - 1]); g++) {
                r->kern->attn_segment(&a, w.prepared, g * FTKI_SEGMENT, segment_end(g, w.end[n - 1]), &w.segment);
                r->kern->attn_merge(&w.total, &w.segment, rows, dim);
            }
            r->kern->attn_columns(&a, w.prepared, &w.total, w.end[n - 1], columns);
        }
    }
    ftki_team_barrier(r->team);
}

/* ------------------------------------------------------------- the rest */

/* x [n][cols] as the next products' input. */
static void input_from(run *r, const float *x, int32_t cols) {
    int32_t begin, end;
    while (next_tokens(r, r->n, &begin, &end)) set_input(r, x, cols, begin, end);
    ftki_team_barrier(r->team);
}

static void activate(run *r) {
    int32_t begin, end, ffn = r->c->ffn;
    while (next_tokens(r, r->n, &begin, &end)) {
        for (int32_t t = begin; t < end; t++) {
            float *gate = r->s->gate + (size_t)t * (size_t)ffn;
            const float *up = r->s->up + (size_t)t * (size_t)ffn;
            (r->c->gelu ? r->kern->gelu_mul : r->kern->silu_mul)(gate, up, ffn, gate);
        }
        set_input(r, r->s->gate, ffn, begin, end);
    }
    ftki_team_barrier(r->team);
}

/* hidden += W x, with the branch normed before it joins when the family does so. */
static void join_branch(run *r, const ftki_matrix *w, const float *x, const float *post_norm) {
    int32_t begin, end, width = r->c->hidden;
    product p = {w, post_norm ? r->s->branch : r->s->hidden, !post_norm};
    multiply(r, x, w->cols, 0, r->n, &p, 1);
    if (!post_norm) return;
    while (next_tokens(r, r->n, &begin, &end)) {
        for (int32_t t = begin; t < end; t++) {
            float *b = r->s->branch + (size_t)t * (size_t)width;
            r->kern->rms_norm(b, post_norm, r->c->norm_eps, width, b);
            r->kern->add(b, width, r->s->hidden + (size_t)t * (size_t)width);
        }
    }
    ftki_team_barrier(r->team);
}

static void tap(run *r, int32_t worker, int32_t layer, const float *x) {
    if (!r->f->tap) return;
    if (worker == 0)
        r->f->tap(r->f->tap_ctx, layer, x, (size_t)r->n, (size_t)r->c->hidden);
    ftki_team_barrier(r->team);
}

static void forward_worker(void *ctx, int32_t worker, int32_t n_workers) {
    run *r = ctx;
    ftki_scratch *s = r->s;
    const ftki_config *c = r->c;
    (void)n_workers;
    embed(r);
    tap(r, worker, -1, s->hidden);
    for (int32_t i = 0; i < c->n_layers; i++) {
        const ftki_layer *y = &r->d->layers[i];
        if (worker == 0) {
            if (atomic_load(r->f->cancel)) r->status = ftki_fail(r->e, FTK_CANCELLED, "cancelled");
            else r->status = ftki_kv_append(r->f->kv, i, r->n, r->f->position, r->e);
        }
        norm_input(r, y->attn_norm); /* its barrier publishes the status */
        if (r->status != FTK_OK) return;

        multiply(r, s->normed, c->hidden, 0, r->n,
                 (product[]){{&y->q, s->q, false}, {&y->k, s->k, false}, {&y->v, s->v, false}}, 3);
        rotate_and_store(r, y, i);
        if (r->n == 1) attend_decode(r, i, worker);
        else attend_prefill(r, i, worker);
        if (r->f->observe > 0 && !ftki_layer_slides(c, i)) observe(r, i, worker);
        input_from(r, s->attended, c->n_heads * c->head_dim);
        join_branch(r, &y->o, s->attended, y->attn_post_norm);

        norm_input(r, y->ffn_norm);
        multiply(r, s->normed, c->hidden, 0, r->n,
                 (product[]){{&y->gate, s->gate, false}, {&y->up, s->up, false}}, 2);
        activate(r);
        join_branch(r, &y->down, s->gate, y->ffn_post_norm);
        tap(r, worker, i, s->hidden);
    }
    if (r->f->n_logits == 0 && !r->f->tap) return;
    norm_input(r, r->d->final_norm);
    tap(r, worker, c->n_layers, s->normed);
    if (r->f->n_logits > 0)
        multiply(r, s->normed, c->hidden, r->n - r->f->n_logits, r->f->n_logits,
                 &(product){&r->d->output, r->f->logits, false}, 1);
}

ftk_status ftki_forward_run(ftki_forward *f, ftk_error *e) {
    run r = {.f = f, .d = f->decoder, .c = &f->decoder->config, .kern = f->decoder->kernels,
             .s = f->scratch, .team = f->team, .n = f->n, .status = FTK_OK, .e = e};
    const ftki_config *c = r.c;
    for (int32_t t = 0; t < f->n; t++)
        if (f->tokens[t] < 0 || f->tokens[t] >= c->n_vocab)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "token %d at position %d is outside the vocabulary of %d",
                             f->tokens[t], f->position + t, c->n_vocab);
    ftki_team_run(f->team, forward_worker, &r);
    if (r.status != FTK_OK) {
        ftki_kv_rewind(f->kv, f->position);
        return r.status;
    }
    f->attn_madds = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        for (int32_t h = 0; h < c->n_kv_heads; h++) {
            for (int32_t t = 0; t < f->n; t++) {
                int64_t seen = ftki_kv_at(f->kv, i, h)->n_entries - f->n + t + 1;
                if (ftki_layer_slides(c, i) && seen > c->window) seen = c->window;
                f->attn_madds += 2u * (uint64_t)seen * (uint64_t)(group_of(c) * c->head_dim);
            }
        }
    }
    return FTK_OK;
}

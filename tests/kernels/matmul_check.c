// SPDX-License-Identifier: Apache-2.0
/* The check of the matrix product: every weight type, sizes around the tiles, adversarial codes,
 * scales and activations. Each level must give the scalar one's bits; the scalar one is compared
 * with a double-precision sum over the weights as ftki_matrix_row reads them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format/quants.h"
#include "kernels/harness.h"

static const ftki_type types[] = {FTKI_Q8_0, FTKI_Q4_1, FTKI_Q4_0, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K,
                                  FTKI_Q5_0, FTKI_Q5_1, FTKI_F32,  FTKI_F16,  FTKI_BF16};
enum { N_TYPES = sizeof types / sizeof types[0] };

typedef struct problem {
    ftki_matrix w;
    ftki_acts x;
    int32_t panel_begin, panel_end;
    size_t stride;
    bool add;
    ht_pattern acts_pattern;
    char name[96];
} problem;

/* ---------------------------------------------------------------- weights */

/* A half-precision scale: ordinary, or one of the extremes. */
static uint16_t some_scale(ht *t, bool extremes) {
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x0400};
    if (extremes && ht_below(t, 4) == 0) return odd[ht_below(t, 7)];
    return (uint16_t)(0x1800 + ht_below(t, 0x1000) + (ht_below(t, 2) ? 0x8000 : 0));
}

static void put_scale(ht *t, unsigned char *at, bool extremes) {
    uint16_t h = some_scale(t, extremes);
    memcpy(at, &h, 2);
}

/* Blocks of a row: codes all low, all high, the sign bit alone, or random; scales where the
 * format has them. */
static void fill_blocks(ht *t, ftki_type type, unsigned char *p, size_t n_blocks, size_t bytes,
                        bool extremes) {
    static const unsigned char codes[] = {0x00, 0xff, 0x80, 0x7f};
    for (size_t b = 0; b < n_blocks; b++, p += bytes) {
        int32_t how = ht_below(t, 8);
        for (size_t i = 0; i < bytes; i++)
            p[i] = how < 4 ? codes[how] : (unsigned char)ftki_rng_u32(&t->rng);
        if (type == FTKI_Q6_K) put_scale(t, p + 208, extremes);
        else put_scale(t, p, extremes);
        if (type == FTKI_Q4_1 || type == FTKI_Q5_1 || type == FTKI_Q4_K || type == FTKI_Q5_K)
            put_scale(t, p + 2, extremes);
    }
}

static void fill_floats(ht *t, ftki_type type, unsigned char *p, size_t n, ht_pattern pattern) {
    for (size_t i = 0; i < n; i++) {
        float f;
        ht_floats(t, &f, 1, pattern);
        uint32_t bits;
        memcpy(&bits, &f, 4);
        uint16_t half = type == FTKI_F16 ? ftki_f32_to_f16(f) : (uint16_t)(bits >> 16);
        if (type == FTKI_F32) memcpy(p + 4 * i, &f, 4);
        else memcpy(p + 2 * i, &half, 2);
    }
}

static void make_weights(ht *t, problem *p, ftki_type type, int32_t rows, int32_t cols, bool extremes) {
    const ftki_type_info *info = ftki_type_find(type);
    size_t per_row = (size_t)cols / info->block, n = (size_t)rows * per_row;
    unsigned char *src = ht_alloc(t, n * info->block_bytes, 1);
    if (info->block > 1) fill_blocks(t, type, src, n, info->block_bytes, extremes);
    else fill_floats(t, type, src, n, extremes ? (ht_pattern)ht_below(t, HT_N_PATTERNS) : HT_PLAIN);
    void *memory = ht_alloc(t, ftki_pack_bytes(type, rows, cols), FTKI_ALIGN);
    ftki_pack_begin(&p->w, type, rows, cols, memory);
    ftki_pack_panels(&p->w, src, NULL, 0, p->w.n_panels);
}

/* ------------------------------------------------------------ activations */

/* Full-scale values of random sign make every code +-127. */
static void make_acts(ht *t, problem *p, int32_t rows, int32_t first, bool extremes) {
    int32_t cols = p->w.cols;
    size_t n = (size_t)(first + rows) * (size_t)cols;
    p->acts_pattern = extremes ? (ht_pattern)ht_below(t, HT_N_PATTERNS) : HT_PLAIN;
    float *f = ht_alloc(t, n * sizeof(float), sizeof(float));
    ht_floats(t, f, n, p->acts_pattern);
    if (extremes && ht_below(t, 3) == 0)
        for (size_t i = 0; i < n; i++) f[i] = f[i] < 0 ? -1.0f : 1.0f;
    p->x = (ftki_acts){.rows = rows, .cols = cols, .first = first, .f = f, .f_stride = (size_t)cols};
    if (p->w.kind != FTKI_W_U8 && p->w.kind != FTKI_W_U4) return;
    p->x.blocks = ht_alloc(t, ftki_acts_bytes(first + rows, cols), FTKI_ALIGN);
    t->scalar->quantize(&p->x, f, (size_t)cols, 0, first + rows);
    p->x.f = NULL;
}

/* --------------------------------------------------------------- outcomes */

static float *make_output(ht *t, const problem *p) {
    size_t n = (size_t)(p->x.rows - 1) * p->stride + (size_t)p->w.rows;
    return ht_alloc(t, n * sizeof(float), sizeof(float));
}

/* Columns [*begin, *end) are the product's. */
static void output_range(const problem *p, int32_t *begin, int32_t *end) {
    *begin = p->panel_begin * FTKI_PANEL;
    *end = p->panel_end * FTKI_PANEL < p->w.rows ? p->panel_end * FTKI_PANEL : p->w.rows;
}

/* What the activations stand for. */
static double act_value(const problem *p, int32_t row, int32_t i) {
    row += p->x.first;
    if (p->x.f) return (double)p->x.f[(size_t)row * p->x.f_stride + (size_t)i];
    const ftki_act_block *a = p->x.blocks +
        (size_t)(row / FTKI_ACT_ROWS) * (size_t)(p->x.cols / FTKI_BLOCK) + (size_t)(i / FTKI_BLOCK);
    return (double)a->scale[row % FTKI_ACT_ROWS] * a->q[row % FTKI_ACT_ROWS][i % FTKI_BLOCK];
}

static void compare_with_double(ht *t, const problem *p, const float *y, const float *before) {
    int32_t begin, end;
    output_range(p, &begin, &end);
    float *weights = malloc((size_t)p->w.cols * sizeof(float));
    bool good = true;
    for (int32_t o = begin; o < end && good; o++) {
        ftki_matrix_row(&p->w, o, weights);
        for (int32_t r = 0; r < p->x.rows && good; r++) {
            double sum = 0, size = 0;
            for (int32_t i = 0; i < p->w.cols; i++) {
                double product = (double)weights[i] * act_value(p, r, i);
                sum += product;
                size += fabs(product);
                /* with mins the parts of a weight are rounded apart and may cancel */
                if (p->w.mins) size += 33 * fabs((double)weights[i]) * fabs(act_value(p, r, i));
            }
            size_t at = (size_t)r * p->stride + (size_t)o;
            if (p->add) sum += (double)before[at], size += fabs((double)before[at]);
            double bound = size * 0x1p-24 * (p->w.cols + 8) + 1e-40 * p->w.cols;
            char where[160];
            snprintf(where, sizeof where, "%s: row %d, output %d against double", p->name, r, o);
            good = ht_near(t, (double)y[at], sum, bound, where);
        }
    }
    free(weights);
}

static void compare_outputs(ht *t, const problem *p, const float *y, const float *want,
                            const float *before) {
    int32_t begin, end, width = p->w.rows;
    output_range(p, &begin, &end);
    for (int32_t r = 0; r < p->x.rows && !t->failures; r++) {
        size_t at = (size_t)r * p->stride;
        char where[160];
        snprintf(where, sizeof where, "%s: row %d", p->name, r);
        ht_same(t, y + at + begin, want + at + begin, (size_t)(end - begin), where);
        ht_same_bytes(t, y + at, before + at, (size_t)begin * 4, where);
        ht_same_bytes(t, y + at + end, before + at + end, (size_t)(width - end) * 4, where);
        if (r + 1 < p->x.rows) ht_untouched(t, y + at + width, (p->stride - (size_t)width) * 4, where);
    }
}

static void run_problem(ht *t, const problem *p, bool finite) {
    float *y = make_output(t, p), *want = make_output(t, p), *before = make_output(t, p);
    for (int32_t r = 0; r < p->x.rows; r++) {
        float *row = before + (size_t)r * p->stride;
        ht_floats(t, row, (size_t)p->w.rows, HT_PLAIN);
        memcpy(y + (size_t)r * p->stride, row, (size_t)p->w.rows * sizeof(float));
        memcpy(want + (size_t)r * p->stride, row, (size_t)p->w.rows * sizeof(float));
    }
    t->table->matmul(&p->w, &p->x, p->panel_begin, p->panel_end, y, p->stride, p->add);
    t->scalar->matmul(&p->w, &p->x, p->panel_begin, p->panel_end, want, p->stride, p->add);
    compare_outputs(t, p, y, want, before);
    if (t->table == t->scalar && finite) compare_with_double(t, p, y, before);
}

/* ----------------------------------------------------------- awkward sizes */

/* Tiles are 1 to 12 rows, in groups of 4, by panels of 16; many rows go in chunks of 64. */
static const int32_t row_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 23, 24, 25, 63, 64, 70, 131};
static const int32_t outputs[] = {1, 7, 15, 16, 17, 31, 32, 33, 47, 64, 65, 80};

static int32_t some_cols(ht *t, ftki_type type) {
    uint32_t block = ftki_type_find(type)->block;
    if (block == 1) return 1 + ht_below(t, 70);
    return (int32_t)block * (1 + ht_below(t, block == 256 ? 2 : 9));
}

static void awkward(ht *t, ftki_type type) {
    problem p = {0};
    bool extremes = ht_below(t, 2);
    int32_t rows = row_counts[ht_below(t, (int32_t)(sizeof row_counts / sizeof row_counts[0]))];
    make_weights(t, &p, type, outputs[ht_below(t, (int32_t)(sizeof outputs / sizeof outputs[0]))],
                 some_cols(t, type), extremes);
    make_acts(t, &p, rows, ht_below(t, 3) ? 0 : ht_below(t, 6), extremes);
    p.panel_begin = ht_below(t, 2) ? 0 : ht_below(t, p.w.n_panels);
    p.panel_end = ht_below(t, 2) ? p.w.n_panels : p.panel_begin + ht_below(t, p.w.n_panels - p.panel_begin + 1);
    p.stride = (size_t)p.w.rows + (size_t)(ht_below(t, 2) ? 0 : ht_below(t, 20));
    p.add = ht_below(t, 2);
    snprintf(p.name, sizeof p.name, "%s, %d rows from %d, %d x %d, panels %d..%d%s, %s",
             ftki_type_find(type)->name, rows, p.x.first, p.w.rows, p.w.cols, p.panel_begin,
             p.panel_end, p.add ? ", add" : "", ht_pattern_name(p.acts_pattern));
    run_problem(t, &p, !extremes);
}

/* ------------------------------------------------------------------ timing */

typedef struct shared_work {
    ht *t;
    const problem *p;
    float *y;
} shared_work;

enum { PANELS_PER_TASK = 6 };

static void team_matmul(void *ctx, int32_t worker, int32_t n_workers) {
    shared_work *s = ctx;
    (void)worker, (void)n_workers;
    for (;;) {
        int32_t begin = ftki_team_next(s->t->team) * PANELS_PER_TASK, end = begin + PANELS_PER_TASK;
        if (begin >= s->p->w.n_panels) return;
        if (end > s->p->w.n_panels) end = s->p->w.n_panels;
        s->t->table->matmul(&s->p->w, &s->p->x, begin, end, s->y, s->p->stride, false);
    }
}

static void time_shape(ht *t, ftki_type type, int32_t rows, int32_t cols, int32_t out) {
    problem p = {0};
    make_weights(t, &p, type, out, cols, false);
    make_acts(t, &p, rows, 0, false);
    p.stride = (size_t)out;
    p.panel_end = p.w.n_panels;
    shared_work work = {t, &p, make_output(t, &p)};
    double ops = 2.0 * rows * cols * out, bytes = rows < 8 ? (double)ftki_matrix_bytes(&p.w) : 0;
    char label[80];
    snprintf(label, sizeof label, "%s %d x %d -> %d", ftki_type_find(type)->name, rows, cols, out);
    HT_BENCH(t, label, ops, bytes,
             t->table->matmul(&p.w, &p.x, 0, p.panel_end, work.y, p.stride, false));
    int32_t n_threads = ftki_team_size(t->team);
    if (n_threads > 1) {
        snprintf(label, sizeof label, "%s %d x %d -> %d, %d threads", ftki_type_find(type)->name, rows,
                 cols, out, n_threads);
        HT_BENCH_THREADS(t, label, ops, bytes, n_threads, ftki_team_run(t->team, team_matmul, &work));
    }
    ht_release(t);
}

static void time_all(ht *t) {
    static const int32_t shapes[][2] = {{576, 576},   {576, 1536}, {1536, 576}, {896, 4864},
                                        {4864, 896},  {640, 2048}, {2048, 640}};
    static const int32_t rows[] = {1, 4, 12, 64, 256};
    for (size_t k = 0; k < N_TYPES; k++) {
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            bool usual = types[k] == FTKI_Q8_0 || types[k] == FTKI_Q4_1;
            if (!usual && shapes[s][1] != 4864 && shapes[s][0] != 4864) continue;
            if (shapes[s][0] % (int32_t)ftki_type_find(types[k])->block) time_shape(t, types[k], 256, 768, 1536);
            else for (size_t r = 0; r < 5; r++)
                if (usual || rows[r] == 1 || rows[r] == 256)
                    time_shape(t, types[k], rows[r], shapes[s][0], shapes[s][1]);
        }
        if (ftki_type_find(types[k])->block <= 32) time_shape(t, types[k], 1, 576, 49152);
    }
}

void check_matmul(ht *t) {
    if (t->bench) {
        time_all(t);
        return;
    }
    for (int round = 0; round < 12; round++)
        for (size_t k = 0; k < N_TYPES && !t->failures; k++) {
            awkward(t, types[k]);
            ht_release(t);
        }
}

// SPDX-License-Identifier: Apache-2.0
/* From a file's tensors to packed weights. First every tensor the family needs is found and its
 * shape checked, and every tensor of the file is claimed by somebody; only then is memory taken
 * and packing begun. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/quants.h"
#include "model/decoder.h"

/* One tensor and where it goes: a matrix to pack or a vector to copy. */
typedef struct slot {
    const ftki_tensor *tensor;
    ftki_matrix *matrix; /* NULL: a vector */
    const float **vector;
    size_t arena_at;
} slot;

typedef struct loader {
    ftki_decoder *d;
    const ftki_gguf *g;
    bool *claimed;  /* [n_tensors] */
    slot *slots;    /* [n_slots] of room for n_tensors + 1 (a tied output is packed from a claimed one) */
    size_t n_slots;
    ftk_error *e;
} loader;

typedef struct tensor_name {
    char text[96];
} tensor_name;

static tensor_name name_of(int32_t layer, const char *suffix) {
    tensor_name n;
    if (layer < 0) snprintf(n.text, sizeof n.text, "%s", suffix);
    else snprintf(n.text, sizeof n.text, "blk.%d.%s", layer, suffix);
    return n;
}

/* Finds a tensor, claims it and checks its shape [rows, cols] (rows 0: a vector of cols). */
static ftk_status find(loader *l, int32_t layer, const char *suffix, bool required, int64_t rows,
                       int64_t cols, const ftki_tensor **out) {
    tensor_name name = name_of(layer, suffix);
    const ftki_tensor *t = ftki_gguf_tensor(l->g, name.text);
    *out = NULL;
    if (!t) {
        if (!required) return FTK_OK;
        return ftki_fail_layer(l->e, FTK_FORMAT, layer, "tensor '%s' is missing", name.text);
    }
    uint64_t want_rows = rows ? (uint64_t)rows : 1;
    if (t->dims[0] != (uint64_t)cols || t->dims[1] != want_rows || t->dims[2] != 1 || t->dims[3] != 1)
        return ftki_fail_at(l->e, FTK_FORMAT, (int64_t)t->offset,
                            "tensor '%s' has shape [%llu, %llu, %llu], must be [%lld, %lld]", name.text,
                            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                            (unsigned long long)t->dims[2], (long long)cols, (long long)want_rows);
    l->claimed[t - l->g->tensors] = true;
    *out = t;
    return FTK_OK;
}

static ftk_status want_matrix(loader *l, int32_t layer, const char *suffix, int32_t rows,
                              int32_t cols, ftki_matrix *out) {
    const ftki_tensor *t;
    FTKI_TRY(find(l, layer, suffix, true, rows, cols, &t));
    if (ftki_pack_bytes(t->type, rows, cols) == 0)
        return ftki_fail_at(l->e, FTK_UNSUPPORTED, (int64_t)t->offset,
                            "tensor '%s' of type %s and %d columns cannot be packed", t->name,
                            ftki_type_name_of(t->type), cols);
    l->slots[l->n_slots++] = (slot){.tensor = t, .matrix = out};
    return FTK_OK;
}

static ftk_status want_vector(loader *l, int32_t layer, const char *suffix, bool required, int32_t n,
                              const float **out) {
    const ftki_tensor *t;
    FTKI_TRY(find(l, layer, suffix, required, 0, n, &t));
    if (!t) return FTK_OK;
    if (t->type != FTKI_F32 && t->type != FTKI_F16 && t->type != FTKI_BF16)
        return ftki_fail_at(l->e, FTK_UNSUPPORTED, (int64_t)t->offset,
                            "vector '%s' is %s; F32, F16 and BF16 are supported", t->name,
                            ftki_type_name_of(t->type));
    l->slots[l->n_slots++] = (slot){.tensor = t, .vector = out};
    return FTK_OK;
}

static ftk_status want_layer(loader *l, int32_t i) {
    const ftki_config *c = &l->d->config;
    ftki_layer *y = &l->d->layers[i];
    int32_t q_rows = c->n_heads * c->head_dim, kv_rows = c->n_kv_heads * c->head_dim;
    bool qk_norm = c->arch == FTKI_QWEN3 || c->arch == FTKI_GEMMA3;
    bool post_norm = c->arch == FTKI_GEMMA3;
    FTKI_TRY(want_vector(l, i, "attn_norm.weight", true, c->hidden, &y->attn_norm));
    FTKI_TRY(want_matrix(l, i, "attn_q.weight", q_rows, c->hidden, &y->q));
    FTKI_TRY(want_matrix(l, i, "attn_k.weight", kv_rows, c->hidden, &y->k));
    FTKI_TRY(want_matrix(l, i, "attn_v.weight", kv_rows, c->hidden, &y->v));
    bool bias = c->arch == FTKI_QWEN2;
    FTKI_TRY(want_vector(l, i, "attn_q.bias", bias, q_rows, &y->q_bias));
    FTKI_TRY(want_vector(l, i, "attn_k.bias", bias, kv_rows, &y->k_bias));
    FTKI_TRY(want_vector(l, i, "attn_v.bias", bias, kv_rows, &y->v_bias));
    if (qk_norm) {
        FTKI_TRY(want_vector(l, i, "attn_q_norm.weight", true, c->head_dim, &y->q_norm));
        FTKI_TRY(want_vector(l, i, "attn_k_norm.weight", true, c->head_dim, &y->k_norm));
    }
    FTKI_TRY(want_matrix(l, i, "attn_output.weight", c->hidden, q_rows, &y->o));
    if (post_norm)
        FTKI_TRY(want_vector(l, i, "post_attention_norm.weight", true, c->hidden, &y->attn_post_norm));
    FTKI_TRY(want_vector(l, i, "ffn_norm.weight", true, c->hidden, &y->ffn_norm));
    FTKI_TRY(want_matrix(l, i, "ffn_gate.weight", c->ffn, c->hidden, &y->gate));
    FTKI_TRY(want_matrix(l, i, "ffn_up.weight", c->ffn, c->hidden, &y->up));
    FTKI_TRY(want_matrix(l, i, "ffn_down.weight", c->hidden, c->ffn, &y->down));
    if (post_norm)
        FTKI_TRY(want_vector(l, i, "post_ffw_norm.weight", true, c->hidden, &y->ffn_post_norm));
    return FTK_OK;
}

static ftk_status want_all(loader *l, const float **divisors) {
    ftki_decoder *d = l->d;
    const ftki_config *c = &d->config;
    for (int32_t i = 0; i < c->n_layers; i++) FTKI_TRY(want_layer(l, i));
    FTKI_TRY(want_vector(l, -1, "output_norm.weight", true, c->hidden, &d->final_norm));
    FTKI_TRY(want_vector(l, -1, "rope_freqs.weight", false, c->head_dim / 2, divisors));
    const ftki_tensor *embedding;
    FTKI_TRY(find(l, -1, "token_embd.weight", true, c->n_vocab, c->hidden, &embedding));
    bool tied = ftki_gguf_tensor(l->g, "output.weight") == NULL;
    FTKI_TRY(want_matrix(l, -1, tied ? "token_embd.weight" : "output.weight", c->n_vocab, c->hidden,
                         &d->output));
    d->embedding = tied ? NULL : embedding;
    for (size_t i = 0; i < l->g->n_tensors; i++)
        if (!l->claimed[i])
            return ftki_fail_at(l->e, FTK_UNSUPPORTED, (int64_t)l->g->tensors[i].offset,
                                "tensor '%.80s' is not part of a %s model as this version knows it",
                                l->g->tensors[i].name, c->arch_name);
    return FTK_OK;
}

/* ------------------------------------------------------------------ packing */

typedef struct pack_job {
    ftki_team *team;
    ftki_matrix *matrix;
    const void *src;
} pack_job;

enum { PACK_PANELS = 8 }; /* panels packed per claim */

static void pack_worker(void *ctx, int32_t worker, int32_t n_workers) {
    pack_job *j = ctx;
    (void)worker, (void)n_workers;
    for (;;) {
        int32_t begin = ftki_team_next(j->team) * PACK_PANELS;
        if (begin >= j->matrix->n_panels) break;
        int32_t end = begin + PACK_PANELS;
        ftki_pack_panels(j->matrix, j->src, NULL, begin,
                         end < j->matrix->n_panels ? end : j->matrix->n_panels);
    }
}

static ftk_status fill(loader *l, ftki_team *team, ftk_progress_fn progress, void *progress_ctx) {
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < l->n_slots; i++) total += l->slots[i].tensor->bytes;
    for (size_t i = 0; i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        const ftki_tensor *t = s->tensor;
        if (s->matrix) {
            pack_job job = {.team = team, .matrix = s->matrix, .src = t->data};
            ftki_team_run(team, pack_worker, &job);
            ftki_mapfile_drop(&l->g->file, (size_t)t->offset, (size_t)t->bytes);
        } else {
            float *to = ftki_arena_at(&l->d->arena, s->arena_at);
            ftki_dequantize_row(t->type, t->data, to, (size_t)t->dims[0]);
            *s->vector = to;
        }
        done += t->bytes;
        if (progress && !progress(progress_ctx, "packing", done, total))
            return ftki_fail(l->e, FTK_CANCELLED, "packing was cancelled");
    }
    return FTK_OK;
}

/* The mean over positions 0 .. SHIFT_SPAN - 1 of a wave's cosine and sine. */
enum { SHIFT_SPAN = 2048 };
static void mean_rotation(double freq, double *cosine, double *sine) {
    double half = freq / 2, size = sin(half) != 0.0 ? sin(SHIFT_SPAN * half) / sin(half) : (double)SHIFT_SPAN;
    *cosine = size * cos((SHIFT_SPAN - 1) * half) / SHIFT_SPAN;
    *sine = size * sin((SHIFT_SPAN - 1) * half) / SHIFT_SPAN;
}

/* k_shift of a layer with key biases: minus the bias as rotated at the mean position. Such biases
 * (Qwen2's reach 100 times the rest of a key) are much the same in all keys, and what all keys
 * share changes no softmax but takes most of the range of 8-bit codes. */
static void shift_keys(const ftki_decoder *d, const ftki_layer *y, const float *freq, float scale, float *shift) {
    const ftki_config *c = &d->config;
    int32_t pairs = c->head_dim / 2;
    for (int32_t h = 0; h < c->n_kv_heads; h++)
        for (int32_t p = 0; p < pairs; p++) {
            int32_t first = h * c->head_dim + (c->rope_interleaved ? 2 * p : p);
            int32_t second = first + (c->rope_interleaved ? 1 : pairs);
            double a = (double)y->k_bias[first], b = (double)y->k_bias[second], cosine, sine;
            mean_rotation((double)freq[p], &cosine, &sine);
            shift[first] = (float)(-(double)scale * (a * cosine - b * sine));
            shift[second] = (float)(-(double)scale * (a * sine + b * cosine));
        }
}

static bool is_float(const ftki_matrix *m) { return m->kind >= FTKI_W_F16; }

static void account(ftki_decoder *d) {
    const ftki_config *c = &d->config;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const ftki_layer *y = &d->layers[i];
        for (const ftki_matrix *const *m = (const ftki_matrix *const[]){&y->q, &y->k, &y->v, &y->o, &y->gate,
                                                                 &y->up, &y->down, NULL}; *m; m++) {
            const ftki_matrix *w = *m;
            d->weight_bytes += ftki_matrix_bytes(w);
            d->matrix_madds += (uint64_t)w->rows * (uint64_t)w->cols;
            d->float_weights |= is_float(w);
        }
    }
    d->weight_bytes += ftki_matrix_bytes(&d->output);
    d->float_weights |= is_float(&d->output);
}

ftk_status ftki_decoder_open(ftki_decoder *out, const ftki_gguf *g, const ftki_kernels *kernels,
                             int32_t n_threads, ftk_progress_fn progress, void *progress_ctx,
                             ftk_error *e) {
    ftki_decoder d = {.kernels = kernels};
    ftki_team *team = NULL;
    loader l = {.d = &d, .g = g, .e = e};
    const float *divisors = NULL;
    ftk_status status = ftki_config_read(&d.config, g, e);
    if (status != FTK_OK) return status;
    const ftki_tensor *embedding = ftki_gguf_tensor(g, "token_embd.weight");
    if (!embedding) return ftki_fail(e, FTK_FORMAT, "tensor 'token_embd.weight' is missing");
    if (embedding->dims[1] > FTKI_MAX_VOCAB)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)embedding->offset,
                            "tensor 'token_embd.weight' has %llu rows, at most %d are supported",
                            (unsigned long long)embedding->dims[1], FTKI_MAX_VOCAB);
    d.config.n_vocab = (int32_t)embedding->dims[1];

    l.claimed = ftki_alloc(g->n_tensors, sizeof *l.claimed);
    l.slots = ftki_alloc(g->n_tensors + 1, sizeof *l.slots);
    d.layers = ftki_alloc((size_t)d.config.n_layers, sizeof *d.layers);
    if (!l.claimed || !l.slots || !d.layers) {
        status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the tensor directory");
        goto done;
    }
    status = want_all(&l, &divisors);
    if (status != FTK_OK) goto done;

    int32_t pairs = d.config.head_dim / 2;
    size_t freq_at = ftki_arena_plan(&d.arena, (size_t)pairs * 2, sizeof(float));
    size_t kv_width = (size_t)d.config.n_kv_heads * (size_t)d.config.head_dim;
    size_t shift_at = ftki_arena_plan(&d.arena, (size_t)d.config.n_layers * kv_width, sizeof(float));
    for (size_t i = 0; i < l.n_slots; i++) {
        slot *s = &l.slots[i];
        s->arena_at = s->matrix ? ftki_arena_plan(&d.arena, 1,
                                                  ftki_pack_bytes(s->tensor->type, (int64_t)s->tensor->dims[1],
                                                                  (int64_t)s->tensor->dims[0]))
                                : ftki_arena_plan(&d.arena, (size_t)s->tensor->dims[0], sizeof(float));
    }
    status = ftki_arena_commit(&d.arena, e);
    if (status != FTK_OK) goto done;
    for (size_t i = 0; i < l.n_slots; i++) {
        slot *s = &l.slots[i];
        if (s->matrix)
            ftki_pack_begin(s->matrix, s->tensor->type, (int32_t)s->tensor->dims[1],
                            (int32_t)s->tensor->dims[0], ftki_arena_at(&d.arena, s->arena_at));
    }
    status = ftki_team_open(&team, n_threads, e);
    if (status != FTK_OK) goto done;
    status = fill(&l, team, progress, progress_ctx);
    if (status != FTK_OK) goto done;

    float *freq = ftki_arena_at(&d.arena, freq_at);
    d.rope_scale = ftki_rope_frequencies(&d.config.rope, d.config.head_dim, divisors, freq);
    d.rope_scale_local =
        ftki_rope_frequencies(&d.config.rope_local, d.config.head_dim, NULL, freq + pairs);
    d.freq = freq;
    d.freq_local = freq + pairs;
    float *shift = ftki_arena_at(&d.arena, shift_at);
    for (int32_t i = 0; i < d.config.n_layers; i++) {
        ftki_layer *y = &d.layers[i];
        if (!y->k_bias) continue;
        bool slides = ftki_layer_slides(&d.config, i);
        y->k_shift = shift + (size_t)i * kv_width;
        shift_keys(&d, y, slides ? d.freq_local : d.freq, slides ? d.rope_scale_local : d.rope_scale,
                   shift + (size_t)i * kv_width);
    }
    account(&d);
done:
    ftki_team_close(team);
    ftki_free(l.claimed);
    ftki_free(l.slots);
    if (status == FTK_OK) *out = d;
    else ftki_decoder_close(&d);
    return status;
}

void ftki_decoder_close(ftki_decoder *d) {
    ftki_arena_close(&d->arena);
    ftki_free(d->layers);
    memset(d, 0, sizeof *d);
}

// SPDX-License-Identifier: Apache-2.0
/* From the keys and tensors of an encoder's file to packed weights. Every tensor the family needs is found and
 * its shape checked, every tensor of the file must be claimed, and only then memory is taken and packing begun. */
#include <stdio.h>
#include <string.h>

#include "format/quants.h"
#include "model/encoder.h"

static const struct {
    const char *name;
    ftki_encoder_arch arch;
} archs[] = {{"vit", FTKI_VIT}, {"bert", FTKI_BERT}, {"kwt", FTKI_KWT}, {"whisper-encoder", FTKI_WHISPER}};

static bool same_text(ftki_text t, const char *s) { return strlen(s) == t.len && memcmp(s, t.data, t.len) == 0; }

static bool find_arch(const ftki_gguf *g, ftki_encoder_config *c) {
    ftki_text name;
    if (ftki_gguf_text(g, "general.architecture", &name, NULL) != FTK_OK) return false;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (same_text(name, archs[i].name)) {
            c->arch = archs[i].arch;
            c->arch_name = archs[i].name;
            return true;
        }
    return false;
}

bool ftki_encoder_is(const ftki_gguf *g) {
    ftki_encoder_config c;
    return find_arch(g, &c);
}

/* --------------------------------------------------------------------- keys */

typedef struct key_name {
    char text[96];
} key_name;

static key_name key_of(const ftki_encoder_config *c, const char *key) {
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch_name, key);
    return k;
}

static ftk_status read_dim(const ftki_gguf *g, const ftki_encoder_config *c, const char *key, int32_t limit,
                           int32_t *out, ftk_error *e) {
    key_name name = key_of(c, key);
    uint32_t value = 0;
    FTKI_TRY(ftki_gguf_u32(g, name.text, &value, e));
    if (value < 1 || value > (uint32_t)limit)
        return ftki_fail(e, FTK_FORMAT, "key %s is %u, must be 1 to %d", name.text, value, limit);
    *out = (int32_t)value;
    return FTK_OK;
}

static ftk_status read_real(const ftki_gguf *g, const ftki_encoder_config *c, const char *key, float low, float high,
                            float *out, ftk_error *e) {
    key_name name = key_of(c, key);
    FTKI_TRY(ftki_gguf_f32_or(g, name.text, out, e));
    if (!(*out >= low && *out <= high))
        return ftki_fail(e, FTK_FORMAT, "key %s is %g, must be %g to %g", name.text, (double)*out, (double)low,
                         (double)high);
    return FTK_OK;
}

/* A text that must be one of `choices` (NULL-terminated); *out is its index, kept when the key is absent. */
static ftk_status read_choice(const ftki_gguf *g, const ftki_encoder_config *c, const char *key,
                              const char *const *choices, int *out, ftk_error *e) {
    key_name name = key_of(c, key);
    ftki_text text = {NULL, 0};
    FTKI_TRY(ftki_gguf_text_or(g, name.text, &text, e));
    if (!text.data) return FTK_OK;
    for (int i = 0; choices[i]; i++)
        if (same_text(text, choices[i])) {
            *out = i;
            return FTK_OK;
        }
    return ftki_fail(e, FTK_UNSUPPORTED, "key %s is '%s', which is not supported", name.text,
                     ftki_quote(text.data, text.len).text);
}

static ftk_status read_triple(const ftki_gguf *g, const ftki_encoder_config *c, const char *key, float out[3],
                              ftk_error *e) {
    key_name name = key_of(c, key);
    const ftki_key *k;
    FTKI_TRY(ftki_gguf_array(g, name.text, FTKI_KEY_F32, &k, e));
    if (!k) return FTK_OK;
    if (k->count != (uint64_t)c->info.channels)
        return ftki_fail(e, FTK_FORMAT, "key %s has %llu values for %d channels", name.text,
                         (unsigned long long)k->count, c->info.channels);
    memcpy(out, k->data, (size_t)k->count * sizeof(float));
    return FTK_OK;
}

static int32_t padded(int32_t cols) { return (cols + FTKI_BLOCK - 1) / FTKI_BLOCK * FTKI_BLOCK; }

static ftk_status read_vision(ftki_encoder_config *c, const ftki_gguf *g, ftk_error *e) {
    ftk_encoder_info *f = &c->info;
    FTKI_TRY(read_dim(g, c, "image_size", 4096, &f->image_size, e));
    FTKI_TRY(read_dim(g, c, "patch_size", 256, &f->patch, e));
    FTKI_TRY(read_dim(g, c, "channels", 3, &f->channels, e));
    if (f->image_size % f->patch != 0)
        return ftki_fail(e, FTK_FORMAT, "patches of %d do not divide an image of %d", f->patch, f->image_size);
    c->grid = f->image_size / f->patch;
    for (int i = 0; i < 3; i++) f->mean[i] = f->deviation[i] = 0.5f;
    FTKI_TRY(read_triple(g, c, "image_mean", f->mean, e));
    FTKI_TRY(read_triple(g, c, "image_std", f->deviation, e));
    f->crop = 0.9f;
    FTKI_TRY(read_real(g, c, "crop_pct", 0.1f, 1.0f, &f->crop, e));
    static const char *const kinds[] = {"bicubic", "bilinear", NULL};
    int kind = 0;
    FTKI_TRY(read_choice(g, c, "interpolation", kinds, &kind, e));
    f->interpolation = kinds[kind];
    c->input_cols = padded(f->channels * f->patch * f->patch);
    f->input = FTK_INPUT_PIXELS;
    return FTK_OK;
}

static ftk_status read_audio(ftki_encoder_config *c, const ftki_gguf *g, ftk_error *e) {
    ftk_encoder_info *f = &c->info;
    f->input = FTK_INPUT_FEATURES;
    f->features_kind = c->arch == FTKI_KWT ? "mfcc" : "log-mel";
    FTKI_TRY(read_dim(g, c, "audio.frames", 1 << 15, &f->frames, e));
    FTKI_TRY(read_dim(g, c, "audio.features", 1024, &f->features, e));
    FTKI_TRY(read_dim(g, c, "audio.sample_rate", 192000, &f->sample_rate, e));
    FTKI_TRY(read_dim(g, c, "audio.window", 1 << 16, &f->window, e));
    FTKI_TRY(read_dim(g, c, "audio.hop", 1 << 16, &f->hop, e));
    FTKI_TRY(read_dim(g, c, "audio.fft", 1 << 16, &f->fft, e));
    FTKI_TRY(read_dim(g, c, "audio.mels", 1024, &f->n_mels, e));
    f->high_hz = (float)f->sample_rate / 2;
    FTKI_TRY(read_real(g, c, "audio.low_hz", 0.0f, 1e6f, &f->low_hz, e));
    FTKI_TRY(read_real(g, c, "audio.high_hz", 0.0f, 1e6f, &f->high_hz, e));
    c->input_cols = padded(f->features * (c->arch == FTKI_WHISPER ? 3 : 1));
    return FTK_OK;
}

static ftk_status read_config(ftki_encoder_config *c, const ftki_gguf *g, ftk_error *e) {
    if (!find_arch(g, c)) return ftki_fail(e, FTK_INTERNAL, "not an encoder");
    FTKI_TRY(read_dim(g, c, "block_count", FTKI_ENCODER_MAX_LAYERS, &c->n_layers, e));
    FTKI_TRY(read_dim(g, c, "embedding_length", FTKI_ENCODER_MAX_WIDTH, &c->hidden, e));
    FTKI_TRY(read_dim(g, c, "feed_forward_length", FTKI_ENCODER_MAX_WIDTH, &c->ffn, e));
    FTKI_TRY(read_dim(g, c, "attention.head_count", 256, &c->n_heads, e));
    FTKI_TRY(read_dim(g, c, "context_length", FTKI_ENCODER_MAX_TOKENS, &c->max_tokens, e));
    if (c->hidden % c->n_heads != 0 || c->hidden / c->n_heads % 4 != 0 || c->hidden / c->n_heads > FTKI_MAX_HEAD_DIM)
        return ftki_fail(e, FTK_UNSUPPORTED, "%d heads in a width of %d are not supported: heads of a multiple of 4 are",
                         c->n_heads, c->hidden);
    c->head_dim = c->hidden / c->n_heads;
    c->norm_eps = 1e-6f;
    FTKI_TRY(read_real(g, c, "attention.layer_norm_epsilon", 0.0f, 1.0f, &c->norm_eps, e));
    c->post_norm = c->arch == FTKI_BERT || c->arch == FTKI_KWT;
    static const char *const activations[] = {"gelu", "gelu_tanh", NULL}, *const pools[] = {"none", "cls", "mean", NULL};
    int activation = 0, pool = c->arch == FTKI_WHISPER ? FTKI_POOL_NONE : FTKI_POOL_CLS;
    FTKI_TRY(read_choice(g, c, "activation", activations, &activation, e));
    FTKI_TRY(read_choice(g, c, "pooling", pools, &pool, e));
    c->gelu_tanh = activation == 1;
    c->pooling = (ftki_pooling)pool;
    c->info.pooling = pools[pool];
    c->info.dim = c->hidden;
    c->info.max_tokens = c->max_tokens;
    if (c->arch == FTKI_VIT) return read_vision(c, g, e);
    if (c->arch != FTKI_BERT) return read_audio(c, g, e);
    c->info.input = FTK_INPUT_TOKENS;
    return FTK_OK;
}

static ftk_status read_labels(ftki_encoder *m, const ftki_gguf *g, ftk_error *e) {
    key_name name = key_of(&m->config, "classifier.output_labels");
    const ftki_key *k;
    FTKI_TRY(ftki_gguf_array(g, name.text, FTKI_KEY_STRING, &k, e));
    if (!k) return FTK_OK;
    if (!m->has_head || k->count != (uint64_t)m->config.n_labels)
        return ftki_fail(e, FTK_FORMAT, "key %s names %llu labels, the classifier has %d", name.text,
                         (unsigned long long)k->count, m->config.n_labels);
    m->labels = ftki_alloc((size_t)k->count, sizeof *m->labels);
    m->label_text = ftki_alloc(k->bytes + (size_t)k->count, 1);
    if (!m->labels || !m->label_text) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the labels' names");
    size_t at = 0, to = 0;
    for (uint64_t i = 0; i < k->count; i++) {
        ftki_text t = ftki_key_next_text(k, &at);
        m->labels[i] = m->label_text + to;
        memcpy(m->label_text + to, t.data, t.len);
        to += t.len + 1;
    }
    return FTK_OK;
}

/* ------------------------------------------------------------------ tensors */

typedef struct slot {
    const ftki_tensor *tensor;
    ftki_matrix *matrix;  /* NULL: floats to copy */
    const float **floats;
    size_t arena_at;
} slot;

typedef struct loader {
    ftki_encoder *m;
    const ftki_gguf *g;
    bool *claimed; /* [n_tensors] */
    slot *slots;   /* room for n_tensors */
    size_t n_slots;
    const float ***zeros; /* [n_zeros] vectors the file lacks */
    size_t n_zeros;
    ftk_error *e;
} loader;

static const ftki_tensor *lookup(const loader *l, int32_t layer, const char *suffix) {
    char name[96];
    if (layer < 0) snprintf(name, sizeof name, "%s", suffix);
    else snprintf(name, sizeof name, "blk.%d.%s", layer, suffix);
    return ftki_gguf_tensor(l->g, name);
}

/* Claims a tensor [rows][cols]; rows 0: any number up to `limit`, which *n_rows gets. Absent: *out NULL if optional. */
static ftk_status claim(loader *l, int32_t layer, const char *suffix, bool required, int64_t rows, int64_t cols,
                        int64_t limit, int32_t *n_rows, const ftki_tensor **out) {
    const ftki_tensor *t = lookup(l, layer, suffix);
    *out = NULL;
    if (!t) {
        if (!required) return FTK_OK;
        return ftki_fail_layer(l->e, FTK_FORMAT, layer, "tensor '%s' is missing%s", suffix,
                               layer < 0 ? "" : " in a layer");
    }
    bool right = t->dims[0] == (uint64_t)cols && t->dims[2] == 1 && t->dims[3] == 1 &&
                 (rows ? t->dims[1] == (uint64_t)rows : t->dims[1] <= (uint64_t)limit);
    if (!right)
        return ftki_fail_at(l->e, FTK_FORMAT, (int64_t)t->offset,
                            "tensor '%s' has shape [%llu, %llu, %llu], must be [%lld, %lld]", t->name,
                            (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                            (unsigned long long)t->dims[2], (long long)cols, (long long)(rows ? rows : limit));
    if (l->claimed[t - l->g->tensors])
        return ftki_fail_at(l->e, FTK_FORMAT, (int64_t)t->offset, "tensor '%s' is there twice", t->name);
    l->claimed[t - l->g->tensors] = true;
    if (n_rows) *n_rows = (int32_t)t->dims[1];
    *out = t;
    return FTK_OK;
}

static ftk_status want_matrix_of(loader *l, int32_t layer, const char *suffix, bool required, int32_t rows,
                                 int32_t cols, int32_t limit, int32_t *n_rows, ftki_matrix *out, bool *has) {
    const ftki_tensor *t;
    FTKI_TRY(claim(l, layer, suffix, required, rows, cols, limit, n_rows, &t));
    if (has) *has = t != NULL;
    if (!t) return FTK_OK;
    if (ftki_pack_bytes(t->type, (int64_t)t->dims[1], cols) == 0)
        return ftki_fail_at(l->e, FTK_UNSUPPORTED, (int64_t)t->offset,
                            "tensor '%s' of type %s and %d columns cannot be packed", t->name,
                            ftki_type_name_of(t->type), cols);
    l->slots[l->n_slots++] = (slot){.tensor = t, .matrix = out};
    return FTK_OK;
}

static ftk_status want_matrix(loader *l, int32_t layer, const char *suffix, int32_t rows, int32_t cols,
                              ftki_matrix *out) {
    return want_matrix_of(l, layer, suffix, true, rows, cols, 0, NULL, out, NULL);
}

/* Floats [rows][cols]; rows 0: up to limit. */
static ftk_status want_floats(loader *l, int32_t layer, const char *suffix, bool required, int32_t rows, int32_t cols,
                              int32_t limit, int32_t *n_rows, const float **out) {
    const ftki_tensor *t;
    FTKI_TRY(claim(l, layer, suffix, required, rows, cols, limit, n_rows, &t));
    if (!t) return FTK_OK;
    if (t->type != FTKI_F32 && t->type != FTKI_F16 && t->type != FTKI_BF16)
        return ftki_fail_at(l->e, FTK_UNSUPPORTED, (int64_t)t->offset, "'%s' is %s; F32, F16 and BF16 are supported",
                            t->name, ftki_type_name_of(t->type));
    l->slots[l->n_slots++] = (slot){.tensor = t, .floats = out};
    return FTK_OK;
}

static ftk_status want_vector(loader *l, int32_t layer, const char *suffix, int32_t n, const float **out) {
    return want_floats(l, layer, suffix, true, 1, n, 0, NULL, out);
}

/* A bias that may be missing: zeros then. */
static ftk_status want_bias(loader *l, int32_t layer, const char *suffix, int32_t n, const float **out) {
    *out = NULL;
    size_t before = l->n_slots;
    FTKI_TRY(want_floats(l, layer, suffix, false, 1, n, 0, NULL, out));
    if (l->n_slots == before) l->zeros[l->n_zeros++] = out;
    return FTK_OK;
}

static ftk_status want_layer(loader *l, int32_t i) {
    const ftki_encoder_config *c = &l->m->config;
    ftki_encoder_layer *y = &l->m->layers[i];
    int32_t d = c->hidden, width = l->m->select_width;
    FTKI_TRY(want_matrix(l, i, "attn_qkv.weight", 3 * d, d, &y->qkv));
    FTKI_TRY(want_bias(l, i, "attn_qkv.bias", 3 * d, &y->qkv_bias));
    FTKI_TRY(want_matrix(l, i, "attn_output.weight", d, d, &y->o));
    FTKI_TRY(want_bias(l, i, "attn_output.bias", d, &y->o_bias));
    FTKI_TRY(want_vector(l, i, "attn_norm.weight", d, &y->attn_norm));
    FTKI_TRY(want_bias(l, i, "attn_norm.bias", d, &y->attn_norm_bias));
    FTKI_TRY(want_matrix(l, i, "ffn_up.weight", c->ffn, d, &y->up));
    FTKI_TRY(want_bias(l, i, "ffn_up.bias", c->ffn, &y->up_bias));
    FTKI_TRY(want_matrix(l, i, "ffn_down.weight", d, c->ffn, &y->down));
    FTKI_TRY(want_bias(l, i, "ffn_down.bias", d, &y->down_bias));
    FTKI_TRY(want_vector(l, i, "ffn_norm.weight", d, &y->ffn_norm));
    FTKI_TRY(want_bias(l, i, "ffn_norm.bias", d, &y->ffn_norm_bias));
    int32_t labels = 0;
    FTKI_TRY(want_matrix_of(l, i, "exit.weight", false, c->n_labels, d, FTKI_ENCODER_MAX_LABELS, &labels, &y->exit, &y->has_exit));
    if (y->has_exit) {
        if (c->n_labels == 0)
            return ftki_fail_layer(l->e, FTK_FORMAT, i, "there is an exit head but no classifier 'head.weight'");
        FTKI_TRY(want_bias(l, i, "exit.bias", c->n_labels, &y->exit_bias));
        FTKI_TRY(want_floats(l, i, "exit_norm.weight", false, 1, d, 0, NULL, &y->exit_norm));
        FTKI_TRY(want_bias(l, i, "exit_norm.bias", d, &y->exit_norm_bias));
        l->m->config.info.n_exits++;
    }
    FTKI_TRY(want_matrix_of(l, i, "select_token.weight", false, width, d, 512, &width, &y->select_token, &y->has_scorer));
    if (y->has_scorer) {
        l->m->select_width = width;
        if (width > c->ffn)
            return ftki_fail_layer(l->e, FTK_UNSUPPORTED, i, "a scorer of width %d is wider than the feed-forward, %d", width, c->ffn);
        FTKI_TRY(want_matrix(l, i, "select_context.weight", width, d, &y->select_context));
        FTKI_TRY(want_vector(l, i, "select.bias", width, &y->select_bias));
        FTKI_TRY(want_vector(l, i, "select_out.weight", width, &y->select_out));
        l->m->config.info.n_scorers++;
    }
    return FTK_OK;
}

static ftk_status want_input(loader *l) {
    ftki_encoder *m = l->m;
    ftki_encoder_config *c = &m->config;
    int32_t d = c->hidden;
    if (c->arch == FTKI_BERT) {
        FTKI_TRY(want_matrix_of(l, -1, "token_embd.weight", true, 0, d, 1 << 20, &c->n_vocab, &m->tokens, NULL));
        FTKI_TRY(want_vector(l, -1, "token_types.weight", d, &m->token_type));
        FTKI_TRY(want_vector(l, -1, "token_embd_norm.weight", d, &m->embed_norm));
        FTKI_TRY(want_bias(l, -1, "token_embd_norm.bias", d, &m->embed_norm_bias));
    } else {
        FTKI_TRY(want_matrix(l, -1, "input_embd.weight", d, c->input_cols, &m->input));
        FTKI_TRY(want_bias(l, -1, "input_embd.bias", d, &m->input_bias));
        FTKI_TRY(want_floats(l, -1, "prefix_embd.weight", false, 0, d, 64, &c->n_prefix, &m->prefix));
    }
    if (c->arch == FTKI_WHISPER) {
        FTKI_TRY(want_matrix(l, -1, "conv2.weight", d, 3 * d, &m->conv));
        FTKI_TRY(want_bias(l, -1, "conv2.bias", d, &m->conv_bias));
    }
    int32_t rows = c->arch == FTKI_VIT ? c->grid * c->grid
                   : c->arch == FTKI_KWT ? c->info.frames
                   : c->arch == FTKI_WHISPER ? c->info.frames / 2 : c->max_tokens;
    m->n_positions = rows;
    FTKI_TRY(want_floats(l, -1, "position_embd.weight", true, rows, d, 0, NULL, &m->positions));
    if (c->arch != FTKI_VIT && c->max_tokens != rows + c->n_prefix)
        return ftki_fail(l->e, FTK_FORMAT, "key %s.context_length is %d, the positions are for %d tokens", c->arch_name,
                         c->max_tokens, rows + c->n_prefix);
    if (c->arch == FTKI_VIT && c->max_tokens < rows + c->n_prefix)
        return ftki_fail(l->e, FTK_FORMAT, "key vit.context_length is %d, an image is %d tokens", c->max_tokens,
                         rows + c->n_prefix);
    return FTK_OK;
}

static ftk_status want_all(loader *l) {
    ftki_encoder *m = l->m;
    ftki_encoder_config *c = &m->config;
    int32_t d = c->hidden;
    FTKI_TRY(want_input(l));
    FTKI_TRY(want_floats(l, -1, "output_norm.weight", false, 1, d, 0, NULL, &m->output_norm));
    FTKI_TRY(want_bias(l, -1, "output_norm.bias", d, &m->output_norm_bias));
    FTKI_TRY(want_matrix_of(l, -1, "pooler.weight", false, d, d, 0, NULL, &m->pooler, &m->has_pooler));
    FTKI_TRY(want_bias(l, -1, "pooler.bias", d, &m->pooler_bias));
    FTKI_TRY(want_matrix_of(l, -1, "head.weight", false, 0, d, FTKI_ENCODER_MAX_LABELS, &c->n_labels, &m->head, &m->has_head));
    FTKI_TRY(want_bias(l, -1, "head.bias", c->n_labels ? c->n_labels : 1, &m->head_bias));
    if (m->has_head) {
        FTKI_TRY(want_matrix_of(l, -1, "head_dist.weight", false, c->n_labels, d, 0, NULL, &m->head_dist, &m->has_head_dist));
        FTKI_TRY(want_bias(l, -1, "head_dist.bias", c->n_labels, &m->head_dist_bias));
        if (m->has_head_dist && c->n_prefix < 2)
            return ftki_fail(l->e, FTK_FORMAT, "there is a 'head_dist.weight' but no distillation token");
    }
    if (c->pooling == FTKI_POOL_CLS && c->arch != FTKI_BERT && c->n_prefix < 1)
        return ftki_fail(l->e, FTK_FORMAT, "pooling is 'cls' but the file has no 'prefix_embd.weight'");
    c->info.n_labels = c->n_labels;
    for (int32_t i = 0; i < c->n_layers; i++) FTKI_TRY(want_layer(l, i));
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

static void pack_worker(void *ctx, int32_t worker, int32_t n_workers) {
    enum { PANELS = 8 };
    pack_job *j = ctx;
    (void)worker, (void)n_workers;
    for (int32_t begin; (begin = ftki_team_next(j->team) * PANELS) < j->matrix->n_panels;) {
        int32_t end = begin + PANELS < j->matrix->n_panels ? begin + PANELS : j->matrix->n_panels;
        ftki_pack_panels(j->matrix, j->src, NULL, begin, end);
    }
}

static ftk_status fill(loader *l, ftki_team *team, ftk_progress_fn progress, void *progress_ctx) {
    ftki_arena *a = &l->m->arena;
    size_t widest = (size_t)(l->m->config.ffn > 3 * l->m->config.hidden ? l->m->config.ffn : 3 * l->m->config.hidden);
    if (widest < (size_t)l->m->config.n_labels) widest = (size_t)l->m->config.n_labels;
    size_t zeros_at = ftki_arena_plan(a, widest, sizeof(float));
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        const uint64_t *d = s->tensor->dims;
        total += s->tensor->bytes;
        s->arena_at = s->matrix ? ftki_arena_plan(a, 1, ftki_pack_bytes(s->tensor->type, (int64_t)d[1], (int64_t)d[0]))
                                : ftki_arena_plan(a, (size_t)(d[0] * d[1]), sizeof(float));
    }
    FTKI_TRY(ftki_arena_commit(a, l->e));
    for (size_t i = 0; i < l->n_zeros; i++) *l->zeros[i] = ftki_arena_at(a, zeros_at);
    for (size_t i = 0; i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        const ftki_tensor *t = s->tensor;
        if (s->matrix) {
            ftki_pack_begin(s->matrix, t->type, (int32_t)t->dims[1], (int32_t)t->dims[0], ftki_arena_at(a, s->arena_at));
            pack_job job = {team, s->matrix, t->data};
            ftki_team_run(team, pack_worker, &job);
        } else {
            float *to = ftki_arena_at(a, s->arena_at);
            ftki_dequantize_row(t->type, t->data, to, (size_t)(t->dims[0] * t->dims[1]));
            *s->floats = to;
        }
        done += t->bytes;
        if (progress && !progress(progress_ctx, "packing", done, total))
            return ftki_fail(l->e, FTK_CANCELLED, "packing was cancelled");
    }
    return FTK_OK;
}

ftk_status ftki_encoder_open_model(ftki_encoder *out, const ftki_gguf *g, const ftki_kernels *kernels, int32_t n_threads,
                                   ftk_progress_fn progress, void *progress_ctx, ftk_error *e) {
    ftki_encoder m = {.kernels = kernels};
    FTKI_TRY(read_config(&m.config, g, e));
    ftki_team *team = NULL;
    loader l = {.m = &m, .g = g, .e = e};
    size_t n_layers = (size_t)m.config.n_layers;
    l.claimed = ftki_alloc(g->n_tensors + 1, sizeof *l.claimed);
    l.slots = ftki_alloc(g->n_tensors + 1, sizeof *l.slots);
    l.zeros = ftki_alloc(16 * (n_layers + 1), sizeof *l.zeros);
    m.layers = ftki_alloc(n_layers, sizeof *m.layers);
    ftk_status status = FTK_OK;
    if (!l.claimed || !l.slots || !l.zeros || !m.layers)
        status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the tensor directory");
    if (status == FTK_OK) status = want_all(&l);
    if (status == FTK_OK) status = read_labels(&m, g, e);
    if (status == FTK_OK) status = ftki_team_open(&team, n_threads, e);
    if (status == FTK_OK) status = fill(&l, team, progress, progress_ctx);
    if (status == FTK_OK) m.float_weights = m.layers[0].qkv.kind >= FTKI_W_F16;
    ftki_team_close(team);
    ftki_free(l.claimed);
    ftki_free(l.slots);
    ftki_free(l.zeros);
    if (status == FTK_OK) *out = m;
    else ftki_encoder_close_model(&m);
    return status;
}

void ftki_encoder_close_model(ftki_encoder *m) {
    ftki_arena_close(&m->arena);
    ftki_free(m->layers);
    ftki_free(m->labels);
    ftki_free(m->label_text);
    memset(m, 0, sizeof *m);
}

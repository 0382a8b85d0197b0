// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    ftki_arch arch;
} archs[] = {
    {"llama", FTKI_LLAMA}, {"qwen2", FTKI_QWEN2}, {"qwen3", FTKI_QWEN3}, {"gemma3", FTKI_GEMMA3}};

const char *ftki_arch_list(void) { return "gemma3, llama, qwen2, qwen3"; }

/* Builds "<arch>.<key>"; both are short static strings. */
typedef struct key_name {
    char text[96];
} key_name;

static key_name key_of(const ftki_config *c, const char *key) {
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", c->arch_name, key);
    return k;
}

/* A dimension: from the file, in 1..limit. */
static ftk_status read_dim(const ftki_gguf *g, const ftki_config *c, const char *key, int32_t limit,
                           bool required, int32_t *out, ftk_error *e) {
    key_name name = key_of(c, key);
    if (!required && !ftki_gguf_key(g, name.text)) return FTK_OK;
    uint32_t value = 0;
    FTKI_TRY(ftki_gguf_u32(g, name.text, &value, e));
    if (value < 1 || value > (uint32_t)limit)
        return ftki_fail(e, FTK_FORMAT, "key %s is %u, must be 1 to %d", name.text, value, limit);
    *out = (int32_t)value;
    return FTK_OK;
}

static ftk_status read_real(const ftki_gguf *g, const ftki_config *c, const char *key, float low,
                            float high, float *out, ftk_error *e) {
    key_name name = key_of(c, key);
    float value = *out;
    FTKI_TRY(ftki_gguf_f32_or(g, name.text, &value, e));
    if (!(value >= low && value <= high))
        return ftki_fail(e, FTK_FORMAT, "key %s is %g, must be %g to %g", name.text, (double)value,
                         (double)low, (double)high);
    *out = value;
    return FTK_OK;
}

static ftk_status read_arch(ftki_config *c, const ftki_gguf *g, ftk_error *e) {
    ftki_text name;
    FTKI_TRY(ftki_gguf_text(g, "general.architecture", &name, e));
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.data, name.len) == 0) {
            c->arch = archs[i].arch;
            c->arch_name = archs[i].name;
            return FTK_OK;
        }
    }
    return ftki_fail(e, FTK_UNSUPPORTED, "architecture '%.*s' is not supported; supported: %s",
                     name.len > 40 ? 40 : (int)name.len, name.data, ftki_arch_list());
}

static ftk_status read_rope(ftki_config *c, const ftki_gguf *g, ftk_error *e) {
    ftki_rope r = {.base = 10000.0f, .factor = 1.0f, .attn_factor = 1.0f, .beta_fast = 32.0f,
                   .beta_slow = 1.0f};
    if (c->arch == FTKI_GEMMA3 || c->arch == FTKI_QWEN3) r.base = 1000000.0f;
    FTKI_TRY(read_real(g, c, "rope.freq_base", 1.0f, 1e12f, &r.base, e));
    int32_t rotated = c->head_dim;
    FTKI_TRY(read_dim(g, c, "rope.dimension_count", FTKI_MAX_HEAD_DIM, false, &rotated, e));
    if (rotated != c->head_dim)
        return ftki_fail(e, FTK_UNSUPPORTED,
                         "rotating %d of %d dimensions of a head is not supported", rotated,
                         c->head_dim);
    ftki_text type = {"linear", 6}; /* what a factor without a type means */
    FTKI_TRY(ftki_gguf_text_or(g, key_of(c, "rope.scaling.type").text, &type, e));
    FTKI_TRY(read_real(g, c, "rope.scale_linear", 0.0f, 4096.0f, &r.factor, e)); /* in old files */
    FTKI_TRY(read_real(g, c, "rope.scaling.factor", 0.0f, 4096.0f, &r.factor, e));
    if (r.factor < 1.0f) r.factor = 1.0f; /* 0 means "not scaled" in files */
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
        r.scaling = FTKI_ROPE_NONE;
        r.factor = 1.0f;
    } else if (type.len == 6 && memcmp(type.data, "linear", 6) == 0) {
        r.scaling = r.factor > 1.0f ? FTKI_ROPE_LINEAR : FTKI_ROPE_NONE;
    } else if (type.len == 4 && memcmp(type.data, "yarn", 4) == 0) {
        r.scaling = FTKI_ROPE_YARN;
    } else {
        return ftki_fail(e, FTK_UNSUPPORTED,
                         "rope scaling '%.*s' is not supported; supported: none, linear, yarn, and "
                         "Llama 3's as tensor rope_freqs.weight",
                         type.len > 40 ? 40 : (int)type.len, type.data);
    }
    int32_t original = c->train_context;
    FTKI_TRY(read_dim(g, c, "rope.scaling.original_context_length", FTKI_MAX_CONTEXT, false, &original, e));
    r.original_context = (float)original;
    FTKI_TRY(read_real(g, c, "rope.scaling.attn_factor", 0.0f, 100.0f, &r.attn_factor, e));
    FTKI_TRY(read_real(g, c, "rope.scaling.yarn_beta_fast", 0.01f, 1e6f, &r.beta_fast, e));
    FTKI_TRY(read_real(g, c, "rope.scaling.yarn_beta_slow", 0.01f, 1e6f, &r.beta_slow, e));
    c->rope = r;
    c->rope_local = (ftki_rope){.base = c->arch == FTKI_GEMMA3 ? 10000.0f : r.base, .factor = 1.0f,
                                .attn_factor = 1.0f};
    FTKI_TRY(read_real(g, c, "rope.freq_base_swa", 1.0f, 1e12f, &c->rope_local.base, e));
    return FTK_OK;
}

ftk_status ftki_config_read(ftki_config *out, const ftki_gguf *g, ftk_error *e) {
    ftki_config c = {.embed_scale = 1.0f, .norm_eps = 1e-6f};
    FTKI_TRY(read_arch(&c, g, e));
    /* 0 layers and 0 heads are the files people send us: name them rather than a range. */
    uint32_t layers = 0;
    key_name layers_key = key_of(&c, "block_count");
    FTKI_TRY(ftki_gguf_u32(g, layers_key.text, &layers, e));
    if (layers == 0) return ftki_fail(e, FTK_FORMAT, "key %s is 0: the model has no layers", layers_key.text);
    FTKI_TRY(read_dim(g, &c, "block_count", FTKI_MAX_LAYERS, true, &c.n_layers, e));
    FTKI_TRY(read_dim(g, &c, "embedding_length", FTKI_MAX_WIDTH, true, &c.hidden, e));
    FTKI_TRY(read_dim(g, &c, "feed_forward_length", FTKI_MAX_WIDTH, true, &c.ffn, e));
    FTKI_TRY(read_dim(g, &c, "attention.head_count", FTKI_MAX_HEADS, true, &c.n_heads, e));
    c.n_kv_heads = c.n_heads;
    FTKI_TRY(read_dim(g, &c, "attention.head_count_kv", FTKI_MAX_HEADS, false, &c.n_kv_heads, e));
    if (c.n_heads % c.n_kv_heads != 0)
        return ftki_fail(e, FTK_FORMAT, "%d query heads cannot share %d key heads", c.n_heads,
                         c.n_kv_heads);
    c.train_context = 2048;
    FTKI_TRY(read_dim(g, &c, "context_length", FTKI_MAX_CONTEXT, false, &c.train_context, e));
    c.head_dim = c.hidden / c.n_heads;
    if (!ftki_gguf_key(g, key_of(&c, "attention.key_length").text) && c.hidden % c.n_heads != 0)
        return ftki_fail(e, FTK_FORMAT, "%d heads do not divide a width of %d", c.n_heads, c.hidden);
    FTKI_TRY(read_dim(g, &c, "attention.key_length", FTKI_MAX_HEAD_DIM, false, &c.head_dim, e));
    int32_t value_dim = c.head_dim;
    FTKI_TRY(read_dim(g, &c, "attention.value_length", FTKI_MAX_HEAD_DIM, false, &value_dim, e));
    if (value_dim != c.head_dim)
        return ftki_fail(e, FTK_UNSUPPORTED, "keys of %d and values of %d dimensions are not supported",
                         c.head_dim, value_dim);
    if (c.head_dim % 4 != 0)
        return ftki_fail(e, FTK_UNSUPPORTED, "heads of %d dimensions are not supported: multiples of 4 are",
                         c.head_dim);
    if ((int64_t)c.head_dim * c.n_heads > FTKI_MAX_WIDTH)
        return ftki_fail(e, FTK_FORMAT, "%d heads of %d dimensions are wider than %d", c.n_heads,
                         c.head_dim, FTKI_MAX_WIDTH);
    FTKI_TRY(read_real(g, &c, "attention.layer_norm_rms_epsilon", 0.0f, 1.0f, &c.norm_eps, e));
    c.attn_scale = 1.0f / sqrtf((float)c.head_dim);
    c.rope_interleaved = c.arch == FTKI_LLAMA;
    if (c.arch == FTKI_GEMMA3) {
        c.gelu = true;
        c.embed_scale = sqrtf((float)c.hidden);
        c.window = 1024;
        c.window_period = 6;
        if (c.n_layers == 62) c.attn_scale = 1.0f / sqrtf((float)c.hidden / (float)c.n_heads); /* 27B */
        FTKI_TRY(read_dim(g, &c, "attention.sliding_window", FTKI_MAX_CONTEXT, false, &c.window, e));
        FTKI_TRY(read_dim(g, &c, "attention.sliding_window_pattern", FTKI_MAX_LAYERS, false,
                          &c.window_period, e));
    }
    for (const char *const *k = (const char *const[]){"expert_count", "attn_logit_softcapping",
                                                      "final_logit_softcapping", NULL}; *k; k++) {
        const char *what = *k;
        key_name name = key_of(&c, what);
        const ftki_key *key = ftki_gguf_key(g, name.text);
        uint32_t as_int = 0;
        float as_real = 0.0f;
        if (!key) continue;
        if (key->type == FTKI_KEY_F32) FTKI_TRY(ftki_gguf_f32_or(g, name.text, &as_real, e));
        else FTKI_TRY(ftki_gguf_u32_or(g, name.text, &as_int, e));
        if (as_int != 0 || as_real != 0.0f)
            return ftki_fail(e, FTK_UNSUPPORTED, "key %s is set: this kind of %s model is not supported",
                             name.text, c.arch_name);
    }
    FTKI_TRY(read_rope(&c, g, e));
    *out = c;
    return FTK_OK;
}

/* YaRN: the dimension pair whose wave turns `turns` times in the original context. */
static double yarn_pair(const ftki_rope *r, int32_t head_dim, double turns) {
    return head_dim * log(r->original_context / (turns * 2.0 * M_PI)) / (2.0 * log(r->base));
}

float ftki_rope_frequencies(const ftki_rope *r, int32_t head_dim, const float *divisors, float *freq) {
    int32_t pairs = head_dim / 2;
    double low = 0.0, high = 0.0;
    if (r->scaling == FTKI_ROPE_YARN) {
        low = fmax(0.0, floor(yarn_pair(r, head_dim, r->beta_fast)));
        high = fmin(head_dim - 1.0, ceil(yarn_pair(r, head_dim, r->beta_slow)));
    }
    for (int32_t p = 0; p < pairs; p++) {
        double f = pow(r->base, -2.0 * p / head_dim);
        if (divisors) f /= divisors[p];
        if (r->scaling == FTKI_ROPE_LINEAR) f /= r->factor;
        if (r->scaling == FTKI_ROPE_YARN) {
            /* Fast waves keep their frequency, slow ones are stretched, between is a ramp. */
            double ramp = 1.0 - fmin(1.0, fmax(0.0, (p - low) / fmax(0.001, high - low)));
            f = f / r->factor * (1.0 - ramp) + f * ramp;
        }
        freq[p] = (float)f;
    }
    return r->scaling == FTKI_ROPE_YARN ? r->attn_factor * (1.0f + 0.1f * logf(r->factor)) : 1.0f;
}

// SPDX-License-Identifier: Apache-2.0
/* Opening a model: file, tokenizer, weights. */
#include "engine/model.h"

#include <string.h>

#include "base/hash.h"
#include "base/options.h"

/* Keys, directory and 64 bytes of every tensor's start: enough to tell two models apart without
 * reading their weights. */
static uint64_t fingerprint(const ftki_gguf *g) {
    ftki_hash h;
    ftki_hash_start(&h);
    for (size_t i = 0; i < g->n_keys; i++) {
        ftki_hash_add(&h, g->keys[i].name.data, g->keys[i].name.len);
        ftki_hash_add(&h, g->keys[i].data, g->keys[i].bytes < 4096 ? g->keys[i].bytes : 4096);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const ftki_tensor *t = &g->tensors[i];
        ftki_hash_add(&h, t->name, strlen(t->name));
        ftki_hash_add(&h, t->dims, sizeof t->dims);
        ftki_hash_add(&h, &t->type, sizeof t->type);
        ftki_hash_add(&h, t->data, t->bytes < 64 ? (size_t)t->bytes : 64);
    }
    return ftki_hash_end(&h);
}

static const char *dominant_type(const ftki_gguf *g) {
    const char *best = "";
    uint64_t best_bytes = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        uint64_t bytes = 0;
        for (size_t j = 0; j < g->n_tensors; j++)
            if (g->tensors[j].type == g->tensors[i].type) bytes += g->tensors[j].bytes;
        if (bytes > best_bytes) {
            best_bytes = bytes;
            best = ftki_type_name_of(g->tensors[i].type);
        }
    }
    return best;
}

static ftk_status read_names(ftk_model *m, ftk_error *e) {
    ftki_text name = {"", 0}, template_text = {NULL, 0};
    FTKI_TRY(ftki_gguf_text_or(&m->gguf, "general.name", &name, e));
    m->name = ftki_alloc(name.len + 1, 1);
    if (!m->name) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the model's name");
    memcpy(m->name, name.data, name.len);
    FTKI_TRY(ftki_gguf_text_or(&m->gguf, "tokenizer.chat_template", &template_text, e));
    if (template_text.data) {
        m->has_template = true;
        m->chat_family = ftki_chat_recognise(template_text.data, template_text.len);
    }
    m->weight_type = dominant_type(&m->gguf);
    for (size_t i = 0; i < m->gguf.n_tensors; i++) {
        const uint64_t *d = m->gguf.tensors[i].dims;
        m->n_params += d[0] * d[1] * d[2] * d[3];
    }
    return FTK_OK;
}

ftk_status ftk_model_open(ftk_model **out, const char *path, const ftk_model_opts *o, ftk_error *e) {
    ftk_model_opts opts;
    if (!out || !path) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out and path must not be NULL");
    ftki_options_read(&opts, sizeof opts, o);
    if (opts.n_threads < 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "n_threads is %d", opts.n_threads);
    const ftki_kernels *kernels;
    FTKI_TRY(ftki_kernels_choose(&kernels, opts.isa, e));

    ftk_model *m = ftki_alloc(1, sizeof *m);
    if (!m) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a model");
    ftk_status status = ftki_gguf_open(&m->gguf, path, e);
    m->is_encoder = status == FTK_OK && ftki_encoder_is(&m->gguf);
    if (status == FTK_OK && !m->is_encoder) status = ftki_config_read(&m->decoder.config, &m->gguf, e);
    /* Pictures and sounds come without a vocabulary. */
    if (status == FTK_OK && (!m->is_encoder || ftki_gguf_key(&m->gguf, "tokenizer.ggml.model")))
        status = ftki_tokenizer_open(&m->tokenizer, &m->gguf, e);
    if (status == FTK_OK) status = read_names(m, e);
    m->decoder.kernels = kernels;
    if (status == FTK_OK && m->is_encoder) {
        m->fingerprint = fingerprint(&m->gguf);
        status = ftki_encoder_open_model(&m->encoder, &m->gguf, kernels, opts.n_threads, opts.progress,
                                         opts.progress_ctx, e);
        m->has_weights = status == FTK_OK;
    } else if (status == FTK_OK && !opts.vocab_only) {
        m->fingerprint = fingerprint(&m->gguf);
        status = ftki_decoder_open(&m->decoder, &m->gguf, kernels, opts.n_threads, opts.progress,
                                   opts.progress_ctx, e);
        m->has_weights = status == FTK_OK;
        if (status == FTK_OK && ftki_tokenizer_size(m->tokenizer) > m->decoder.config.n_vocab)
            status = ftki_fail(e, FTK_FORMAT, "the vocabulary has %d tokens, the embedding %d rows",
                               ftki_tokenizer_size(m->tokenizer), m->decoder.config.n_vocab);
    }
    if (status != FTK_OK) {
        ftk_model_close(m);
        return status;
    }
    if (opts.vocab_only && !m->is_encoder) m->decoder.config.n_vocab = ftki_tokenizer_size(m->tokenizer);
    *out = m;
    return FTK_OK;
}

void ftk_model_close(ftk_model *m) {
    if (!m) return;
    ftki_decoder_close(&m->decoder);
    ftki_encoder_close_model(&m->encoder);
    ftki_tokenizer_close(m->tokenizer);
    ftki_gguf_close(&m->gguf);
    ftki_free(m->name);
    ftki_free(m);
}

static void encoder_info(const ftk_model *m, ftk_model_info *out) {
    const ftki_encoder_config *c = &m->encoder.config;
    *out = (ftk_model_info){
        .architecture = c->arch_name, .name = m->name, .weight_type = m->weight_type, .chat_template = "",
        .isa = m->decoder.kernels->name, .n_params = m->n_params, .file_bytes = m->gguf.file.len,
        .weight_bytes = m->encoder.arena.bytes, .n_layers = c->n_layers, .n_heads = c->n_heads, .n_kv_heads = c->n_heads,
        .head_dim = c->head_dim, .hidden = c->hidden, .ffn = c->ffn, .n_vocab = c->n_vocab, .train_context = c->max_tokens};
}

void ftk_model_get_info(const ftk_model *m, ftk_model_info *out) {
    if (m->is_encoder) {
        encoder_info(m, out);
        return;
    }
    const ftki_config *c = &m->decoder.config;
    *out = (ftk_model_info){
        .architecture = c->arch_name, .name = m->name, .weight_type = m->weight_type,
        .chat_template = m->chat_family ? m->chat_family : "", .isa = m->decoder.kernels->name,
        .n_params = m->n_params, .file_bytes = m->gguf.file.len,
        .weight_bytes = m->decoder.arena.bytes, .n_layers = c->n_layers, .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads, .head_dim = c->head_dim, .hidden = c->hidden, .ffn = c->ffn,
        .n_vocab = c->n_vocab, .train_context = c->train_context, .sliding_window = c->window};
}

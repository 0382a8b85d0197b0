// SPDX-License-Identifier: Apache-2.0
/* The public calls over encoders: an encoder session, inputs in, labels, embeddings or states out. */
#include <math.h>
#include <string.h>

#include "base/options.h"
#include "engine/model.h"

struct ftk_encoder {
    const ftk_model *model;
    ftki_team *team;
    ftki_encoder_run run;
    ftki_encoder_plan plan;
    atomic_bool cancel;
    double seconds;      /* of the last call */
    int32_t n_results;   /* inputs of the last call that succeeded */
    bool has_logits;
};

/* ------------------------------------------------------------------- model */

static ftk_status want_encoder(const ftk_model *m, ftk_error *e) {
    if (!m) return ftki_fail(e, FTK_INVALID_ARGUMENT, "model must not be NULL");
    if (!m->is_encoder)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a %s model is a decoder; open a session", m->decoder.config.arch_name);
    return FTK_OK;
}

ftk_status ftk_encoder_get_info(const ftk_model *m, ftk_encoder_info *out, ftk_error *e) {
    FTKI_TRY(want_encoder(m, e));
    if (!out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out must not be NULL");
    *out = m->encoder.config.info;
    return FTK_OK;
}

const char *ftk_encoder_label(const ftk_model *m, int32_t label) {
    if (!m || !m->is_encoder || !m->encoder.labels || label < 0 || label >= m->encoder.config.n_labels) return NULL;
    return m->encoder.labels[label];
}

/* ----------------------------------------------------------------- session */

ftk_status ftk_encoder_open(ftk_encoder **out, const ftk_model *m, const ftk_encoder_opts *o, ftk_error *e) {
    enum { MAX_THREADS = 256, MAX_INPUTS = 4096 };
    ftk_encoder_opts opts;
    FTKI_TRY(want_encoder(m, e));
    if (!out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out must not be NULL");
    ftki_options_read(&opts, sizeof opts, o);
    if (opts.n_threads == 0) opts.n_threads = ftki_online_cores();
    if (opts.max_tokens == 0) opts.max_tokens = m->encoder.config.max_tokens;
    if (opts.max_inputs == 0) opts.max_inputs = 1;
    if (opts.n_threads < 1 || opts.n_threads > MAX_THREADS)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "n_threads is %d, must be 1 to %d", opts.n_threads, MAX_THREADS);
    if (opts.max_tokens < 1 || opts.max_tokens > FTKI_ENCODER_MAX_TOKENS)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "max_tokens is %d, must be 1 to %d", opts.max_tokens, FTKI_ENCODER_MAX_TOKENS);
    if (opts.max_inputs < 1 || opts.max_inputs > MAX_INPUTS)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "max_inputs is %d, must be 1 to %d", opts.max_inputs, MAX_INPUTS);
    ftki_kv_format format = FTKI_KV_INT8;
    if (opts.exact_attention || opts.attention == FTK_KV_F32 || m->encoder.float_weights) format = FTKI_KV_F32;
    else if (opts.attention == FTK_KV_F16) format = FTKI_KV_F16;

    ftk_encoder *s = ftki_alloc(1, sizeof *s);
    if (!s) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for an encoder");
    s->model = m;
    ftk_status status = ftki_team_open(&s->team, opts.n_threads, e);
    if (status == FTK_OK)
        status = ftki_encoder_run_open(&s->run, &m->encoder, s->team, format, opts.max_tokens, opts.max_inputs,
                                       opts.max_bytes, e);
    if (status == FTK_OK) status = ftki_encoder_plan_make(&s->plan, &m->encoder, NULL, e);
    if (status != FTK_OK) {
        ftk_encoder_close(s);
        return status;
    }
    s->run.cancel = &s->cancel;
    *out = s;
    return FTK_OK;
}

void ftk_encoder_close(ftk_encoder *s) {
    if (!s) return;
    ftki_encoder_run_close(&s->run);
    ftki_team_close(s->team);
    ftki_free(s);
}

void ftk_encoder_cancel(ftk_encoder *s) { atomic_store(&s->cancel, true); }

ftk_status ftk_encoder_reduce(ftk_encoder *s, const ftk_encoder_reduction *r, ftk_error *e) {
    ftk_encoder_reduction read;
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder must not be NULL");
    ftki_options_read(&read, sizeof read, r);
    return ftki_encoder_plan_make(&s->plan, &s->model->encoder, r ? &read : NULL, e);
}

void ftk_encoder_tap(ftk_encoder *s, ftk_tap_fn fn, void *ctx) {
    s->run.tap = fn;
    s->run.tap_ctx = ctx;
}

/* --------------------------------------------------------------------- run */

static ftk_status take_inputs(ftk_encoder *s, const ftk_input *inputs, size_t n, ftk_error *e) {
    if (!inputs || n == 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "there are no inputs");
    if (n > (size_t)s->run.max_items)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "%zu inputs are more than max_inputs, %d", n, s->run.max_items);
    int64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        ftk_error own = {0};
        int32_t tokens;
        ftk_status status = ftki_encoder_count(&s->model->encoder, &inputs[i], &tokens, &own);
        if (status != FTK_OK && n > 1) return ftki_fail(e, status, "input %zu: %s", i, own.message);
        if (status != FTK_OK) return ftki_fail(e, status, "%s", own.message);
        s->run.items[i].input = &inputs[i];
        s->run.items[i].n = tokens;
        total += tokens;
    }
    if (total > s->run.max_tokens)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the inputs are %lld tokens, more than max_tokens, %d", (long long)total,
                         s->run.max_tokens);
    s->run.n_items = (int32_t)n;
    return FTK_OK;
}

static ftk_status run(ftk_encoder *s, const ftk_input *inputs, size_t n, bool want_logits, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder must not be NULL");
    s->n_results = 0;
    s->has_logits = false;
    FTKI_TRY(take_inputs(s, inputs, n, e));
    double start = ftki_seconds();
    s->run.plan = &s->plan;
    s->run.want_logits = want_logits;
    ftki_no_alloc_enter();
    ftk_status status = ftki_encoder_run_all(&s->run, e);
    ftki_no_alloc_leave();
    s->seconds = ftki_seconds() - start;
    if (status == FTK_CANCELLED) atomic_store(&s->cancel, false);
    if (status != FTK_OK) return status;
    s->n_results = (int32_t)n;
    s->has_logits = want_logits;
    return FTK_OK;
}

static void top_k(const float *logits, int32_t n, size_t k, ftk_score_of *top) {
    double sum = 0.0;
    float largest = logits[0];
    for (int32_t i = 1; i < n; i++) largest = logits[i] > largest ? logits[i] : largest;
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)largest);
    size_t have = 0;
    for (int32_t i = 0; i < n; i++) { /* insertion into a short list; the first of equals stays first */
        size_t at = have < k ? have++ : k;
        for (; at > 0 && logits[i] > logits[top[at - 1].label]; at--)
            if (at < k) top[at] = top[at - 1];
        if (at < k) top[at].label = i;
    }
    for (size_t i = 0; i < have; i++)
        top[i].score = (float)(exp((double)logits[top[i].label] - (double)largest) / sum);
}

ftk_status ftk_classify(ftk_encoder *s, const ftk_input *inputs, size_t n, ftk_score_of *top, size_t k, ftk_error *e) {
    if (!s || !top) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder and top must not be NULL");
    int32_t labels = s->model->encoder.config.n_labels;
    if (labels == 0) return ftki_fail(e, FTK_UNSUPPORTED, "the model's file has no classifier; ftk_embed works");
    if (k < 1 || k > (size_t)labels) return ftki_fail(e, FTK_INVALID_ARGUMENT, "k is %zu, must be 1 to %d", k, labels);
    FTKI_TRY(run(s, inputs, n, true, e));
    for (size_t i = 0; i < n; i++) top_k(s->run.logits + i * (size_t)labels, labels, k, top + i * k);
    return FTK_OK;
}

ftk_status ftk_embed(ftk_encoder *s, const ftk_input *inputs, size_t n, bool normalise, float *out, ftk_error *e) {
    if (!s || !out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder and out must not be NULL");
    if (s->model->encoder.config.pooling == FTKI_POOL_NONE)
        return ftki_fail(e, FTK_UNSUPPORTED, "the model's file names no pooling; ftk_encode gives its states");
    FTKI_TRY(run(s, inputs, n, false, e));
    size_t d = (size_t)s->model->encoder.config.hidden;
    for (size_t i = 0; i < n; i++) {
        const float *x = s->run.pooled + i * d;
        double sum = 0.0;
        for (size_t j = 0; j < d; j++) sum += (double)x[j] * (double)x[j];
        float scale = normalise && sum > 0.0 ? (float)(1.0 / sqrt(sum)) : 1.0f;
        for (size_t j = 0; j < d; j++) out[i * d + j] = x[j] * scale;
    }
    return FTK_OK;
}

ftk_status ftk_encode(ftk_encoder *s, const ftk_input *inputs, size_t n, float *states, size_t cap, size_t *offsets,
                      ftk_error *e) {
    if (!s || !states || !offsets) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder, states and offsets must not be NULL");
    FTKI_TRY(run(s, inputs, n, false, e));
    size_t total = 0, d = (size_t)s->model->encoder.config.hidden;
    for (size_t i = 0; i < n; i++) total += (size_t)s->run.items[i].n;
    if (total > cap) return ftki_fail(e, FTK_INVALID_ARGUMENT, "there are %zu states, room for %zu", total, cap);
    offsets[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const ftki_encoder_item *item = &s->run.items[i];
        memcpy(states + offsets[i] * d, s->run.x + (size_t)item->first * d, (size_t)item->n * d * sizeof *states);
        offsets[i + 1] = offsets[i] + (size_t)item->n;
    }
    return FTK_OK;
}

/* ----------------------------------------------------------------- results */

const float *ftk_encoder_logits(const ftk_encoder *s, size_t i) {
    if (!s || !s->has_logits || i >= (size_t)s->n_results) return NULL;
    return s->run.logits + i * (size_t)s->model->encoder.config.n_labels;
}

static ftk_status check_result(const ftk_encoder *s, size_t i, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "encoder must not be NULL");
    if (i < (size_t)s->n_results) return FTK_OK;
    return ftki_fail(e, FTK_INVALID_ARGUMENT, "there is no result %zu, the last call had %d", i, s->n_results);
}

ftk_status ftk_encoder_result(const ftk_encoder *s, size_t i, ftk_encoded *out, ftk_error *e) {
    FTKI_TRY(check_result(s, i, e));
    if (!out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out must not be NULL");
    const ftki_encoder_item *item = &s->run.items[i];
    size_t at = i * (size_t)s->model->encoder.config.n_layers;
    *out = (ftk_encoded){.tokens_in = item->tokens_in, .tokens_out = item->n, .layers = item->layers,
                         .exited = item->exited, .confidence = item->confidence,
                         .attention_tokens = s->run.attention_tokens + at, .ffn_tokens = s->run.ffn_tokens + at,
                         .multiply_adds_dense = item->madds_dense, .multiply_adds = item->madds,
                         .seconds = s->seconds, .reduction_seconds = item->reduce_seconds,
                         .dense_because = s->plan.any && item->tokens_in < s->plan.r.min_tokens ? "shorter than min_tokens" : NULL};
    return FTK_OK;
}

ftk_status ftk_encoder_owners(const ftk_encoder *s, size_t i, int32_t layer, int32_t *owners, ftk_error *e) {
    FTKI_TRY(check_result(s, i, e));
    if (!owners) return ftki_fail(e, FTK_INVALID_ARGUMENT, "owners must not be NULL");
    const ftki_encoder_item *item = &s->run.items[i];
    if (layer < 0 || layer >= item->layers)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "layer is %d, %d were computed", layer, item->layers);
    const int32_t *from = s->run.owners + (size_t)layer * (size_t)s->run.max_tokens + (size_t)item->first;
    for (int32_t t = 0; t < item->tokens_in; t++) owners[t] = s->plan.any ? from[t] : t;
    return FTK_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* A session: what it holds, and the calls that make it hold more. Sampling, generation and
 * snapshots are files of their own. */
#include <string.h>

#include "base/options.h"
#include "engine/model.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_CHUNK = 256, MAX_CHUNK = 4096, MAX_THREADS = 256 };

/* Options with every default filled in. */
static ftk_status complete(ftk_session_opts *out, const ftk_model *m, const ftk_session_opts *o,
                           ftk_error *e) {
    ftk_session_opts s;
    ftki_options_read(&s, sizeof s, o);
    if (m->is_encoder)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a %s model is an encoder: it classifies and embeds, and generates nothing",
                         m->encoder.config.arch_name);
    if (!m->has_weights)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the model was opened with vocab_only: it has no weights");
    int32_t trained = m->decoder.config.train_context;
    if (s.context == 0) s.context = trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    if (s.chunk == 0) s.chunk = DEFAULT_CHUNK;
    if (s.n_threads == 0) s.n_threads = ftki_online_cores();
    if (s.context < 1 || s.context > FTKI_MAX_CONTEXT)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "context is %d, must be 1 to %d", s.context, FTKI_MAX_CONTEXT);
    if (s.chunk < 1 || s.chunk > MAX_CHUNK)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "chunk is %d, must be 1 to %d", s.chunk, MAX_CHUNK);
    if (s.n_threads < 1 || s.n_threads > MAX_THREADS)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "n_threads is %d, must be 1 to %d", s.n_threads, MAX_THREADS);
    if (s.kv_type != FTK_KV_INT8 && s.kv_type != FTK_KV_F16 && s.kv_type != FTK_KV_F32)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "kv_type is %d, must be INT8, F16 or F32", (int)s.kv_type);
    if (s.chunk > s.context) s.chunk = s.context;
    *out = s;
    return FTK_OK;
}

static ftki_kv_format format_of(ftk_kv_type t) {
    return t == FTK_KV_F32 ? FTKI_KV_F32 : t == FTK_KV_F16 ? FTKI_KV_F16 : FTKI_KV_INT8;
}

/* Where things lie in the session's arena. */
typedef struct places {
    size_t tokens, logits, held_under, inside, counts;
} places;

/* The one plan behind both the estimate and the session. */
static ftk_status plan(const ftk_model *m, const ftk_session_opts *s, ftki_scratch *scratch,
                       ftki_arena *arena, places *at, ftk_memory *out, ftk_error *e) {
    const ftki_config *c = &m->decoder.config;
    FTKI_TRY(ftki_scratch_plan(scratch, &m->decoder, s->chunk, s->n_threads, s->context, e));
    at->tokens = ftki_arena_plan(arena, (size_t)s->context, sizeof(ftk_token));
    at->logits = ftki_arena_plan(arena, (size_t)c->n_vocab, sizeof(float));
    at->held_under = ftki_arena_plan(arena, (size_t)s->context, sizeof(uint32_t));
    at->inside = ftki_arena_plan(arena, (size_t)s->context + 1, 1);
    at->counts = ftki_arena_plan(arena, (size_t)c->n_layers * ((size_t)c->n_kv_heads + 1), sizeof(int32_t));
    size_t kv = ftki_kv_plan_bytes(format_of(s->kv_type), c->n_layers, c->n_kv_heads, c->head_dim, s->context);
    if (kv == 0 || arena->overflow)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "a context of %d positions overflows the memory plan", s->context);
    *out = (ftk_memory){.weights = m->decoder.arena.bytes, .scratch = scratch->arena.bytes + arena->bytes, .kv = kv};
    out->total = out->weights + out->scratch + out->kv;
    return FTK_OK;
}

ftk_status ftk_memory_estimate(const ftk_model *m, const ftk_session_opts *o, ftk_memory *out, ftk_error *e) {
    if (!m || !out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "model and out must not be NULL");
    ftk_session_opts s;
    ftki_scratch scratch = {0};
    ftki_arena arena = {0};
    places at;
    FTKI_TRY(complete(&s, m, o, e));
    return plan(m, &s, &scratch, &arena, &at, out, e);
}

ftk_status ftk_session_open(ftk_session **out, const ftk_model *m, const ftk_session_opts *o, ftk_error *e) {
    if (!out || !m) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out and model must not be NULL");
    ftk_session_opts opts;
    FTKI_TRY(complete(&opts, m, o, e));
    ftk_session *s = ftki_alloc(1, sizeof *s);
    if (!s) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a session");
    const ftki_config *c = &m->decoder.config;
    places at;
    ftk_memory memory;
    ftk_status status = plan(m, &opts, &s->scratch, &s->arena, &at, &memory, e);
    if (status == FTK_OK && opts.max_bytes && memory.total > opts.max_bytes)
        status = ftki_fail(e, FTK_OUT_OF_MEMORY,
                           "a context of %d needs %llu MiB (weights %llu, KV %llu), the limit is %llu MiB; "
                           "ask for a shorter context",
                           opts.context, (unsigned long long)(memory.total >> 20),
                           (unsigned long long)(memory.weights >> 20), (unsigned long long)(memory.kv >> 20),
                           (unsigned long long)(opts.max_bytes >> 20));
    if (status == FTK_OK) status = ftki_scratch_commit(&s->scratch, &m->decoder, e);
    if (status == FTK_OK) status = ftki_arena_commit(&s->arena, e);
    if (status == FTK_OK)
        status = ftki_kv_open(&s->kv, format_of(opts.kv_type), c->n_layers, c->n_kv_heads, c->head_dim,
                              opts.context, e);
    if (status == FTK_OK) status = ftki_team_open(&s->team, opts.n_threads, e);
    if (status != FTK_OK) {
        ftk_session_close(s);
        return status;
    }
    s->model = m;
    s->context = opts.context;
    s->tokens = ftki_arena_at(&s->arena, at.tokens);
    s->logits = ftki_arena_at(&s->arena, at.logits);
    s->reducer.held_under = ftki_arena_at(&s->arena, at.held_under);
    s->reducer.inside = ftki_arena_at(&s->arena, at.inside);
    s->reducer.counts = ftki_arena_at(&s->arena, at.counts);
    s->progress = opts.progress;
    s->progress_ctx = opts.progress_ctx;
    s->stats.isa = m->decoder.kernels->name;
    s->stats.weight_bytes = m->decoder.weight_bytes;
    s->stats.scratch_bytes = memory.scratch;
    *out = s;
    return FTK_OK;
}

void ftk_session_close(ftk_session *s) {
    if (!s) return;
    ftki_team_close(s->team);
    ftki_reducer_close(&s->reducer);
    ftki_kv_close(&s->kv);
    ftki_scratch_close(&s->scratch);
    ftki_arena_close(&s->arena);
    ftki_free(s);
}

/* Tokens that are reduced together. */
typedef struct segment {
    int32_t first, n; /* positions [first, first + n) */
} segment;

/* Appends tokens [n], n at most the chunk, with the logits of the last n_logits. The session holds
 * all of them or, on failure, none. */
static ftk_status append_chunk(ftk_session *s, const ftk_token *tokens, int32_t n, int32_t n_logits,
                               float *logits, const segment *seg, ftk_error *e) {
    ftki_forward f = {.decoder = &s->model->decoder, .scratch = &s->scratch, .kv = &s->kv, .team = s->team,
                      .tokens = tokens, .n = n, .position = s->n_tokens, .n_logits = n_logits,
                      .logits = logits, .cancel = &s->cancel, .tap = s->tap, .tap_ctx = s->tap_ctx};
    if (seg) ftki_reducer_observe(s, &f, s->n_tokens - seg->first, n, seg->n);
    ftki_no_alloc_enter();
    ftk_status status = ftki_forward_run(&f, e);
    ftki_no_alloc_leave();
    if (status != FTK_OK) return status;
    memmove(s->tokens + s->n_tokens, tokens, (size_t)n * sizeof *tokens);
    for (int32_t t = s->n_tokens; t < s->n_tokens + n; t++) s->reducer.held_under[t] = s->reducer.key;
    for (int32_t t = s->n_tokens; t < s->n_tokens + n; t++) s->reducer.inside[t] = 0;
    s->n_tokens += n;
    const ftki_decoder *d = &s->model->decoder;
    s->stats.multiply_adds += (uint64_t)n * d->matrix_madds + f.attn_madds +
                              (uint64_t)n_logits * (uint64_t)d->output.rows * (uint64_t)d->output.cols;
    return FTK_OK;
}

/* Appends tokens [n] chunk by chunk. logits [n][n_vocab] of all, or NULL: the session's own, of the
 * last one. */
static ftk_status append(ftk_session *s, const ftk_token *tokens, size_t n, float *logits, const segment *seg,
                         ftk_error *e) {
    size_t width = (size_t)s->model->decoder.config.n_vocab, chunk = (size_t)s->scratch.chunk;
    s->has_logits = false;
    for (size_t at = 0; at < n;) {
        size_t take = n - at < chunk ? n - at : chunk;
        bool last = at + take == n;
        if (logits)
            FTKI_TRY(append_chunk(s, tokens + at, (int32_t)take, (int32_t)take, logits + at * width, seg, e));
        else
            FTKI_TRY(append_chunk(s, tokens + at, (int32_t)take, last ? 1 : 0, s->logits, seg, e));
        at += take;
        if (s->progress && !s->progress(s->progress_ctx, "prefill", at, n) && at < n)
            return ftki_fail(e, FTK_CANCELLED, "cancelled after %zu of %zu tokens", at, n);
    }
    if (logits) memcpy(s->logits, logits + (n - 1) * width, width * sizeof(float));
    s->has_logits = true;
    return FTK_OK;
}

static ftk_status check_room(const ftk_session *s, size_t held, size_t n, ftk_error *e) {
    if (held + n <= (size_t)s->context) return FTK_OK;
    return ftki_fail(e, FTK_CONTEXT_FULL, "%zu tokens do not fit into a context of %d", held + n, s->context);
}

static ftk_status check_tokens(const ftk_session *s, const ftk_token *tokens, size_t n, ftk_error *e) {
    if (n == 0 || !tokens) return ftki_fail(e, FTK_INVALID_ARGUMENT, "there are no tokens");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->decoder.config.n_vocab)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "token %d at index %zu is outside the vocabulary of %d",
                             tokens[i], i, s->model->decoder.config.n_vocab);
    return FTK_OK;
}

/* Ends a call: a request to cancel is used up by the call it ended. */
static ftk_status finished(ftk_session *s, ftk_status status) {
    if (status == FTK_CANCELLED) atomic_store(&s->cancel, false);
    s->stats.kv_bytes = ftki_kv_bytes(&s->kv);
    s->stats.kv_peak_bytes = ftki_kv_peak_bytes(&s->kv);
    return status;
}

/* Appends what ftk_prefill adds: segment by segment when a policy reduces it. */
static ftk_status add_reduced(ftk_session *s, const ftk_token *tokens, size_t n, ftk_error *e) {
    ftk_reduced *last = &s->reducer.last;
    *last = (ftk_reduced){.tokens_in = (int32_t)n, .tokens_out = (int32_t)n,
                          .dense_because = ftki_reducer_skips(s, (int32_t)n)};
    uint64_t before = s->stats.multiply_adds;
    ftk_status status = FTK_OK;
    if (last->dense_because) status = append(s, tokens, n, NULL, NULL, e);
    for (size_t at = 0; !last->dense_because && status == FTK_OK && at < n;) {
        size_t most = (size_t)s->reducer.policy.r.segment, take = n - at < most ? n - at : most;
        segment seg = {s->n_tokens, (int32_t)take};
        status = ftki_reducer_begin(s, tokens + at, seg.n, e);
        if (status == FTK_OK) status = append(s, tokens + at, take, NULL, &seg, e);
        if (status == FTK_OK) status = ftki_reducer_finish(s, seg.n, e);
        at += take;
    }
    last->multiply_adds = last->multiply_adds_dense = s->stats.multiply_adds - before;
    return status;
}

ftk_status ftk_prefill(ftk_session *s, const ftk_token *tokens, size_t n, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session must not be NULL");
    FTKI_TRY(check_tokens(s, tokens, n, e));
    FTKI_TRY(check_room(s, 0, n, e));
    size_t common = 0;
    while (common + 1 < n && common < (size_t)s->n_tokens && s->tokens[common] == tokens[common] &&
           s->reducer.held_under[common] == s->reducer.key)
        common++;
    common = (size_t)ftki_reducer_border(s, (int32_t)common);
    FTKI_TRY(ftk_session_rewind(s, common, e));
    double start = ftki_seconds();
    ftk_status status = add_reduced(s, tokens + common, n - common, e);
    s->stats.prefill_seconds = ftki_seconds() - start;
    s->stats.prefill_tokens = (size_t)s->n_tokens - common;
    s->stats.reused_tokens = common;
    return finished(s, status);
}

ftk_status ftk_decode(ftk_session *s, ftk_token token, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session must not be NULL");
    FTKI_TRY(check_tokens(s, &token, 1, e));
    FTKI_TRY(check_room(s, (size_t)s->n_tokens, 1, e));
    double start = ftki_seconds();
    s->has_logits = false;
    ftk_status status = append_chunk(s, &token, 1, 1, s->logits, NULL, e);
    s->has_logits = status == FTK_OK;
    s->stats.decode_seconds += ftki_seconds() - start;
    s->stats.decode_tokens += status == FTK_OK;
    return finished(s, status);
}

ftk_status ftk_score(ftk_session *s, const ftk_token *tokens, size_t n, float *logits, ftk_error *e) {
    if (!s || !logits) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session and logits must not be NULL");
    FTKI_TRY(check_tokens(s, tokens, n, e));
    FTKI_TRY(check_room(s, (size_t)s->n_tokens, n, e));
    return finished(s, append(s, tokens, n, logits, NULL, e));
}

ftk_status ftk_session_rewind(ftk_session *s, size_t n, ftk_error *e) {
    if (!s) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session must not be NULL");
    if (n > (size_t)s->n_tokens)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "cannot rewind to %zu: the session holds %d tokens", n,
                         s->n_tokens);
    if (n == (size_t)s->n_tokens) return FTK_OK;
    int32_t border = ftki_reducer_border(s, (int32_t)n);
    if (border != (int32_t)n)
        return ftki_fail(e, FTK_INVALID_ARGUMENT,
                         "cannot rewind to %zu, inside tokens that were reduced together: rewind to %d, or further on", n,
                         border);
    ftki_kv_rewind(&s->kv, (int32_t)n);
    s->n_tokens = (int32_t)n;
    s->has_logits = false;
    s->stats.kv_bytes = ftki_kv_bytes(&s->kv);
    return FTK_OK;
}

const float *ftk_logits(const ftk_session *s, size_t *n) {
    if (n) *n = (size_t)s->model->decoder.config.n_vocab;
    return s->has_logits ? s->logits : NULL;
}

size_t ftk_session_length(const ftk_session *s) { return (size_t)s->n_tokens; }
size_t ftk_session_context(const ftk_session *s) { return (size_t)s->context; }
const ftk_token *ftk_session_tokens(const ftk_session *s) { return s->tokens; }
void ftk_session_cancel(ftk_session *s) { atomic_store(&s->cancel, true); }
void ftk_session_stats(const ftk_session *s, ftk_stats *out) { *out = s->stats; }

void ftk_session_tap(ftk_session *s, ftk_tap_fn fn, void *ctx) {
    s->tap = fn;
    s->tap_ctx = ctx;
}

// SPDX-License-Identifier: Apache-2.0
/* Picking the next token from logits.
 *
 * Order: bias, penalties, then, at temperature 0, the largest logit (the lowest id among equals);
 * otherwise top-k, top-p, min-p, temperature, and one draw. top-p and min-p look at the
 * probabilities before temperature. In the order "largest logit first, lowest id among equals" each
 * of the three keeps a prefix, so the vocabulary is never sorted: a heap gives up as many
 * candidates as are kept.
 *
 * Logits that are not numbers count as banned, infinite ones as the largest finite number. When
 * nothing is left to pick from, that is an error, never a token.
 *
 * Owns its own state; reads tokens and logits of the session. Nothing is allocated after open. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/model.h"
#include "base/options.h"

enum { DEFAULT_WINDOW = 64 };

typedef struct candidate {
    float logit;
    ftk_token token;
} candidate;

struct ftk_sampler {
    ftk_sampler_opts opts;
    ftk_logit_bias *bias; /* [opts.n_bias] */
    int32_t n_vocab;      /* ids that may be picked; rows past the vocabulary are padding */
    ftki_rng rng;
    float *logits;        /* [n_vocab] after bias and penalties */
    int32_t *counts;      /* [n_vocab] uses inside the penalty window; zero between calls */
    candidate *heap;      /* [n_vocab] */
};

/* ---------------------------------------------------------------- options */

static ftk_status check_range(const char *field, float value, float low, float high, ftk_error *e) {
    if (value >= low && value <= high) return FTK_OK; /* a NaN is in no range */
    return ftki_fail(e, FTK_INVALID_ARGUMENT, "%s is %g, must be %g to %g", field, (double)value, (double)low,
                     (double)high);
}

static ftk_status check_options(const ftk_sampler_opts *o, int32_t n_vocab, ftk_error *e) {
    FTKI_TRY(check_range("temperature", o->temperature, 0.0f, 100.0f, e));
    FTKI_TRY(check_range("top_p", o->top_p, 0.0f, 1.0f, e));
    FTKI_TRY(check_range("min_p", o->min_p, 0.0f, 1.0f, e));
    FTKI_TRY(check_range("repetition_penalty", o->repetition_penalty, 0.0f, 100.0f, e));
    FTKI_TRY(check_range("frequency_penalty", o->frequency_penalty, -2.0f, 2.0f, e));
    FTKI_TRY(check_range("presence_penalty", o->presence_penalty, -2.0f, 2.0f, e));
    if (o->top_k < 0)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "top_k is %d, must be 0 (off) or more", o->top_k);
    if (o->penalty_window < -1)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "penalty_window is %d, must be -1 (all), 0 (default) or more",
                         o->penalty_window);
    if (o->n_bias > 0 && !o->bias)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "bias is NULL, n_bias is %zu", o->n_bias);
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].token < 0 || o->bias[i].token >= n_vocab)
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "bias %zu is for token %d, outside the vocabulary of %d", i,
                             o->bias[i].token, n_vocab);
        if (isnan(o->bias[i].bias))
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "bias %zu (token %d) is not a number", i, o->bias[i].token);
    }
    return FTK_OK;
}

ftk_status ftk_sampler_open(ftk_sampler **out, const ftk_model *m, const ftk_sampler_opts *o, ftk_error *e) {
    if (!out || !m) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out and model must not be NULL");
    ftk_sampler_opts opts;
    ftki_options_read(&opts, sizeof opts, o);
    int32_t n_vocab = ftki_tokenizer_size(m->tokenizer);
    FTKI_TRY(check_options(&opts, n_vocab, e));

    ftk_sampler *p = ftki_alloc(1, sizeof *p);
    if (!p) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a sampler");
    p->logits = ftki_alloc((size_t)n_vocab, sizeof *p->logits);
    p->counts = ftki_alloc((size_t)n_vocab, sizeof *p->counts);
    p->heap = ftki_alloc((size_t)n_vocab, sizeof *p->heap);
    p->bias = ftki_alloc(opts.n_bias, sizeof *p->bias);
    if (!p->logits || !p->counts || !p->heap || !p->bias) {
        ftk_sampler_close(p);
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a sampler over %d tokens", n_vocab);
    }
    if (opts.n_bias) memcpy(p->bias, opts.bias, opts.n_bias * sizeof *p->bias);
    opts.bias = p->bias;
    if (opts.repetition_penalty == 0.0f) opts.repetition_penalty = 1.0f;
    if (opts.top_p == 0.0f) opts.top_p = 1.0f;
    if (opts.penalty_window == 0) opts.penalty_window = DEFAULT_WINDOW;
    p->opts = opts;
    p->n_vocab = n_vocab;
    ftki_rng_seed(&p->rng, opts.seed);
    *out = p;
    return FTK_OK;
}

void ftk_sampler_close(ftk_sampler *p) {
    if (!p) return;
    ftki_free(p->logits);
    ftki_free(p->counts);
    ftki_free(p->heap);
    ftki_free(p->bias);
    ftki_free(p);
}

/* ------------------------------------------------------- bias and penalties */

static void add_bias(ftk_sampler *p) {
    for (size_t i = 0; i < p->opts.n_bias; i++) {
        float *l = &p->logits[p->bias[i].token];
        *l = fminf(*l + p->bias[i].bias, FLT_MAX);
    }
}

/* Repetition: CTRL (Keskar et al. 2019). Frequency and presence: subtracted per use and once. */
static void penalise(ftk_sampler *p, const ftk_token *tokens, int32_t n_tokens) {
    const ftk_sampler_opts *o = &p->opts;
    if (o->repetition_penalty == 1.0f && o->frequency_penalty == 0.0f && o->presence_penalty == 0.0f) return;
    int32_t window = o->penalty_window < 0 || o->penalty_window > n_tokens ? n_tokens : o->penalty_window;
    const ftk_token *recent = tokens + (n_tokens - window);
    for (int32_t i = 0; i < window; i++)
        if (recent[i] < p->n_vocab) p->counts[recent[i]]++;
    for (int32_t i = 0; i < window; i++) {
        if (recent[i] >= p->n_vocab || p->counts[recent[i]] == 0) continue; /* done at its first use */
        float *l = &p->logits[recent[i]];
        *l = *l > 0.0f ? *l / o->repetition_penalty : *l * o->repetition_penalty;
        *l -= (float)p->counts[recent[i]] * o->frequency_penalty + o->presence_penalty;
        *l = fminf(*l, FLT_MAX);
        p->counts[recent[i]] = 0;
    }
}

/* ------------------------------------------------------------- selection */

static bool before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift_down(candidate *heap, size_t n, size_t at) {
    candidate moving = heap[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moving)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* Moves the first of heap [n] to its end: heap [n - 1] is a heap again. */
static void pop(candidate *heap, size_t n) {
    candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    if (n > 1) sift_down(heap, n - 1, 0);
}

/* Candidates that survive top-k, top-p and min-p, of heap [n]: *kept of them at heap + result. */
static size_t narrow(ftk_sampler *p, size_t n, float max, size_t *kept) {
    const ftk_sampler_opts *o = &p->opts;
    candidate *heap = p->heap;
    float least = o->min_p > 0.0f ? max + logf(o->min_p) : -INFINITY;
    if (o->top_k == 0 && o->top_p >= 1.0f) { /* no order needed */
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++)
            if (heap[i].logit >= least) heap[n_kept++] = heap[i];
        *kept = n_kept;
        return 0;
    }
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
    /* The probabilities top-p adds up are those among the k. */
    size_t k = o->top_k > 0 && (size_t)o->top_k < n ? (size_t)o->top_k : n, popped = 0;
    double total = 0.0, held = 0.0;
    if (k < n)
        while (popped < k) pop(heap, n - popped++);
    for (size_t i = k < n ? n - k : 0; i < n; i++) total += (double)expf(heap[i].logit - max);
    double enough = o->top_p < 1.0f ? (double)o->top_p * total : INFINITY;
    size_t n_kept = 0;
    while (n_kept < k) {
        if (popped == n_kept) pop(heap, n - popped++);
        candidate next = heap[n - 1 - n_kept];
        if (n_kept > 0 && (next.logit < least || held >= enough)) break;
        held += (double)expf(next.logit - max);
        n_kept++;
    }
    *kept = n_kept;
    return n - n_kept;
}

/* One draw from softmax(logit / temperature). */
static ftk_token draw(ftk_sampler *p, const candidate *from, size_t n, float max) {
    double total = 0.0;
    for (size_t i = 0; i < n; i++) total += (double)expf((from[i].logit - max) / p->opts.temperature);
    uint64_t high = ftki_rng_u32(&p->rng);
    uint64_t bits = high << 21 ^ ftki_rng_u32(&p->rng) >> 11;
    double left = (double)bits * 0x1p-53 * total;
    ftk_token last = from[0].token;
    for (size_t i = 0; i < n; i++) {
        double weight = (double)expf((from[i].logit - max) / p->opts.temperature);
        if (weight > 0.0) last = from[i].token;
        if (left < weight) break;
        left -= weight;
    }
    return last;
}

ftk_status ftk_sample(ftk_sampler *p, const ftk_session *s, ftk_token *out, ftk_error *e) {
    if (!p || !s || !out) return ftki_fail(e, FTK_INVALID_ARGUMENT, "sampler, session and out must not be NULL");
    size_t n_logits;
    const float *logits = ftk_logits(s, &n_logits);
    if (!logits)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the session has no logits: call ftk_prefill or ftk_decode first");
    if (ftki_tokenizer_size(s->model->tokenizer) != p->n_vocab || n_logits < (size_t)p->n_vocab)
        return ftki_fail(e, FTK_MISMATCH, "the sampler is for a vocabulary of %d, the session's is %d", p->n_vocab,
                         ftki_tokenizer_size(s->model->tokenizer));

    size_t n_numbers = 0, n = 0;
    for (int32_t i = 0; i < p->n_vocab; i++) {
        float l = isnan(logits[i]) ? -INFINITY : fminf(logits[i], FLT_MAX);
        n_numbers += l > -INFINITY;
        p->logits[i] = l;
    }
    add_bias(p);
    penalise(p, s->tokens, s->n_tokens);
    candidate best = {-INFINITY, -1};
    for (int32_t i = 0; i < p->n_vocab; i++) {
        if (!(p->logits[i] > -INFINITY)) continue;
        p->heap[n++] = (candidate){p->logits[i], i};
        if (p->logits[i] > best.logit) best = p->heap[n - 1];
    }
    if (n_numbers == 0)
        return ftki_fail(e, FTK_FORMAT, "no logit is a finite number: the model file is damaged or holds no such weights");
    if (n == 0) return ftki_fail(e, FTK_INVALID_ARGUMENT, "bias bans every token");
    if (p->opts.temperature > 0.0f) {
        size_t kept, at = narrow(p, n, best.logit, &kept);
        *out = draw(p, p->heap + at, kept, best.logit);
    } else {
        *out = best.token;
    }
    return FTK_OK;
}

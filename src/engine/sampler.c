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

enum { LANES = 16 }; /* independent maxima, for the compiler to keep in vectors */

static float largest(const float *x, int32_t n) {
    float best[LANES];
    int32_t i = 0;
    for (int k = 0; k < LANES; k++) best[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
    for (; i < n; i++) best[0] = x[i] > best[0] ? x[i] : best[0];
    for (int k = 1; k < LANES; k++) best[0] = best[k] > best[0] ? best[k] : best[0];
    return best[0];
}

/* exp(x) for x <= 0, never less than exp(-87): 2^n times a polynomial for 2^f, f in [-1/2, 1/2].
 * Relative error below 7e-7 down to -10, 4e-6 everywhere. Not the system's, which is slower over a
 * whole vocabulary and differs by machine. */
static inline float weight_of(float x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    const uint32_t least = 0xC2AE0000u; /* -87; floats <= 0 compare as integers, without a branch */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = bits < least ? bits : least;
    memcpy(&x, &bits, sizeof x);
    float t = x * 1.44269504f, n = (t + round) - round, f = (t - n) * 0.693147181f;
    float y = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f +
              f * 0.00138888889f)))));
    bits = (uint32_t)((int32_t)n + 127) << 23;
    memcpy(&x, &bits, sizeof x);
    return y * x;
}

static double sum_of_weights(const float *logits, int32_t n, float max) {
    double sum[4] = {0};
    float weights[64]; /* apart from the sum, so that they are computed in vectors */
    for (int32_t i = 0; i < n; i += 64) {
        int32_t some = n - i < 64 ? n - i : 64;
        for (int32_t k = 0; k < some; k++) weights[k] = weight_of(logits[i + k] - max);
        for (int32_t k = 0; k < some; k++) sum[k % 4] += (double)weights[k];
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* The order of candidates. */
static bool before(candidate a, candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* heap [n] with the first of the order at its root, or the last if `last`. */
static void sift_down(candidate *heap, size_t n, size_t at, bool last) {
    candidate moving = heap[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(heap[child + 1], heap[child]) != last) child++;
        if (before(heap[child], moving) == last) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static void make_heap(candidate *heap, size_t n, bool last) {
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i, last);
}

/* Moves the root of heap [n] to its end: heap [n - 1] is a heap again. */
static void pop(candidate *heap, size_t n) {
    candidate root = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = root;
    if (n > 1) sift_down(heap, n - 1, 0, false);
}

/* All candidates with at least this logit, by id; returns how many. */
static size_t collect(ftk_sampler *p, float least) {
    size_t n = 0;
    for (int32_t i = 0; i < p->n_vocab; i++) {
        p->heap[n] = (candidate){p->logits[i], i};
        n += p->logits[i] >= least;
    }
    return n;
}

/* The first k in the order, or all when there are fewer: the worst of those kept is at the root. */
static size_t collect_first(ftk_sampler *p, size_t k) {
    candidate *heap = p->heap;
    size_t n = 0;
    for (int32_t i = 0; i < p->n_vocab; i++) {
        float logit = p->logits[i];
        if (n == k && logit <= heap[0].logit) continue; /* as large, but later */
        if (!(logit > -INFINITY)) continue;
        candidate next = {logit, i};
        if (n < k) {
            heap[n++] = next;
            if (n == k) make_heap(heap, n, true);
        } else {
            heap[0] = next;
            sift_down(heap, n, 0, true);
        }
    }
    return n;
}

/* Candidates that survive top-k, top-p and min-p: *kept of them at p->heap + result. */
static size_t narrow(ftk_sampler *p, float max, size_t *kept) {
    const ftk_sampler_opts *o = &p->opts;
    float least = o->min_p > 0.0f ? max + logf(o->min_p) : -FLT_MAX;
    if (o->top_k == 0 && o->top_p >= 1.0f) { /* no order needed */
        *kept = collect(p, least);
        return 0;
    }
    /* The probabilities top-p adds up are those among the k. */
    double enough = INFINITY;
    size_t n;
    if (o->top_k > 0) {
        double total = 0.0;
        n = collect_first(p, (size_t)o->top_k);
        for (size_t i = 0; i < n; i++) total += (double)weight_of(p->heap[i].logit - max);
        if (o->top_p < 1.0f) enough = (double)o->top_p * total;
    } else {
        enough = (double)o->top_p * sum_of_weights(p->logits, p->n_vocab, max);
        double held = 0.0;
        n = collect(p, max - 8.0f); /* usually all that is wanted; the rest is not worth a heap */
        for (size_t i = 0; i < n; i++) held += (double)weight_of(p->heap[i].logit - max);
        if (held < enough) n = collect(p, -FLT_MAX);
    }
    make_heap(p->heap, n, false);
    size_t n_kept = 0;
    double held = 0.0;
    do {
        pop(p->heap, n - n_kept++);
        held += (double)weight_of(p->heap[n - n_kept].logit - max);
    } while (n_kept < n && held < enough && p->heap[0].logit >= least);
    *kept = n_kept;
    return n - n_kept;
}

/* One draw from softmax(logit / temperature). */
static ftk_token draw(ftk_sampler *p, const candidate *from, size_t n, float max) {
    float temperature = p->opts.temperature;
    double total = 0.0;
    for (size_t i = 0; i < n; i++) total += (double)weight_of((from[i].logit - max) / temperature);
    uint64_t high = ftki_rng_u32(&p->rng);
    uint64_t bits = high << 21 ^ ftki_rng_u32(&p->rng) >> 11;
    double left = (double)bits * 0x1p-53 * total;
    ftk_token last = -1;
    for (size_t i = 0; i < n; i++) {
        double weight = (double)weight_of((from[i].logit - max) / temperature);
        last = from[i].token;
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

    for (int32_t i = 0; i < p->n_vocab; i++) { /* a NaN is not at least anything */
        float l = logits[i] < FLT_MAX ? logits[i] : FLT_MAX;
        p->logits[i] = logits[i] >= -FLT_MAX ? l : -INFINITY;
    }
    if (!(largest(p->logits, p->n_vocab) > -INFINITY))
        return ftki_fail(e, FTK_FORMAT, "no logit is a finite number: the model file is damaged or holds no such weights");
    add_bias(p);
    penalise(p, s->tokens, s->n_tokens);
    float max = largest(p->logits, p->n_vocab);
    if (!(max > -INFINITY)) return ftki_fail(e, FTK_INVALID_ARGUMENT, "bias bans every token");
    if (p->opts.temperature > 0.0f) {
        size_t kept, at = narrow(p, max, &kept);
        *out = draw(p, p->heap + at, kept, max);
    } else {
        ftk_token best = 0;
        while (p->logits[best] < max) best++;
        *out = best;
    }
    return FTK_OK;
}

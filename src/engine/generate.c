// SPDX-License-Identifier: Apache-2.0
/* Generation: sample, hand out text, decode, until something ends it.
 *
 * Text passes through two filters that both hold back only what is still undecided:
 *   stop strings  one Knuth-Morris-Pratt automaton each, fed byte by byte, so that neither token
 *                 borders nor their number matter; what may be the start of a stop string waits;
 *   UTF-8         an incomplete character waits; bytes that are no character become U+FFFD, one for
 *                 each longest run that could have been the start of one (Unicode 3.9, D93b).
 *
 * A token's text is handed out before the token is decoded, so that the first text does not wait
 * for a second step; the token is decoded all the same when the callback or a cancellation ends the
 * call, so that the session holds what was shown. (Only a second cancellation of that one step
 * leaves the session one token short, and without logits.)
 *
 * Everything is allocated before the first token. */
#include <string.h>

#include "engine/model.h"
#include "base/options.h"

enum { PIECE = 256 /* bytes of a token handled at once */, CHARACTER = 4 };

/* A stop string and how much of it the text so far ends with. */
typedef struct stopper {
    const char *text; /* [len], the caller's */
    size_t len, held;
    size_t *fallback; /* [len]: length of the longest proper prefix that ends text[0..i] */
} stopper;

typedef struct stream {
    stopper *stops; /* [n_stops] */
    size_t n_stops;
    char *pending;  /* bytes generated, not yet handed out */
    size_t n_pending;
    bool stopped;   /* a stop string came: the rest is dropped */
    bool refused;   /* the callback wants no more */
    ftk_text_fn on_text;
    void *ctx;
} stream;

/* ------------------------------------------------------------------ UTF-8 */

/* Length of the character at text [len], 0 when it is cut off by the end of the text, or minus the
 * number of bytes one U+FFFD replaces. */
static int character(const unsigned char *text, size_t len) {
    unsigned char c = text[0], low = 0x80, high = 0xBF;
    int n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (n == 0) return -1;
    if (c == 0xE0) low = 0xA0; /* overlong */
    if (c == 0xED) high = 0x9F; /* surrogates */
    if (c == 0xF0) low = 0x90; /* overlong */
    if (c == 0xF4) high = 0x8F; /* past U+10FFFF */
    for (int i = 1; i < n; i++) {
        if ((size_t)i == len) return 0;
        if (text[i] < low || text[i] > high) return -i;
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

static void hand_out(stream *t, const char *text, size_t len) {
    if (len == 0 || t->refused || !t->on_text) return;
    ftki_no_alloc_leave(); /* the callback is the caller's code */
    t->refused = !t->on_text(t->ctx, text, len);
    ftki_no_alloc_enter();
}

/* Hands out the first `len` pending bytes; an incomplete character at their end waits unless
 * `last`. */
static void flush(stream *t, size_t len, bool last) {
    const unsigned char *text = (const unsigned char *)t->pending;
    size_t at = 0, begin = 0;
    while (at < len) {
        int n = character(text + at, len - at);
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (n == 0 && !last) break;
        hand_out(t, t->pending + begin, at - begin);
        hand_out(t, "\xEF\xBF\xBD", 3);
        at = begin = n == 0 ? len : at + (size_t)-n;
    }
    hand_out(t, t->pending + begin, at - begin);
    t->n_pending -= at;
    memmove(t->pending, t->pending + at, t->n_pending);
}

/* ----------------------------------------------------------- stop strings */

static void prepare_stop(stopper *s) {
    s->fallback[0] = 0;
    for (size_t i = 1, k = 0; i < s->len; i++) {
        while (k > 0 && s->text[i] != s->text[k]) k = s->fallback[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->fallback[i] = k;
    }
}

/* true: the text ends with the whole stop string now. */
static bool advance(stopper *s, char c) {
    while (s->held > 0 && s->text[s->held] != c) s->held = s->fallback[s->held - 1];
    if (s->text[s->held] == c) s->held++;
    return s->held == s->len;
}

/* Takes at most PIECE more bytes of generated text. */
static void take(stream *t, const char *text, size_t len) {
    size_t hold = 0;
    for (size_t i = 0; i < len; i++) {
        size_t matched = 0;
        hold = 0;
        t->pending[t->n_pending++] = text[i];
        for (size_t k = 0; k < t->n_stops; k++) {
            stopper *s = &t->stops[k];
            if (advance(s, text[i]) && s->len > matched) matched = s->len;
            if (s->held > hold) hold = s->held;
        }
        if (matched > 0) {
            flush(t, t->n_pending - matched, true);
            t->stopped = true;
            return;
        }
    }
    flush(t, t->n_pending - hold, false);
}

static void feed(stream *t, const char *text, size_t len) {
    for (size_t at = 0; at < len && !t->stopped;) {
        size_t n = len - at < PIECE ? len - at : PIECE;
        take(t, text + at, n);
        at += n;
    }
}

/* -------------------------------------------------------------- the call */

static ftk_status check_options(const ftk_generate_opts *o, ftk_error *e) {
    if (o->max_tokens < 0)
        return ftki_fail(e, FTK_INVALID_ARGUMENT,
                         "max_tokens is %d, must be 0 (until the context is full) or more", o->max_tokens);
    if (o->n_stop > 0 && !o->stop)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "stop is NULL, n_stop is %zu", o->n_stop);
    for (size_t i = 0; i < o->n_stop; i++) {
        if (!o->stop[i] || !o->stop[i][0])
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "stop string %zu is %s", i, o->stop[i] ? "empty" : "NULL");
    }
    return FTK_OK;
}

/* Lays the stream out in one block, *memory, the caller's to free. */
static ftk_status open_stream(stream *t, const ftk_generate_opts *o, void **memory, ftk_error *e) {
    size_t longest = 0, total = 0, bytes = 0;
    for (size_t i = 0; i < o->n_stop; i++) {
        size_t len = strlen(o->stop[i]);
        if (len > longest) longest = len;
        total += len; /* of strings that are in memory: cannot overflow */
    }
    bool fits = ftki_mul_size(total, sizeof(size_t), &bytes);
    fits = fits && ftki_add_size(bytes, o->n_stop * sizeof(stopper), &bytes); /* n_stop <= total */
    fits = fits && ftki_add_size(bytes, longest + CHARACTER + PIECE, &bytes);
    unsigned char *at = fits ? ftki_alloc(1, bytes) : NULL;
    if (!at) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %zu stop strings", o->n_stop);
    *memory = at;
    *t = (stream){.stops = (stopper *)(void *)at, .n_stops = o->n_stop, .on_text = o->on_text, .ctx = o->on_text_ctx};
    at += o->n_stop * sizeof(stopper);
    for (size_t i = 0; i < o->n_stop; i++) {
        t->stops[i] = (stopper){.text = o->stop[i], .len = strlen(o->stop[i]), .fallback = (size_t *)(void *)at};
        at += t->stops[i].len * sizeof(size_t);
        prepare_stop(&t->stops[i]);
    }
    t->pending = (char *)at;
    return FTK_OK;
}

static ftk_status end_with(ftk_generated *g, ftk_finish finish) {
    g->finish = finish;
    return FTK_OK;
}

static ftk_status run(ftk_session *s, ftk_sampler *p, const ftk_generate_opts *o, stream *t, double start,
                      ftk_generated *g, ftk_error *e) {
    const ftki_tokenizer *tokenizer = s->model->tokenizer;
    for (;;) {
        if (atomic_exchange(&s->cancel, false)) return end_with(g, FTK_FINISH_CANCELLED);
        if (s->n_tokens == s->context) return end_with(g, FTK_FINISH_CONTEXT);
        ftk_token token;
        FTKI_TRY(ftk_sample(p, s, &token, e));
        if (g->n_tokens++ == 0) g->first_token_seconds = ftki_seconds() - start;

        size_t len;
        const char *text = ftki_tokenizer_bytes(tokenizer, token, o->show_special, &len);
        if (text) feed(t, text, len);
        ftk_status status = ftk_decode(s, token, e);
        bool cancelled = status == FTK_CANCELLED;
        if (cancelled) status = ftk_decode(s, token, e);
        if (status != FTK_OK && status != FTK_CANCELLED) return status;

        if (!o->ignore_end && ftki_tokenizer_is_end(tokenizer, token)) return end_with(g, FTK_FINISH_END);
        if (t->stopped) return end_with(g, FTK_FINISH_STOP);
        if (cancelled || t->refused) return end_with(g, FTK_FINISH_CANCELLED);
        if (o->max_tokens > 0 && g->n_tokens == (size_t)o->max_tokens)
            return end_with(g, FTK_FINISH_LENGTH);
    }
}

ftk_status ftk_generate(ftk_session *s, ftk_sampler *p, const ftk_generate_opts *o, ftk_generated *out,
                        ftk_error *e) {
    if (!s || !p) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session and sampler must not be NULL");
    ftk_generate_opts opts;
    ftki_options_read(&opts, sizeof opts, o);
    FTKI_TRY(check_options(&opts, e));
    if (!s->has_logits)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "the session has no logits to continue from: call ftk_prefill first");
    double start = ftki_seconds();
    ftk_generated generated = {0};
    stream text;
    void *memory;
    ftk_error error; /* a step cancelled on the way is no failure of the call */
    FTKI_TRY(open_stream(&text, &opts, &memory, e));
    ftki_no_alloc_enter();
    ftk_status status = run(s, p, &opts, &text, start, &generated, &error);
    if (status == FTK_OK && !text.stopped) flush(&text, text.n_pending, true);
    ftki_no_alloc_leave();
    ftki_free(memory);
    if (status != FTK_OK) {
        if (e) *e = error;
        return status;
    }
    generated.seconds = ftki_seconds() - start;
    if (out) *out = generated;
    return FTK_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* The tokenizer as the rest of the engine sees it: special tokens first, the text between them
 * through byte-level BPE, SentencePiece or WordPiece, and back. Owns the parts; docs/tokenizers.md has the
 * rules and where implementations differ. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/memory.h"
#include "text/bpe.h"
#include "text/specials.h"
#include "text/spm.h"
#include "text/utf8.h"
#include "text/wordpiece.h"

struct ftki_tokenizer {
    ftki_vocab vocab;
    ftki_specials specials;
    ftki_bpe bpe; /* one of the three is open, as vocab.kind says */
    ftki_spm spm;
    ftki_wordpiece wordpiece;
    bool space_first; /* SentencePiece: text gets a space in front where it starts ... */
    bool space_after; /* ... and where it follows a control token */
};

static ftk_status open_bpe(ftki_tokenizer *t, const ftki_gguf *g, ftk_error *e) {
    ftki_text pre = {"", 0};
    FTKI_TRY(ftki_gguf_text_or(g, "tokenizer.ggml.pre", &pre, e));
    ftki_splitter *splitter;
    ftki_split_rules rules;
    FTKI_TRY(ftki_splitter_open(&splitter, pre, &rules, e));
    t->vocab.add_bos = rules.add_bos;
    return ftki_bpe_open(&t->bpe, &t->vocab, splitter, rules.ignore_merges, g, e);
}

static ftk_status open_spm(ftki_tokenizer *t, const ftki_gguf *g, ftk_error *e) {
    t->vocab.add_bos = true;
    t->space_first = true;
    FTKI_TRY(ftki_gguf_bool_or(g, "tokenizer.ggml.add_space_prefix", &t->space_first, e));
    t->space_after = t->space_first;
    FTKI_TRY(ftki_gguf_bool_or(g, "freetoken.tokenizer.space_after_special", &t->space_after, e));
    t->space_after = t->space_after && t->space_first;
    return ftki_spm_open(&t->spm, &t->vocab, e);
}

/* Decoding takes the space of the first word away; encoding ends words at spaces by itself. */
static ftk_status open_wordpiece(ftki_tokenizer *t, const ftki_gguf *g, ftk_error *e) {
    t->space_first = t->space_after = true;
    return ftki_wordpiece_open(&t->wordpiece, &t->vocab, g, e);
}

static ftk_status open_kind(ftki_tokenizer *t, const ftki_gguf *g, ftk_error *e) {
    switch (t->vocab.kind) {
    case FTKI_VOCAB_BPE:
        return open_bpe(t, g, e);
    case FTKI_VOCAB_SPM:
        return open_spm(t, g, e);
    default:
        return open_wordpiece(t, g, e);
    }
}

ftk_status ftki_tokenizer_open(ftki_tokenizer **out, const ftki_gguf *g, ftk_error *e) {
    ftki_tokenizer *t = ftki_alloc(1, sizeof *t);
    if (!t) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the tokenizer");
    ftk_status status = ftki_vocab_open(&t->vocab, g, e);
    if (status == FTK_OK) status = open_kind(t, g, e);
    if (status == FTK_OK) status = ftki_vocab_read_markers(&t->vocab, g, e);
    if (status == FTK_OK) status = ftki_specials_open(&t->specials, &t->vocab, e);
    if (status == FTK_OK) *out = t;
    else ftki_tokenizer_close(t);
    return status;
}

void ftki_tokenizer_close(ftki_tokenizer *t) {
    if (!t) return;
    ftki_specials_close(&t->specials);
    ftki_bpe_close(&t->bpe);
    ftki_spm_close(&t->spm);
    ftki_vocab_close(&t->vocab);
    ftki_free(t);
}

/* ---------------------------------------------------------------- encoding */

/* What one call of encode works with; all of it goes when the call ends. */
typedef struct encoder {
    const ftki_tokenizer *t;
    ftki_ids ids;
    ftki_split split;
    ftki_merge_scratch scratch;
    ftki_spm_buffer buffer;
} encoder;

static ftk_status encode_run(encoder *c, const char *text, size_t len, bool prefix, ftk_error *e) {
    if (len == 0) return FTK_OK;
    if (c->t->vocab.kind == FTKI_VOCAB_BPE)
        return ftki_bpe_encode(&c->t->bpe, text, len, &c->split, &c->scratch, &c->ids, e);
    if (c->t->vocab.kind == FTKI_VOCAB_WPM) return ftki_wordpiece_encode(&c->t->wordpiece, text, len, &c->ids, e);
    return ftki_spm_encode(&c->t->spm, text, len, prefix, &c->buffer, &c->scratch, &c->ids, e);
}

static ftk_status encode_text(encoder *c, ftki_special_scan *scan, int flags, ftk_error *e) {
    const ftki_tokenizer *t = c->t;
    if (t->vocab.add_bos && (flags & (FTK_TOKENIZE_BOS_EOS | FTKI_TOKENIZE_BOS)))
        FTKI_TRY(ftki_ids_add(&c->ids, t->vocab.bos, e));
    bool prefix = t->space_first;
    size_t at = 0, start, len;
    for (ftk_token id; (id = ftki_specials_next(scan, at, &start, &len)) >= 0; at = start + len) {
        FTKI_TRY(encode_run(c, scan->text + at, start - at, prefix, e));
        FTKI_TRY(ftki_ids_add(&c->ids, id, e));
        prefix = t->space_after && ftki_vocab_is(&t->vocab, id, FTKI_TYPES_MARKER);
    }
    FTKI_TRY(encode_run(c, scan->text + at, scan->len - at, prefix, e));
    if (t->vocab.add_eos && (flags & FTK_TOKENIZE_BOS_EOS))
        FTKI_TRY(ftki_ids_add(&c->ids, t->vocab.eos, e));
    return FTK_OK;
}

ftk_status ftki_tokenizer_encode_plain(const ftki_tokenizer *t, const char *text, size_t len,
                                       const ftki_plain *plain, size_t n_plain, int flags,
                                       ftk_token *ids, size_t cap, size_t *n, ftk_error *e) {
    if (len > INT32_MAX)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "a text of %zu bytes is too long to tokenize at "
                         "once; cut it into parts of at most 2 GiB", len);
    size_t wrong = ftki_utf8_invalid(text, len);
    if (wrong != len)
        return ftki_fail_at(e, FTK_INVALID_ARGUMENT, (int64_t)wrong, "the text is not valid UTF-8 "
                            "at byte %zu (0x%02X)", wrong, (unsigned char)text[wrong]);
    encoder c = {.t = t};
    ftki_special_scan scan = {.specials = &t->specials, .vocab = &t->vocab, .text = text,
                              .len = len, .control = (flags & FTK_TOKENIZE_SPECIAL) != 0,
                              .plain = plain, .n_plain = n_plain};
    ftk_status status = encode_text(&c, &scan, flags, e);
    if (status == FTK_OK) {
        size_t taken = c.ids.n < cap ? c.ids.n : cap;
        if (taken) memcpy(ids, c.ids.ids, taken * sizeof *ids);
        *n = c.ids.n;
    }
    ftki_free(c.ids.ids);
    ftki_split_end(&c.split);
    ftki_merge_free(&c.scratch);
    ftki_free(c.buffer.data);
    return status;
}

ftk_status ftki_tokenizer_encode(const ftki_tokenizer *t, const char *text, size_t len, int flags,
                                 ftk_token *ids, size_t cap, size_t *n, ftk_error *e) {
    return ftki_tokenizer_encode_plain(t, text, len, NULL, 0, flags, ids, cap, n, e);
}

/* ---------------------------------------------------------------- decoding */

const char *ftki_tokenizer_bytes(const ftki_tokenizer *t, ftk_token id, bool special, size_t *len) {
    *len = 0;
    if (!ftki_vocab_has(&t->vocab, id)) return NULL;
    const uint32_t printed = FTKI_TYPE_BIT(FTKI_TOKEN_NORMAL) | FTKI_TYPE_BIT(FTKI_TOKEN_USER) |
                             FTKI_TYPE_BIT(FTKI_TOKEN_BYTE);
    if (!special && !ftki_vocab_is(&t->vocab, id, printed)) return "";
    return ftki_vocab_bytes(&t->vocab, id, len);
}

/* Undoes what encoding did: the space it put in front goes, at the start and, where control
 * tokens are printed so that the text can be read back, after each of them. */
ftk_status ftki_tokenizer_decode(const ftki_tokenizer *t, const ftk_token *ids, size_t n,
                                 bool special, char *text, size_t cap, size_t *len, ftk_error *e) {
    for (size_t i = 0; i < n; i++)
        if (!ftki_vocab_has(&t->vocab, ids[i]))
            return ftki_fail(e, FTK_INVALID_ARGUMENT, "token %d at position %zu is outside the "
                             "vocabulary of %d tokens", ids[i], i, t->vocab.n_tokens);
    size_t total = 0;
    bool strip = t->space_first;
    for (size_t i = 0; i < n; i++) {
        size_t size;
        const char *bytes = ftki_tokenizer_bytes(t, ids[i], special, &size);
        bool marker = ftki_vocab_is(&t->vocab, ids[i], FTKI_TYPES_MARKER);
        bool literal = marker || ftki_vocab_is(&t->vocab, ids[i], FTKI_TYPE_BIT(FTKI_TOKEN_USER));
        if (!literal && strip && size > 0 && bytes[0] == ' ') {
            bytes++;
            size--;
        }
        if (total < cap && size > 0)
            memcpy(text + total, bytes, size < cap - total ? size : cap - total);
        total += size;
        if (!marker) strip = false;
        else if (special) strip = t->space_after;
    }
    *len = total;
    return FTK_OK;
}

/* ----------------------------------------------------------------- queries */

int32_t ftki_tokenizer_size(const ftki_tokenizer *t) { return t->vocab.n_tokens; }

bool ftki_tokenizer_is_end(const ftki_tokenizer *t, ftk_token id) {
    return ftki_vocab_has(&t->vocab, id) && t->vocab.is_end[id];
}

bool ftki_tokenizer_is_special(const ftki_tokenizer *t, ftk_token id) {
    return ftki_vocab_has(&t->vocab, id) && ftki_vocab_is(&t->vocab, id, FTKI_TYPES_MARKER);
}

ftk_token ftki_tokenizer_bos(const ftki_tokenizer *t) { return t->vocab.bos; }
ftk_token ftki_tokenizer_eos(const ftki_tokenizer *t) { return t->vocab.eos; }

bool ftki_tokenizer_adds_bos(const ftki_tokenizer *t) { return t->vocab.add_bos; }

ftk_token ftki_tokenizer_find(const ftki_tokenizer *t, const char *text, size_t len) {
    return ftki_vocab_find(&t->vocab, text, len, FTKI_TYPES_ANY);
}

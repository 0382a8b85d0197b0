// SPDX-License-Identifier: Apache-2.0
/* SentencePiece-style BPE: see spm.h.
 *
 * SentencePiece merges over the whole text. The result is the same when the text is cut first
 * wherever no token could reach across; almost no token has a space after anything but a space,
 * so the pieces are words, most of which are known to be one token. */
#include "text/spm.h"

#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"

static const char visible_space[] = "\xE2\x96\x81"; /* U+2581 */

ftk_status ftki_spm_open(ftki_spm *out, const ftki_vocab *v, ftk_error *e) {
    ftki_spm s = {.vocab = v};
    s.memo = ftki_alloc((size_t)v->n_tokens, sizeof *s.memo);
    if (!s.memo) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %d tokens", v->n_tokens);
    for (int c = 0; c < 128; c++)
        s.ascii_ids[c] = ftki_vocab_find(v, &(char){(char)c}, 1, FTKI_TYPES_TEXT);
    for (ftk_token id = 0; id < v->n_tokens; id++) {
        if (!ftki_vocab_is(v, id, FTKI_TYPES_TEXT)) continue;
        size_t len;
        const char *bytes = ftki_vocab_bytes(v, id, &len);
        for (size_t i = 1; i < len; i++)
            if (bytes[i] == ' ') s.holds_space[(unsigned char)bytes[i - 1]] = true;
    }
    *out = s;
    return FTK_OK;
}

void ftki_spm_close(ftki_spm *s) {
    ftki_free(s->memo);
    *s = (ftki_spm){0};
}

/* Scores as keys that sort the other way round: the highest score is the lowest key. */
static uint32_t key_of(float score) {
    uint32_t bits;
    score += 0.0f; /* one zero */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static uint32_t score_of(const void *ctx, const char *word, const ftki_symbol *left,
                         const ftki_symbol *right, ftk_token *joined) {
    const ftki_vocab *v = ((const ftki_spm *)ctx)->vocab;
    uint32_t len = right->end - left->start;
    if (len > v->longest) return FTKI_NO_PAIR;
    ftk_token id = ftki_vocab_find(v, word + left->start, len, FTKI_TYPES_TEXT);
    if (id < 0) return FTKI_NO_PAIR;
    *joined = id;
    return key_of(v->scores[id]);
}

/* A character without a token: its bytes, or the unknown token where one of them has none. */
static ftk_status add_bytes(const ftki_vocab *v, const char *bytes, size_t len, ftki_ids *out,
                            ftk_error *e) {
    bool all = true;
    for (size_t i = 0; i < len; i++) all &= v->byte_ids[(unsigned char)bytes[i]] >= 0;
    if (!all) return ftki_ids_add(out, v->unknown, e);
    for (size_t i = 0; i < len; i++)
        FTKI_TRY(ftki_ids_add(out, v->byte_ids[(unsigned char)bytes[i]], e));
    return FTK_OK;
}

static ftk_status encode_word(const ftki_spm *s, const char *word, size_t len,
                              ftki_merge_scratch *scratch, ftki_ids *out, ftk_error *e) {
    const ftki_vocab *v = s->vocab;
    ftk_token whole = len <= v->longest ? ftki_vocab_find(v, word, len, FTKI_TYPES_TEXT) : -1;
    unsigned char known = 0;
    if (whole >= 0) {
        known = atomic_load_explicit(&s->memo[whole], memory_order_relaxed);
        if (known == 1) return ftki_ids_add(out, whole, e);
    }
    FTKI_TRY(ftki_merge_reserve(scratch, len, e));
    ftki_symbol *symbols = scratch->symbols;
    size_t n = 0;
    for (size_t at = 0, size; at < len; at += size, n++) {
        unsigned char lead = (unsigned char)word[at];
        size = ftki_utf8_size(lead);
        symbols[n].start = (uint32_t)at;
        symbols[n].end = (uint32_t)(at + size);
        symbols[n].id = lead < 128 ? s->ascii_ids[lead]
                                   : ftki_vocab_find(v, word + at, size, FTKI_TYPES_TEXT);
    }
    FTKI_TRY(ftki_merge(scratch, n, word, score_of, s, e));
    if (whole >= 0 && !known)
        atomic_store_explicit(&s->memo[whole], symbols[0].id == whole ? 1 : 2,
                              memory_order_relaxed);
    for (uint32_t i = 0; i != UINT32_MAX; i = symbols[i].next) {
        const ftki_symbol *symbol = &symbols[i];
        FTKI_TRY(symbol->id >= 0 ? ftki_ids_add(out, symbol->id, e)
                                 : add_bytes(v, word + symbol->start, symbol->end - symbol->start,
                                             out, e));
    }
    return FTK_OK;
}

/* Points *text at the text with the prefix in front and every U+2581 a space; copies only if
 * something changes. */
static ftk_status normalise(const char **text, size_t *len, bool prefix, ftki_spm_buffer *buffer,
                            ftk_error *e) {
    if (!prefix && !memmem(*text, *len, visible_space, 3)) return FTK_OK;
    if (*len + 1 > buffer->room) {
        char *larger = ftki_realloc(buffer->data, *len + 1, 1);
        if (!larger)
            return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to tokenize %zu bytes of text", *len);
        buffer->data = larger;
        buffer->room = *len + 1;
    }
    char *out = buffer->data;
    size_t n = 0;
    if (prefix) out[n++] = ' ';
    for (size_t at = 0; at < *len;) {
        const char *next = memmem(*text + at, *len - at, visible_space, 3);
        size_t run = next ? (size_t)(next - *text) - at : *len - at;
        memcpy(out + n, *text + at, run);
        n += run;
        at += run;
        if (!next) break;
        out[n++] = ' ';
        at += 3;
    }
    *text = out;
    *len = n;
    return FTK_OK;
}

ftk_status ftki_spm_encode(const ftki_spm *s, const char *text, size_t len, bool prefix,
                           ftki_spm_buffer *buffer, ftki_merge_scratch *scratch, ftki_ids *out,
                           ftk_error *e) {
    FTKI_TRY(normalise(&text, &len, prefix, buffer, e));
    size_t start = 0;
    for (size_t at = 1; at <= len; at++) {
        if (at < len && (text[at] != ' ' || text[at - 1] == ' ' ||
                         s->holds_space[(unsigned char)text[at - 1]]))
            continue;
        FTKI_TRY(encode_word(s, text + start, at - start, scratch, out, e));
        start = at;
    }
    return FTK_OK;
}

// SPDX-License-Identifier: Apache-2.0
/* WordPiece in one pass: each character is cleaned, decomposed and lowered as it is read, and words
 * are looked up as they end, so that no normalised copy of the text is held. */
#include "text/wordpiece.h"

#include <string.h>
#include <utf8proc.h>

#include "text/utf8.h"
#include "text/wordpiece_newer.h"

/* That there is a token for unknown words, markers.c has seen to by the time text comes. */
ftk_status ftki_wordpiece_open(ftki_wordpiece *out, const ftki_vocab *v, const ftki_gguf *g, ftk_error *e) {
    ftki_wordpiece w = {.vocab = v, .lower = true};
    FTKI_TRY(ftki_gguf_bool_or(g, "freetoken.tokenizer.lowercase", &w.lower, e));
    w.strip_accents = w.lower;
    FTKI_TRY(ftki_gguf_bool_or(g, "freetoken.tokenizer.strip_accents", &w.strip_accents, e));
    *out = w;
    return FTK_OK;
}

/* The word being read, with the space that marks its beginning in the vocabulary. */
typedef struct word {
    const ftki_wordpiece *w;
    ftki_ids *out;
    size_t len;     /* bytes of text, the space included */
    size_t letters; /* characters; past the limit they are counted only */
    char text[1 + 4 * FTKI_WORDPIECE_LONGEST];
} word;

/* Covers the word by the longest piece at each place, or says it is unknown. The space in front of
 * what is left is there for the first piece only. */
static ftk_status end_word(word *c, ftk_error *e) {
    const ftki_vocab *v = c->w->vocab;
    size_t start = 0, n_before = c->out->n, letters = c->letters, len = c->len;
    c->letters = 0;
    c->len = 1;
    if (letters == 0) return FTK_OK;
    if (letters > FTKI_WORDPIECE_LONGEST) return ftki_ids_add(c->out, v->unknown, e);
    while (start < len) {
        size_t end = len - start > v->longest ? start + v->longest : len;
        ftk_token id = -1;
        size_t least = start + (start == 0);
        for (; end > least; end--) {
            if (end < len && ((unsigned char)c->text[end] & 0xC0) == 0x80) continue;
            id = ftki_vocab_find(v, c->text + start, end - start, FTKI_TYPES_TEXT);
            if (id >= 0) break;
        }
        if (id < 0) {
            c->out->n = n_before;
            return ftki_ids_add(c->out, v->unknown, e);
        }
        FTKI_TRY(ftki_ids_add(c->out, id, e));
        start = end;
    }
    return FTK_OK;
}

static void add_letter(word *c, uint32_t letter) {
    if (c->letters++ < FTKI_WORDPIECE_LONGEST) c->len += ftki_utf8_write(letter, c->text + c->len);
}

/* The category as the peer's tables have it: see wordpiece_newer.h. */
static utf8proc_category_t category(uint32_t c) {
    if (c == 0x1734) return UTF8PROC_CATEGORY_MN; /* these two have changed theirs */
    if (c == 0x166D) return UTF8PROC_CATEGORY_PO;
    size_t low = 0, high = sizeof ftki_wordpiece_newer / sizeof *ftki_wordpiece_newer;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > ftki_wordpiece_newer[middle][1]) low = middle + 1;
        else if (c < ftki_wordpiece_newer[middle][0]) high = middle;
        else return UTF8PROC_CATEGORY_LO;
    }
    return utf8proc_category((utf8proc_int32_t)c);
}

static bool is_space(uint32_t c) { /* Unicode's White_Space; Python's isspace has 1C..1F too */
    return ftki_utf8_is_space(c) && !(c >= 0x1C && c <= 0x1F);
}

static bool is_dropped(uint32_t c) {
    if ((c >= 0x20 && c < 0x7F) || c == '\t' || c == '\n' || c == '\r') return false;
    if (c == 0 || c == 0xFFFD) return true;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return true;
    default:
        return false;
    }
}

static bool is_punctuation(uint32_t c) {
    if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/* Ideographs stand alone. The ranges are BERT's. */
static bool is_ideograph(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static ftk_status add_normal(word *c, uint32_t letter, ftk_error *e) {
    bool alone = is_punctuation(letter);
    if (alone) FTKI_TRY(end_word(c, e));
    add_letter(c, letter);
    return alone ? end_word(c, e) : FTK_OK;
}

static ftk_status add_lowered(word *c, uint32_t letter, ftk_error *e) {
    if (!c->w->lower) return add_normal(c, letter, e);
    if (letter == 0x130) { /* the one letter that becomes two: i and a dot above */
        FTKI_TRY(add_normal(c, 'i', e));
        return add_normal(c, 0x307, e);
    }
    return add_normal(c, (uint32_t)utf8proc_tolower((utf8proc_int32_t)letter), e);
}

/* Marks are dropped before they could need reordering, so characters decompose one by one. */
static ftk_status add_decomposed(word *c, uint32_t letter, ftk_error *e) {
    if (letter < 0x80 || !c->w->strip_accents) return add_lowered(c, letter, e);
    utf8proc_int32_t parts[32];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)letter, parts, 32, UTF8PROC_DECOMPOSE, &last);
    if (n < 0 || n > 32) return add_lowered(c, letter, e);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (category((uint32_t)parts[i]) != UTF8PROC_CATEGORY_MN) FTKI_TRY(add_lowered(c, (uint32_t)parts[i], e));
    return FTK_OK;
}

ftk_status ftki_wordpiece_encode(const ftki_wordpiece *w, const char *text, size_t len, ftki_ids *out,
                                 ftk_error *e) {
    word c = {.w = w, .out = out, .len = 1, .text = " "};
    for (size_t at = 0, size; at < len; at += size) {
        uint32_t letter = ftki_utf8_read(text + at, &size);
        if (is_dropped(letter)) continue;
        bool space = is_space(letter), alone = is_ideograph(letter);
        if (space || alone) FTKI_TRY(end_word(&c, e));
        if (space) continue;
        FTKI_TRY(add_decomposed(&c, letter, e));
        if (alone) FTKI_TRY(end_word(&c, e));
    }
    return end_word(&c, e);
}

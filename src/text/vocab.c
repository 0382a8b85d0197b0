// SPDX-License-Identifier: Apache-2.0
/* Loading a vocabulary: see vocab.h. Everything in the file is checked before it is used. */
#include "text/vocab.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"

/* A run of occupied slots this long does not come from a real vocabulary at a load of one half;
 * refusing it keeps opening linear for files made to collide. */
#define LONGEST_PROBE 1024

/* Multiply-and-fold over eight bytes at a time. */
static uint32_t hash_bytes(const char *bytes, size_t len) {
    uint64_t h = len * 0x9E3779B97F4A7C15u, word;
    while (len >= 8) {
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
        bytes += 8;
        len -= 8;
    }
    if (len) {
        word = 0;
        for (size_t i = 0; i < len; i++) word |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    h *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(h >> 32);
}

ftk_token ftki_vocab_find(const ftki_vocab *v, const char *bytes, size_t len, uint32_t types) {
    uint32_t mask = v->n_slots - 1, slot = hash_bytes(bytes, len) & mask;
    for (uint32_t found; (found = v->slots[slot]) != 0; slot = (slot + 1) & mask) {
        ftk_token id = (ftk_token)(found - 1);
        size_t size;
        const char *have = ftki_vocab_bytes(v, id, &size);
        if (size == len && ftki_vocab_is(v, id, types) && memcmp(have, bytes, len) == 0) return id;
    }
    return -1;
}

static ftk_status build_slots(ftki_vocab *v, ftk_error *e) {
    v->n_slots = 16;
    while (v->n_slots < 2 * (uint64_t)v->n_tokens) v->n_slots *= 2;
    v->slots = ftki_alloc(v->n_slots, sizeof *v->slots);
    if (!v->slots) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the vocabulary's index");
    for (ftk_token id = 0; id < v->n_tokens; id++) {
        size_t len;
        const char *bytes = ftki_vocab_bytes(v, id, &len);
        if (len == 0) continue; /* an empty piece is never found */
        uint32_t mask = v->n_slots - 1, slot = hash_bytes(bytes, len) & mask, probes = 0;
        while (v->slots[slot] && ++probes <= LONGEST_PROBE) slot = (slot + 1) & mask;
        if (v->slots[slot])
            return ftki_fail(e, FTK_FORMAT,
                             "tokenizer.ggml.tokens: more than %d tokens around %d are alike; the "
                             "file is damaged, convert the model again", LONGEST_PROBE, id);
        v->slots[slot] = (uint32_t)id + 1;
    }
    return FTK_OK;
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 on. */
static bool stands_for_itself(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

int64_t ftki_byte_alphabet_decode(const char *text, size_t len, char *out) {
    size_t at = 0, n = 0;
    while (at < len) {
        size_t size;
        uint32_t letter = ftki_utf8_read(text + at, &size), byte = letter;
        if (letter >= 0x100 && letter <= 0x120) byte = letter - 0x100;             /* 00..20 */
        else if (letter >= 0x121 && letter <= 0x142) byte = letter - 0x121 + 0x7F; /* 7F..A0 */
        else if (letter == 0x143) byte = 0xAD;
        else if (!stands_for_itself(letter)) return -1;
        out[n++] = (char)byte;
        at += size;
    }
    return (int64_t)n;
}

/* U+2581, SentencePiece's visible space, back to a space. */
static size_t unescape_spaces(const char *text, size_t len, char *out) {
    size_t n = 0;
    for (size_t at = 0; at < len; n++) {
        bool space = len - at >= 3 && memcmp(text + at, "\xE2\x96\x81", 3) == 0;
        out[n] = space ? ' ' : text[at];
        at += space ? 3 : 1;
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The value of "<0xNN>", -1: not of that form. */
static int byte_piece(const char *text, size_t len) {
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool begins(ftki_text text, const char *start) {
    return text.len >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

/* A WordPiece piece: a space in front of one that begins a word, nothing before one that goes on. */
static size_t place_piece(const ftki_vocab *v, ftki_text text, char *out) {
    size_t skip = 0, n = 0;
    if (v->hashes) {
        if (text.len > 2 && begins(text, "##")) skip = 2;
        else out[n++] = ' ';
    } else if (begins(text, "\xE2\x96\x81")) {
        out[n++] = ' ';
        skip = 3;
    }
    memcpy(out + n, text.data + skip, text.len - skip);
    return n + text.len - skip;
}

/* Spells one token out into v->bytes at `start` and returns its length. */
static ftk_status place_token(ftki_vocab *v, ftk_token id, ftki_text text, size_t start,
                              size_t *len, ftk_error *e) {
    char *out = v->bytes + start;
    unsigned char type = v->types[id];
    if (type == FTKI_TOKEN_BYTE) {
        int value = byte_piece(text.data, text.len);
        if (value < 0)
            return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.tokens: byte token %d is not written "
                             "as <0xNN>", id);
        out[0] = (char)value;
        *len = 1;
        if (v->byte_ids[value] < 0) v->byte_ids[value] = id;
        return FTK_OK;
    }
    if (v->kind == FTKI_VOCAB_BPE && ftki_vocab_is(v, id, FTKI_TYPES_TEXT)) {
        int64_t n = ftki_byte_alphabet_decode(text.data, text.len, out);
        if (n >= 0) {
            *len = (size_t)n;
            return FTK_OK;
        }
    } else if (v->kind == FTKI_VOCAB_SPM && !ftki_vocab_is(v, id, FTKI_TYPES_MARKER)) {
        *len = unescape_spaces(text.data, text.len, out);
        return FTK_OK;
    } else if (v->kind == FTKI_VOCAB_WPM && ftki_vocab_is(v, id, FTKI_TYPES_TEXT)) {
        *len = place_piece(v, text, out);
        return FTK_OK;
    }
    memcpy(out, text.data, text.len);
    *len = text.len;
    return FTK_OK;
}

/* llama.cpp's converter marks the pieces that begin a word, which are most of a vocabulary; BERT's
 * own spelling marks the others. */
static bool marks_continuations(const ftki_key *tokens) {
    size_t at = 0;
    uint64_t marked = 0;
    for (uint64_t i = 0; i < tokens->count; i++) marked += begins(ftki_key_next_text(tokens, &at), "\xE2\x96\x81");
    return marked < tokens->count / 8 + 1;
}

static ftk_status place_tokens(ftki_vocab *v, const ftki_key *tokens, bool typed, ftk_error *e) {
    size_t at = 0, start = 0;
    for (ftk_token id = 0; id < v->n_tokens; id++) {
        ftki_text text = ftki_key_next_text(tokens, &at);
        size_t wrong = ftki_utf8_invalid(text.data, text.len), len = 0;
        if (wrong != text.len)
            return ftki_fail_at(e, FTK_FORMAT, (int64_t)wrong, "tokenizer.ggml.tokens: token %d is "
                                "not UTF-8 at its byte %zu", id, wrong);
        if (!typed && v->kind == FTKI_VOCAB_SPM && byte_piece(text.data, text.len) >= 0)
            v->types[id] = FTKI_TOKEN_BYTE;
        v->starts[id] = (uint32_t)start;
        FTKI_TRY(place_token(v, id, text, start, &len, e));
        start += len;
        if (!ftki_vocab_is(v, id, FTKI_TYPES_TEXT)) continue;
        if (len > v->longest) v->longest = (uint32_t)len;
        unsigned char only = len == 1 ? (unsigned char)v->bytes[v->starts[id]] : 0;
        if (v->kind == FTKI_VOCAB_BPE && len == 1 && v->byte_ids[only] < 0) v->byte_ids[only] = id;
    }
    v->starts[v->n_tokens] = (uint32_t)start;
    return FTK_OK;
}

static ftk_status read_types(ftki_vocab *v, const ftki_key *types, ftk_error *e) {
    memset(v->types, FTKI_TOKEN_NORMAL, (size_t)v->n_tokens);
    if (!types) return FTK_OK;
    if (types->count != (uint64_t)v->n_tokens)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.token_type has %llu entries for %d tokens",
                         (unsigned long long)types->count, v->n_tokens);
    for (ftk_token id = 0; id < v->n_tokens; id++) {
        int32_t type;
        memcpy(&type, types->data + (size_t)id * sizeof type, sizeof type);
        if (type < FTKI_TOKEN_UNDEFINED || type > FTKI_TOKEN_BYTE)
            return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.token_type: token %d has the unknown "
                             "type %d", id, type);
        v->types[id] = (unsigned char)type;
    }
    return FTK_OK;
}

static ftk_status read_scores(ftki_vocab *v, const ftki_key *scores, ftk_error *e) {
    if (!scores || scores->count != (uint64_t)v->n_tokens)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.scores has %llu entries for %d tokens",
                         (unsigned long long)(scores ? scores->count : 0), v->n_tokens);
    v->scores = ftki_alloc((size_t)v->n_tokens, sizeof *v->scores);
    if (!v->scores) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for the token scores");
    memcpy(v->scores, scores->data, (size_t)v->n_tokens * sizeof *v->scores);
    for (ftk_token id = 0; id < v->n_tokens; id++)
        if (isnan(v->scores[id]))
            return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.scores: the score of token %d is not "
                             "a number", id);
    return FTK_OK;
}

static ftk_status read_kind(ftki_vocab *v, const ftki_gguf *g, ftk_error *e) {
    ftki_text model;
    FTKI_TRY(ftki_gguf_text(g, "tokenizer.ggml.model", &model, e));
    if (model.len == 4 && memcmp(model.data, "gpt2", 4) == 0) v->kind = FTKI_VOCAB_BPE;
    else if (model.len == 5 && memcmp(model.data, "llama", 5) == 0) v->kind = FTKI_VOCAB_SPM;
    else if (model.len == 4 && memcmp(model.data, "bert", 4) == 0) v->kind = FTKI_VOCAB_WPM;
    else
        return ftki_fail(e, FTK_UNSUPPORTED, "the tokenizer model '%.*s' is not supported; those "
                         "that are: gpt2 (byte-level BPE), llama (SentencePiece), bert (WordPiece)",
                         (int)(model.len < 64 ? model.len : 64), model.data);
    return FTK_OK;
}

static ftk_status open_into(ftki_vocab *v, const ftki_gguf *g, ftk_error *e) {
    FTKI_TRY(read_kind(v, g, e));
    const ftki_key *tokens, *types, *scores;
    FTKI_TRY(ftki_gguf_array(g, "tokenizer.ggml.tokens", FTKI_KEY_STRING, &tokens, e));
    FTKI_TRY(ftki_gguf_array(g, "tokenizer.ggml.token_type", FTKI_KEY_I32, &types, e));
    FTKI_TRY(ftki_gguf_array(g, "tokenizer.ggml.scores", FTKI_KEY_F32, &scores, e));
    if (!tokens || tokens->count == 0)
        return ftki_fail(e, FTK_FORMAT, "the file has no vocabulary (tokenizer.ggml.tokens)");
    if (tokens->count > INT32_MAX / 2 || tokens->bytes > INT32_MAX)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.tokens: %llu tokens in %zu bytes are more "
                         "than is supported", (unsigned long long)tokens->count, tokens->bytes);
    v->n_tokens = (int32_t)tokens->count;
    size_t n = (size_t)v->n_tokens;
    v->types = ftki_alloc(n, 1);
    v->is_end = ftki_alloc(n, 1);
    v->starts = ftki_alloc(n + 1, sizeof *v->starts);
    v->bytes = ftki_alloc(tokens->bytes + n, 1); /* WordPiece may add a space, nothing else lengthens */
    if (!v->types || !v->is_end || !v->starts || !v->bytes)
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a vocabulary of %d tokens",
                         v->n_tokens);
    memset(v->byte_ids, 0xFF, sizeof v->byte_ids);
    FTKI_TRY(read_types(v, types, e));
    v->hashes = v->kind == FTKI_VOCAB_WPM && marks_continuations(tokens);
    FTKI_TRY(place_tokens(v, tokens, types != NULL, e));
    if (v->kind == FTKI_VOCAB_SPM) FTKI_TRY(read_scores(v, scores, e));
    return build_slots(v, e);
}

ftk_status ftki_vocab_open(ftki_vocab *out, const ftki_gguf *g, ftk_error *e) {
    ftki_vocab v = {0};
    ftk_status status = open_into(&v, g, e);
    if (status == FTK_OK) *out = v;
    else ftki_vocab_close(&v);
    return status;
}

void ftki_vocab_close(ftki_vocab *v) {
    ftki_free(v->bytes);
    ftki_free(v->starts);
    ftki_free(v->types);
    ftki_free(v->is_end);
    ftki_free(v->scores);
    ftki_free(v->slots);
    *v = (ftki_vocab){0};
}

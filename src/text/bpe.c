// SPDX-License-Identifier: Apache-2.0
/* Byte-level BPE: see bpe.h. */
#include "text/bpe.h"

#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"

#define LONGEST_PROBE 1024 /* as in vocab.c: longer runs are made, not met */

/* ------------------------------------------------------------------- rules */

static uint32_t hash_pair(ftk_token left, ftk_token right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    return (uint32_t)((h * 0xD6E8FEB86659FD93u) >> 32);
}

static uint32_t rank_of(const void *ctx, const char *word, const ftki_symbol *left,
                        const ftki_symbol *right, ftk_token *joined) {
    (void)word;
    const ftki_bpe *b = ctx;
    uint32_t mask = b->n_slots - 1, slot = hash_pair(left->id, right->id) & mask;
    for (uint32_t found; (found = b->slots[slot]) != 0; slot = (slot + 1) & mask) {
        const ftki_merge_rule *rule = &b->rules[found - 1];
        if (rule->left != left->id || rule->right != right->id) continue;
        *joined = rule->joined;
        return found - 1;
    }
    return FTKI_NO_PAIR;
}

/* Reads rule `rank`, "left right". Tokens the vocabulary lacks make it a rule that never applies:
 * trimmed vocabularies leave such behind. */
static ftk_status read_rule(ftki_bpe *b, uint32_t rank, ftki_text text, char *bytes, ftk_error *e) {
    const char *space = text.len > 1 ? memchr(text.data + 1, ' ', text.len - 1) : NULL;
    size_t left_len = space ? (size_t)(space - text.data) : 0;
    size_t right_len = space ? text.len - left_len - 1 : 0;
    if (!left_len || !right_len)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.merges: merge %u is not two pieces with a "
                         "space between", rank);
    ftki_merge_rule *rule = &b->rules[rank];
    *rule = (ftki_merge_rule){-1, -1, -1};
    if (ftki_utf8_invalid(text.data, text.len) != text.len)
        return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.merges: merge %u is not UTF-8", rank);
    int64_t left = ftki_byte_alphabet_decode(text.data, left_len, bytes);
    if (left < 0) return FTK_OK;
    int64_t right = ftki_byte_alphabet_decode(space + 1, right_len, bytes + left);
    if (right < 0) return FTK_OK;
    ftk_token left_id = ftki_vocab_find(b->vocab, bytes, (size_t)left, FTKI_TYPES_TEXT);
    rule->right = ftki_vocab_find(b->vocab, bytes + left, (size_t)right, FTKI_TYPES_TEXT);
    rule->joined = ftki_vocab_find(b->vocab, bytes, (size_t)(left + right), FTKI_TYPES_TEXT);
    if (left_id < 0 || rule->right < 0 || rule->joined < 0) return FTK_OK;

    uint32_t mask = b->n_slots - 1, slot = hash_pair(left_id, rule->right) & mask, probes = 0;
    for (; b->slots[slot]; slot = (slot + 1) & mask) {
        const ftki_merge_rule *other = &b->rules[b->slots[slot] - 1];
        if (other->left == left_id && other->right == rule->right) return FTK_OK; /* first wins */
        if (++probes > LONGEST_PROBE)
            return ftki_fail(e, FTK_FORMAT, "tokenizer.ggml.merges: too many merges around %u are "
                             "alike; the file is damaged, convert the model again", rank);
    }
    rule->left = left_id;
    b->slots[slot] = rank + 1;
    return FTK_OK;
}

static ftk_status read_rules(ftki_bpe *b, const ftki_key *merges, ftk_error *e) {
    b->n_rules = (uint32_t)merges->count;
    b->n_slots = 16;
    while (b->n_slots < 2 * (uint64_t)b->n_rules) b->n_slots *= 2;
    b->rules = ftki_alloc(b->n_rules, sizeof *b->rules);
    b->slots = ftki_alloc(b->n_slots, sizeof *b->slots);
    b->memo = ftki_alloc((size_t)b->vocab->n_tokens, sizeof *b->memo);
    size_t longest = 0, at = 0;
    for (uint32_t i = 0; i < b->n_rules; i++) {
        size_t len = ftki_key_next_text(merges, &at).len;
        if (len > longest) longest = len;
    }
    char *bytes = ftki_alloc(longest + 1, 1);
    ftk_status status = FTK_OK;
    if (!b->rules || !b->slots || !b->memo || !bytes)
        status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %u merges", b->n_rules);
    at = 0;
    for (uint32_t i = 0; i < b->n_rules && status == FTK_OK; i++)
        status = read_rule(b, i, ftki_key_next_text(merges, &at), bytes, e);
    ftki_free(bytes);
    return status;
}

ftk_status ftki_bpe_open(ftki_bpe *out, const ftki_vocab *v, ftki_splitter *splitter,
                         bool ignore_merges, const ftki_gguf *g, ftk_error *e) {
    ftki_bpe b = {.vocab = v, .splitter = splitter, .ignore_merges = ignore_merges};
    const ftki_key *merges = NULL;
    ftk_status status = ftki_gguf_array(g, "tokenizer.ggml.merges", FTKI_KEY_STRING, &merges, e);
    if (status == FTK_OK && (!merges || merges->count > INT32_MAX / 2))
        status = ftki_fail(e, FTK_FORMAT, merges ? "tokenizer.ggml.merges has too many entries"
                                                 : "the file has no merges (tokenizer.ggml.merges)");
    if (status == FTK_OK) status = read_rules(&b, merges, e);
    if (status == FTK_OK) *out = b;
    else ftki_bpe_close(&b);
    return status;
}

void ftki_bpe_close(ftki_bpe *b) {
    ftki_splitter_close(b->splitter);
    ftki_free(b->rules);
    ftki_free(b->slots);
    ftki_free(b->memo);
    *b = (ftki_bpe){0};
}

/* ---------------------------------------------------------------- encoding */

static ftk_status encode_word(const ftki_bpe *b, const char *word, size_t len,
                              ftki_merge_scratch *scratch, ftki_ids *out, ftk_error *e) {
    ftk_token whole = len <= b->vocab->longest
                          ? ftki_vocab_find(b->vocab, word, len, FTKI_TYPES_TEXT) : -1;
    unsigned char known = 0;
    if (whole >= 0) {
        if (b->ignore_merges || len == 1) return ftki_ids_add(out, whole, e);
        known = atomic_load_explicit(&b->memo[whole], memory_order_relaxed);
        if (known == 1) return ftki_ids_add(out, whole, e);
    }
    FTKI_TRY(ftki_merge_reserve(scratch, len, e));
    ftki_symbol *symbols = scratch->symbols;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        ftk_token id = b->vocab->byte_ids[(unsigned char)word[i]];
        /* A byte the vocabulary lacks is lost, and its neighbours meet, as in training. */
        if (id >= 0) symbols[n++] = (ftki_symbol){.start = (uint32_t)i, .end = (uint32_t)i + 1, .id = id};
    }
    if (n == 0) return FTK_OK;
    FTKI_TRY(ftki_merge(scratch, n, word, rank_of, b, e));
    if (whole >= 0 && !known)
        atomic_store_explicit(&b->memo[whole], symbols[0].id == whole ? 1 : 2,
                              memory_order_relaxed);
    for (uint32_t i = 0; i != UINT32_MAX; i = symbols[i].next)
        FTKI_TRY(ftki_ids_add(out, symbols[i].id, e));
    return FTK_OK;
}

ftk_status ftki_bpe_encode(const ftki_bpe *b, const char *text, size_t len, ftki_split *split,
                           ftki_merge_scratch *scratch, ftki_ids *out, ftk_error *e) {
    const char *word;
    size_t word_len;
    FTKI_TRY(ftki_split_begin(split, b->splitter, text, len, e));
    for (;;) {
        FTKI_TRY(ftki_split_next(split, &word, &word_len, e));
        if (!word_len) return FTK_OK;
        FTKI_TRY(encode_word(b, word, word_len, scratch, out, e));
    }
}

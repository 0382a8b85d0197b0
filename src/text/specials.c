// SPDX-License-Identifier: Apache-2.0
/* Special tokens in text: see specials.h. The index is the sorted list itself: walking along the
 * text narrows a range of it byte by byte, so that one visit costs at most the longest token. */
#include "text/specials.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SPECIAL_TYPES (FTKI_TYPES_MARKER | FTKI_TYPE_BIT(FTKI_TOKEN_USER))

/* Longer ones do not exist in practice and would make a visit expensive. */
#define LONGEST_SPECIAL 1024

typedef struct sort_entry {
    const char *bytes;
    size_t len;
    ftk_token id;
} sort_entry;

static int by_bytes(const void *a, const void *b) {
    const sort_entry *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

ftk_status ftki_specials_open(ftki_specials *out, const ftki_vocab *v, ftk_error *e) {
    ftki_specials s = {0};
    sort_entry *entries = NULL;
    size_t count = 0;
    for (ftk_token id = 0; id < v->n_tokens; id++) count += ftki_vocab_is(v, id, SPECIAL_TYPES);
    s.sorted = ftki_alloc(count, sizeof *s.sorted);
    entries = ftki_alloc(count, sizeof *entries);
    if (!s.sorted || !entries) {
        ftki_free(s.sorted);
        ftki_free(entries);
        return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %zu special tokens", count);
    }
    for (ftk_token id = 0; id < v->n_tokens; id++) {
        sort_entry entry = {.id = id};
        entry.bytes = ftki_vocab_bytes(v, id, &entry.len);
        if (!ftki_vocab_is(v, id, SPECIAL_TYPES) || !entry.len || entry.len > LONGEST_SPECIAL)
            continue;
        entries[s.count++] = entry;
        s.starts[(unsigned char)entry.bytes[0]] |= v->types[id] == FTKI_TOKEN_USER ? 1 : 2;
    }
    qsort(entries, s.count, sizeof *entries, by_bytes);
    size_t at = 0;
    for (uint32_t byte = 0; byte <= 256; byte++) {
        s.first[byte] = (uint32_t)at;
        while (at < s.count && (unsigned char)entries[at].bytes[0] == byte) at++;
    }
    for (size_t i = 0; i < s.count; i++) s.sorted[i] = entries[i].id;
    ftki_free(entries);
    *out = s;
    return FTK_OK;
}

void ftki_specials_close(ftki_specials *s) {
    ftki_free(s->sorted);
    *s = (ftki_specials){0};
}

/* Whether bytes [start, end) touch a plain run. Called with ascending starts. */
static bool in_plain(ftki_special_scan *scan, size_t start, size_t end) {
    while (scan->plain_at < scan->n_plain && scan->plain[scan->plain_at].end <= start)
        scan->plain_at++;
    return scan->plain_at < scan->n_plain && scan->plain[scan->plain_at].start < end;
}

/* The first entry in sorted[low..high) whose byte at `depth` is >= byte. All of them share the
 * first `depth` bytes and are longer than that. */
static uint32_t lower_bound(const ftki_special_scan *scan, uint32_t low, uint32_t high,
                            size_t depth, unsigned byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        size_t len;
        const char *bytes = ftki_vocab_bytes(scan->vocab, scan->specials->sorted[middle], &len);
        if ((unsigned char)bytes[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The longest allowed token that starts at text[at]. */
static ftk_token longest_at(ftki_special_scan *scan, size_t at, size_t *found_len) {
    const ftki_specials *s = scan->specials;
    unsigned char lead = (unsigned char)scan->text[at];
    uint32_t low = s->first[lead], high = s->first[lead + 1];
    ftk_token found = -1;
    for (size_t depth = 1; low < high; depth++) {
        /* Those that end here come first; the lowest id among equals wins. */
        for (bool taken = false; low < high; low++) {
            size_t len;
            ftk_token id = s->sorted[low];
            ftki_vocab_bytes(scan->vocab, id, &len);
            if (len != depth) break;
            bool user = scan->vocab->types[id] == FTKI_TOKEN_USER;
            if (taken || (!user && (!scan->control || in_plain(scan, at, at + len)))) continue;
            found = id;
            *found_len = len;
            taken = true;
        }
        if (at + depth >= scan->len) break;
        unsigned byte = (unsigned char)scan->text[at + depth];
        low = lower_bound(scan, low, high, depth, byte);
        high = lower_bound(scan, low, high, depth, byte + 1);
    }
    return found;
}

ftk_token ftki_specials_next(ftki_special_scan *scan, size_t from, size_t *start, size_t *len) {
    unsigned char wanted = scan->control ? 3 : 1;
    const unsigned char *starts = scan->specials->starts;
    for (size_t at = from; at < scan->len; at++) {
        if (!(starts[(unsigned char)scan->text[at]] & wanted)) continue;
        ftk_token id = longest_at(scan, at, len);
        if (id < 0) continue;
        *start = at;
        return id;
    }
    return -1;
}

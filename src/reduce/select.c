// SPDX-License-Identifier: Apache-2.0
/* Selection by radix: scores become unsigned keys of the same order, and the key of the last chosen
 * is found byte by byte from histograms. Linear whatever the scores are, and exact. */
#include "reduce/select.h"

#include <math.h>
#include <string.h>

/* NaN is 0, below every number; -0 equals 0; UINT32_MAX is above every number. */
static uint32_t key_of(float score) {
    uint32_t bits;
    if (isnan(score)) return 0;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float score_of(uint32_t key) {
    float score;
    if (key == 0) return NAN;
    uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* The `keep`-th largest of keys [n], 1 <= keep <= n; *at_key gets how many of those equal to it
 * belong to the best `keep`. */
static uint32_t nth_largest(const uint32_t *keys, size_t n, size_t keep, size_t *at_key) {
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t counts[256] = {0};
        for (size_t i = 0; i < n; i++)
            if ((keys[i] & mask) == prefix) counts[keys[i] >> shift & 255]++;
        uint32_t byte = 255;
        while (counts[byte] < keep) keep -= counts[byte--];
        prefix |= byte << shift;
        mask |= (uint32_t)255 << shift;
    }
    *at_key = keep;
    return prefix;
}

void ftki_select_top(const float *scores, const bool *protected_flags, int32_t n, int32_t keep,
                     int32_t *chosen, int32_t *scratch) {
    uint32_t *keys = (uint32_t *)scratch;
    if (keep <= 0) return;
    for (int32_t i = 0; i < n; i++)
        keys[i] = protected_flags != NULL && protected_flags[i] ? UINT32_MAX : key_of(scores[i]);
    size_t ties = 0;
    uint32_t last = nth_largest(keys, (size_t)n, (size_t)keep, &ties);
    for (int32_t i = 0; i < n; i++) {
        if (keys[i] < last || (keys[i] == last && ties == 0)) continue;
        if (keys[i] == last) ties--;
        *chosen++ = i;
    }
}

float ftki_select_threshold(const float *scores, int32_t n, int32_t keep, int32_t *scratch) {
    uint32_t *keys = (uint32_t *)scratch;
    size_t ties;
    if (keep <= 0) return INFINITY;
    for (int32_t i = 0; i < n; i++) keys[i] = key_of(scores[i]);
    return score_of(nth_largest(keys, (size_t)n, (size_t)keep, &ties));
}

/* Raises the `n_best` best of one head above everything. */
static void secure(uint32_t *keys, int32_t n, int32_t n_best) {
    size_t ties = 0;
    if (n_best <= 0) return;
    uint32_t last = nth_largest(keys, (size_t)n, (size_t)n_best, &ties);
    for (int32_t i = 0; i < n; i++) {
        if (keys[i] > last) keys[i] = UINT32_MAX;
        else if (keys[i] == last && ties > 0) keys[i] = UINT32_MAX, ties--;
    }
}

void ftki_budget_adapt(const float *scores, int32_t n_heads, int32_t n_entries, int32_t at_least,
                       int32_t *kept, int32_t *scratch) {
    uint32_t *keys = (uint32_t *)scratch;
    size_t n = (size_t)n_heads * (size_t)n_entries, total = 0, ties = 0;
    for (int32_t h = 0; h < n_heads; h++) total += (size_t)kept[h];
    if (total == 0) return;
    if ((size_t)at_least * (size_t)n_heads > total) at_least = (int32_t)(total / (size_t)n_heads);
    if (at_least > n_entries) at_least = n_entries;
    for (size_t i = 0; i < n; i++) keys[i] = key_of(scores[i]);
    for (int32_t h = 0; h < n_heads; h++) secure(keys + (size_t)h * (size_t)n_entries, n_entries, at_least);
    uint32_t last = nth_largest(keys, n, total, &ties);
    for (int32_t h = 0; h < n_heads; h++) {
        kept[h] = 0;
        for (int32_t i = 0; i < n_entries; i++) {
            uint32_t key = keys[(size_t)h * (size_t)n_entries + (size_t)i];
            if (key < last || (key == last && ties == 0)) continue;
            if (key == last) ties--;
            kept[h]++;
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
/* Eight bytes at a time: xor in, multiply by an odd constant, fold the high half down. Every step
 * is invertible, so a change of any single word changes the state. */
#include "base/hash.h"

#include <string.h>

static inline uint64_t fold(uint64_t state, uint64_t word) {
    state = (state ^ word) * 0x9E3779B97F4A7C15ULL;
    return state ^ (state >> 29);
}

void ftki_hash_start(ftki_hash *h) {
    memset(h, 0, sizeof *h);
    h->state = 0x243F6A8885A308D3ULL;
}

void ftki_hash_add(ftki_hash *h, const void *data, size_t len) {
    const unsigned char *p = data;
    size_t held = (size_t)(h->length % 8);
    h->length += len;
    uint64_t word;
    if (held) {
        while (held < 8 && len) {
            h->tail[held++] = *p++;
            len--;
        }
        if (held < 8) return;
        memcpy(&word, h->tail, 8);
        h->state = fold(h->state, word);
    }
    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&word, p, 8);
        h->state = fold(h->state, word);
    }
    if (len) memcpy(h->tail, p, len);
}

uint64_t ftki_hash_end(const ftki_hash *h) {
    uint64_t word = 0;
    memcpy(&word, h->tail, (size_t)(h->length % 8));
    return fold(fold(h->state, word), h->length);
}

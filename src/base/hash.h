// SPDX-License-Identifier: Apache-2.0
/* A fast 64-bit checksum for snapshots and fingerprints (not cryptographic). Streaming: pieces
 * may be cut anywhere. */
#ifndef FTKI_BASE_HASH_H
#define FTKI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct ftki_hash {
    uint64_t state, length;
    unsigned char tail[8]; /* bytes not yet folded in, length % 8 of them */
} ftki_hash;

void ftki_hash_start(ftki_hash *h);
void ftki_hash_add(ftki_hash *h, const void *data, size_t len);
uint64_t ftki_hash_end(const ftki_hash *h);

#endif

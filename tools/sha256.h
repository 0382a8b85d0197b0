// SPDX-License-Identifier: Apache-2.0
/* SHA-256 (FIPS 180-4), for the check of downloaded files. */
#ifndef FREETOKEN_TOOLS_SHA256_H
#define FREETOKEN_TOOLS_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_HEX = 65 }; /* 64 digits and the NUL */

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sha256;

void sha256_start(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t len);
void sha256_finish(sha256 *s, char hex[SHA256_HEX]);

#endif

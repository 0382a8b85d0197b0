// SPDX-License-Identifier: Apache-2.0
/* Small deterministic random numbers (PCG32, O'Neill 2014): same seed, same numbers everywhere. */
#ifndef FTKI_BASE_RNG_H
#define FTKI_BASE_RNG_H

#include <stdint.h>

typedef struct ftki_rng {
    uint64_t state, inc;
} ftki_rng;

static inline uint32_t ftki_rng_u32(ftki_rng *r) {
    uint64_t old = r->state;
    r->state = old * 6364136223846793005ULL + r->inc;
    uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), rot = (uint32_t)(old >> 59);
    return (x >> rot) | (x << ((32 - rot) & 31));
}
static inline void ftki_rng_seed(ftki_rng *r, uint64_t seed) {
    r->state = 0;
    r->inc = (seed << 1) | 1;
    (void)ftki_rng_u32(r);
    r->state += seed;
    (void)ftki_rng_u32(r);
}
/* Uniform in [0, 1), 24 bits. */
static inline float ftki_rng_float(ftki_rng *r) {
    return (float)(ftki_rng_u32(r) >> 8) * (1.0f / 16777216.0f);
}

#endif

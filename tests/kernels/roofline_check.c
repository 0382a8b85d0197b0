// SPDX-License-Identifier: Apache-2.0
/* The checks of the two slots that measure the machine. */
#include "kernels/harness.h"

void check_dot_peak(ht *t) {
    uint64_t one = t->table->dot_peak(1), many = t->table->dot_peak(1000);
    if (one == 0 || one % 2) ht_fail(t, "one iteration counts %llu operations", (unsigned long long)one);
    if (many != 1000 * one) ht_fail(t, "1000 iterations do not count a thousandfold");
    uint64_t per_call = 0;
    HT_BENCH(t, "dot_peak, 1000 iterations", many, 0, per_call = t->table->dot_peak(1000));
    (void)per_call;
}

void check_sum_words(ht *t) {
    if (t->bench) {
        size_t n = (size_t)12 << 20;
        uint64_t *words = ht_alloc(t, n * 8, FTKI_ALIGN);
        HT_BENCH(t, "sum_words, 96 MiB", 0, n * 8, t->table->sum_words(words, n));
        return;
    }
    for (size_t n = 0; n < 130 && !t->failures; n++) {
        uint64_t *words = ht_alloc(t, (n + 7) / 8 * 64, FTKI_ALIGN), want = 0;
        for (size_t i = 0; i < n; i++) {
            words[i] = (uint64_t)ftki_rng_u32(&t->rng) << 32 | ftki_rng_u32(&t->rng);
            want += words[i];
        }
        if (t->table->sum_words(words, n) != want) ht_fail(t, "the sum of %zu words is wrong", n);
        ht_release(t);
    }
}

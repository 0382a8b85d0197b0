// SPDX-License-Identifier: Apache-2.0
/* The check of quantising activations: each level writes the scalar one's bytes and nothing else;
 * the scalar one keeps what the contract says about each block. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/harness.h"

static double cleaned(float x) {
    if (isnan(x)) return 0;
    return fmin(fmax((double)x, -(double)FLT_MAX), (double)FLT_MAX);
}

/* Row r of a group against the 32 floats it was made from. */
static void check_block(ht *t, const float *x, const ftki_act_block *a, int32_t r, const char *where) {
    double max = 0, sum = 0, first = 0;
    for (int i = 0; i < FTKI_BLOCK; i++) max = fmax(max, fabs(cleaned(x[i])));
    bool empty = max < 0x1p-100;
    double scale = empty ? 0 : max / 127;
    ht_near(t, (double)a->scale[r], scale, scale * 0x1p-24, where);
    for (int i = 0; i < FTKI_BLOCK; i++) {
        double code = empty ? 0 : cleaned(x[i]) / scale;
        ht_near(t, a->q[r][i], code, 0.5 + 1e-4, where);
        if (fabs(code - floor(code) - 0.5) > 1e-4) ht_near(t, a->q[r][i], rint(code), 0, where);
        sum += a->q[r][i];
        if (i < 16) first += a->q[r][i];
    }
    ht_near(t, a->minus_sum[r], -sum, 0, where);
    ht_near(t, a->minus_first[r], -first, 0, where);
    double scaled = sum * (double)a->scale[r];
    if (fabs(scaled) > (double)FLT_MAX) ht_same(t, &a->scaled_sum[r], &(float){copysignf(INFINITY, (float)sum)}, 1, where);
    else ht_near(t, (double)a->scaled_sum[r], scaled, fabs(scaled) * 0x1p-24, where);
}

/* Exactly halfway between two codes: 2.5 and 3.5 round to 2 and 4. */
static void make_ties(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = i % FTKI_BLOCK == 0 ? 127.0f : (float)(i % 126) + 0.5f - 63.0f;
}

static void one_case(ht *t, int32_t pattern) {
    int32_t rows = 1 + ht_below(t, 11), n_blocks = 1 + ht_below(t, 9), cols = n_blocks * FTKI_BLOCK;
    int32_t begin = ht_below(t, rows), end = begin + 1 + ht_below(t, rows - begin);
    size_t stride = (size_t)cols + (size_t)ht_below(t, 9);
    float *src = ht_alloc(t, ((size_t)(end - 1) * stride + (size_t)cols) * sizeof(float), sizeof(float));
    if (pattern < HT_N_PATTERNS) ht_floats(t, src, (size_t)(end - 1) * stride + (size_t)cols, (ht_pattern)pattern);
    else make_ties(src, (size_t)(end - 1) * stride + (size_t)cols);

    size_t bytes = ftki_acts_bytes(rows, cols);
    ftki_acts got = {.rows = rows, .cols = cols, .blocks = ht_alloc(t, bytes, FTKI_ALIGN)};
    ftki_acts want = {.rows = rows, .cols = cols, .blocks = ht_alloc(t, bytes, FTKI_ALIGN)};
    t->table->quantize(&got, src, stride, begin, end);
    t->scalar->quantize(&want, src, stride, begin, end);

    char where[96];
    snprintf(where, sizeof where, "%s, rows %d..%d of %d, %d cols",
             pattern < HT_N_PATTERNS ? ht_pattern_name((ht_pattern)pattern) : "ties", begin, end, rows, cols);
    ht_same_bytes(t, got.blocks, want.blocks, bytes, where);
    for (int32_t r = 0; r < (rows + 3) / 4 * 4; r++) {
        for (int32_t b = 0; b < n_blocks; b++) {
            const ftki_act_block *a = got.blocks + (size_t)(r / 4) * (size_t)n_blocks + b;
            if (r >= begin && r < end) check_block(t, src + (size_t)r * stride + (size_t)b * FTKI_BLOCK, a, r % 4, where);
            else ht_untouched(t, a->q[r % 4], FTKI_BLOCK, where);
        }
    }
}

static void time_case(ht *t, int32_t rows, int32_t cols) {
    size_t n = (size_t)rows * (size_t)cols;
    float *src = ht_alloc(t, n * sizeof(float), FTKI_ALIGN);
    ht_floats(t, src, n, HT_PLAIN);
    ftki_acts x = {.rows = rows, .cols = cols, .blocks = ht_alloc(t, ftki_acts_bytes(rows, cols), FTKI_ALIGN)};
    char label[48];
    snprintf(label, sizeof label, "quantize %d x %d", rows, cols);
    HT_BENCH(t, label, 0, n * sizeof(float), t->table->quantize(&x, src, (size_t)cols, 0, rows));
    ht_release(t);
}

void check_quantize(ht *t) {
    if (t->bench) {
        time_case(t, 1, 576);
        time_case(t, 256, 576);
        time_case(t, 256, 4864);
        return;
    }
    for (int round = 0; round < 60 && !t->failures; round++) {
        one_case(t, round % (HT_N_PATTERNS + 1));
        ht_release(t);
    }
}

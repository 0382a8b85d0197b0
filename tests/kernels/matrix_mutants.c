// SPDX-License-Identifier: Apache-2.0
/* Planted bugs in quantising, the matrix product and the roofline slots; listed in mutants.def. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "format/quants.h"
#include "kernels/harness.h"

#define X(slot, name, as_scalar) FTKI_SLOT_TYPE(slot) mutant_##name;
#include "kernels/mutants.def"

/* ---------------------------------------------------------------- quantize */

typedef enum quantize_bug { TRUNCATES, TIES_UP, KEEPS_NAN, BY_128, KEEPS_DENORMALS } quantize_bug;

static float cleaned(float x, quantize_bug bug) {
    if (bug != KEEPS_NAN && isnan(x)) return 0.0f;
    return fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

/* What careless code gets: the low byte, 0 past the range of integers. */
static int8_t low_byte(float x) { return fabsf(x) < 2e9f ? (int8_t)(int)x : 0; }

static int8_t rounded(float x, quantize_bug bug) {
    if (bug == TRUNCATES) return low_byte(x);
    if (bug == TIES_UP) return low_byte(floorf(x + 0.5f));
    return low_byte(rintf(x));
}

/* Quantising anew with one bug. */
static void quantize_with(quantize_bug bug, const ftki_acts *x, const float *src, size_t stride,
                          int32_t begin, int32_t end) {
    int32_t n_blocks = x->cols / FTKI_BLOCK;
    for (int32_t r = begin; r < end; r++) {
        for (int32_t b = 0; b < n_blocks; b++) {
            ftki_act_block *a = x->blocks + (size_t)(r / 4) * (size_t)n_blocks + b;
            const float *f = src + (size_t)r * stride + (size_t)b * FTKI_BLOCK;
            float max = 0.0f, smallest = bug == KEEPS_DENORMALS ? 0x1p-149f : 0x1p-100f;
            for (int i = 0; i < FTKI_BLOCK; i++) max = fmaxf(max, fabsf(cleaned(f[i], bug)));
            float scale = max < smallest ? 0.0f : max / (bug == BY_128 ? 128.0f : 127.0f);
            float inverse = max < smallest ? 0.0f : 1.0f / scale;
            int32_t sum = 0;
            for (int i = 0; i < FTKI_BLOCK; i++) {
                sum += a->q[r % 4][i] = rounded(cleaned(f[i], bug) * inverse, bug);
                if (i == 15) a->minus_first[r % 4] = -sum;
            }
            a->scale[r % 4] = scale;
            a->scaled_sum[r % 4] = scale * (float)sum;
            a->minus_sum[r % 4] = -sum;
        }
    }
}

#define QUANTIZE_MUTANT(name, bug)                                                            \
    void mutant_##name(const ftki_acts *x, const float *src, size_t stride, int32_t b, int32_t e) { \
        quantize_with(bug, x, src, stride, b, e);                                             \
    }
QUANTIZE_MUTANT(quantize_truncates, TRUNCATES)
QUANTIZE_MUTANT(quantize_ties_up, TIES_UP)
QUANTIZE_MUTANT(quantize_keeps_nan, KEEPS_NAN)
QUANTIZE_MUTANT(quantize_divides_by_128, BY_128)
QUANTIZE_MUTANT(quantize_keeps_denormals, KEEPS_DENORMALS)

static ftki_act_block *block_of(const ftki_acts *x, int32_t row, int32_t block) {
    return x->blocks + (size_t)(row / 4) * (size_t)(x->cols / FTKI_BLOCK) + block;
}

void mutant_quantize_forgets_first_sum(const ftki_acts *x, const float *src, size_t stride,
                                       int32_t begin, int32_t end) {
    ftki_quantize_scalar(x, src, stride, begin, end);
    block_of(x, begin, 0)->minus_first[begin % 4] = block_of(x, begin, 0)->minus_sum[begin % 4];
}

void mutant_quantize_skips_last_block(const ftki_acts *x, const float *src, size_t stride,
                                      int32_t begin, int32_t end) {
    ftki_act_block *last = block_of(x, end - 1, x->cols / FTKI_BLOCK - 1), before = *last;
    ftki_quantize_scalar(x, src, stride, begin, end);
    memcpy(last->q[(end - 1) % 4], before.q[(end - 1) % 4], FTKI_BLOCK);
}

void mutant_quantize_ignores_stride(const ftki_acts *x, const float *src, size_t stride,
                                    int32_t begin, int32_t end) {
    (void)stride;
    ftki_quantize_scalar(x, src, (size_t)x->cols, begin, end);
}

void mutant_quantize_clears_group(const ftki_acts *x, const float *src, size_t stride, int32_t begin,
                                  int32_t end) {
    memset(block_of(x, begin, 0), 0, sizeof(ftki_act_block));
    ftki_quantize_scalar(x, src, stride, begin, end);
}

void mutant_quantize_reads_beyond(const ftki_acts *x, const float *src, size_t stride, int32_t begin,
                                  int32_t end) {
    volatile float past = src[(size_t)(end - 1) * stride + (size_t)x->cols];
    (void)past;
    ftki_quantize_scalar(x, src, stride, begin, end);
}

/* ------------------------------------------------------------------ matmul */

#define MATMUL_ARGS                                                                        \
    const ftki_matrix *w, const ftki_acts *x, int32_t begin, int32_t end, float *y, size_t stride, \
        bool add

static bool quantised(const ftki_matrix *w) { return w->kind == FTKI_W_U8 || w->kind == FTKI_W_U4; }

void mutant_matmul_wrong_zero(MATMUL_ARGS) {
    ftki_matrix wrong = *w;
    if (wrong.zero) wrong.zero++;
    ftki_matmul_scalar(&wrong, x, begin, end, y, stride, add);
}

/* The second panel of the range is the first one's again. */
void mutant_matmul_next_panel(MATMUL_ARGS) {
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
    int32_t to = (begin + 1) * FTKI_PANEL, n = w->rows - to < FTKI_PANEL ? w->rows - to : FTKI_PANEL;
    if (end - begin < 2) return;
    for (int32_t r = 0; r < x->rows; r++)
        memcpy(y + (size_t)r * stride + to, y + (size_t)r * stride + to - FTKI_PANEL, (size_t)n * 4);
}

void mutant_matmul_drops_min(MATMUL_ARGS) {
    ftki_matrix wrong = *w;
    wrong.mins = NULL;
    ftki_matmul_scalar(&wrong, x, begin, end, y, stride, add);
}

void mutant_matmul_skips_last_row(MATMUL_ARGS) {
    ftki_acts fewer = *x;
    fewer.rows--;
    ftki_matmul_scalar(w, &fewer, begin, end, y, stride, add);
}

void mutant_matmul_skips_last_block(MATMUL_ARGS) {
    int32_t last = w->cols / FTKI_BLOCK - 1;
    if (quantised(w))
        for (int32_t r = 0; r < x->first + x->rows; r++)
            block_of(x, r, last)->scale[r % 4] = block_of(x, r, last)->scaled_sum[r % 4] = 0.0f;
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
    /* The damage must not reach the scalar product that is compared with. */
    if (quantised(w))
        for (int32_t r = 0; r < x->first + x->rows; r++) {
            ftki_act_block *a = block_of(x, r, last);
            a->scale[r % 4] = 1.0f;
            a->scaled_sum[r % 4] = -(float)a->minus_sum[r % 4];
        }
}

void mutant_matmul_wrong_lane(MATMUL_ARGS) {
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
    int32_t o = begin * FTKI_PANEL + 7;
    if (begin < end && o < w->rows) y[o] = nextafterf(y[o], INFINITY);
}

void mutant_matmul_writes_whole_panel(MATMUL_ARGS) {
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
    if (end == w->n_panels && end > begin && w->rows % FTKI_PANEL)
        y[(size_t)(x->rows - 1) * stride + (size_t)w->rows] = 0.0f;
}

void mutant_matmul_reads_beyond(MATMUL_ARGS) {
    size_t bytes = ftki_pack_bytes(w->source, w->rows, w->cols);
    volatile uint8_t past = w->data[bytes];
    (void)past;
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
}

void mutant_matmul_forgets_add(MATMUL_ARGS) {
    (void)add;
    ftki_matmul_scalar(w, x, begin, end, y, stride, false);
}

void mutant_matmul_forgets_first(MATMUL_ARGS) {
    ftki_acts wrong = *x;
    wrong.first = 0;
    ftki_matmul_scalar(w, &wrong, begin, end, y, stride, add);
}

void mutant_matmul_ignores_stride(MATMUL_ARGS) {
    (void)stride;
    ftki_matmul_scalar(w, x, begin, end, y, (size_t)w->rows, add);
}

void mutant_matmul_from_panel_zero(MATMUL_ARGS) {
    (void)begin;
    ftki_matmul_scalar(w, x, 0, end, y, stride, add);
}

/* The second chunk of 64 rows is the first one's again. */
void mutant_matmul_repeats_chunk(MATMUL_ARGS) {
    ftki_acts first = *x;
    ftki_matmul_scalar(w, x, begin, end, y, stride, add);
    first.rows = x->rows - 64 < 64 ? x->rows - 64 : 64;
    if (x->rows > 64) ftki_matmul_scalar(w, &first, begin, end, y + 64 * stride, stride, add);
}

typedef enum matmul_bug { FUSES_ADD, SATURATES, WRAPS, ONE_SCALE } matmul_bug;

static int32_t code_of(const ftki_matrix *w, size_t block, int32_t i, int32_t o) {
    if (w->kind == FTKI_W_U8) return w->data[block * 512 + (size_t)(i / 4 * 64 + o * 4 + i % 4)];
    uint8_t byte = w->data[block * 256 + (size_t)(i % 16 / 4 * 64 + o * 4 + i % 4)];
    return i < 16 ? byte & 15 : byte >> 4;
}

static int32_t clamp16(int32_t v) { return v > 32767 ? 32767 : v < -32768 ? -32768 : v; }

/* Inputs [begin, end) of a block. */
static int32_t dot(matmul_bug bug, const ftki_matrix *w, size_t block, const int8_t *q, int32_t begin,
                   int32_t end, int32_t o) {
    int32_t sum = 0, zeros = 0;
    for (int32_t i = begin; i < end; i += 2) {
        int32_t pair = code_of(w, block, i, o) * q[i] + code_of(w, block, i + 1, o) * q[i + 1];
        sum += bug == SATURATES ? clamp16(pair) : pair;
        zeros += w->zero * (q[i] + q[i + 1]);
    }
    return bug == WRAPS ? (int16_t)(sum - zeros) : sum - zeros;
}

/* The product anew with one bug. */
static void matmul_with(matmul_bug bug, MATMUL_ARGS) {
    if (!quantised(w)) {
        ftki_matmul_scalar(w, x, begin, end, y, stride, add);
        return;
    }
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK, parts = (size_t)(FTKI_BLOCK / w->block);
    for (int32_t o = begin * FTKI_PANEL; o < end * FTKI_PANEL && o < w->rows; o++) {
        for (int32_t r = 0; r < x->rows; r++) {
            float *out = y + (size_t)r * stride + o, acc = bug == FUSES_ADD && add ? *out : 0.0f;
            int32_t row = x->first + r, lane = o % FTKI_PANEL;
            for (size_t b = 0; b < n_blocks; b++) {
                const ftki_act_block *a = block_of(x, row, (int32_t)b);
                size_t block = (size_t)(o / FTKI_PANEL) * n_blocks + b;
                for (size_t part = 0; part < parts; part++) {
                    size_t at = (block * parts + (bug == ONE_SCALE ? 0 : part)) * FTKI_PANEL + (size_t)lane;
                    int32_t first = (int32_t)part * w->block;
                    float s = (float)dot(bug, w, block, a->q[row % 4], first, first + w->block, lane);
                    acc = fmaf(s, ftki_f16_to_f32(w->scales[at]) * a->scale[row % 4], acc);
                    if (w->mins) acc = fmaf(ftki_f16_to_f32(w->mins[at]), a->scaled_sum[row % 4], acc);
                }
            }
            *out = add && bug != FUSES_ADD ? *out + acc : acc;
        }
    }
}

void mutant_matmul_fuses_add(MATMUL_ARGS) { matmul_with(FUSES_ADD, w, x, begin, end, y, stride, add); }
void mutant_matmul_saturates_pairs(MATMUL_ARGS) { matmul_with(SATURATES, w, x, begin, end, y, stride, add); }
void mutant_matmul_wraps_sums(MATMUL_ARGS) { matmul_with(WRAPS, w, x, begin, end, y, stride, add); }
void mutant_matmul_one_scale_for_both_halves(MATMUL_ARGS) {
    matmul_with(ONE_SCALE, w, x, begin, end, y, stride, add);
}

/* ---------------------------------------------------------------- roofline */

uint64_t mutant_dot_peak_counts_nothing(int64_t iterations) {
    (void)iterations;
    return 0;
}
uint64_t mutant_dot_peak_counts_once(int64_t iterations) { return ftki_dot_peak_scalar(iterations ? 1 : 0); }
uint64_t mutant_sum_words_forgets_tail(const uint64_t *words, size_t n) {
    return ftki_sum_words_scalar(words, n / 8 * 8);
}
uint64_t mutant_sum_words_reads_beyond(const uint64_t *words, size_t n) {
    return ftki_sum_words_scalar(words, (n + 8) / 8 * 8) - ftki_sum_words_scalar(words + n, (n + 8) / 8 * 8 - n);
}

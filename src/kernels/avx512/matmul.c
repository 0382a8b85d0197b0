// SPDX-License-Identifier: Apache-2.0
/* The matrix product for AVX-512 with VNNI.
 *
 * A tile is up to 12 activation rows times one panel of 16 outputs, the outputs in the lanes. The
 * dot product vpdpbusd takes its unsigned operand (the weight codes) from a register and its
 * signed one (four activation codes, broadcast) from memory; the weight's zero is paid by starting
 * the integer sum at -zero * (sum of q). Per block of 32 inputs and row that is 8 dot products, one
 * conversion, one product of scales and one fused multiply-add. */
#include <stddef.h>

#include "kernels/avx512/tile.h"

enum {
    TILE_GROUPS = 3,              /* groups of 4 rows in a tile: 12 + 12 accumulators of 32 registers */
    CACHE_BYTES = 384 * 1024,     /* activations kept in the second-level cache across panels */
    AHEAD = 3072,                 /* bytes by which weights are prefetched */
};

/* How the codes of a matrix are kept; constant wherever it is used, so each becomes its own loop. */
typedef struct form {
    bool u4;
    bool mins;
    bool halves; /* a scale per 16 inputs instead of 32 */
    int shift;   /* the zero is 1 << shift; unused with mins */
} form;

/* One panel's place in a matrix. */
typedef struct panel {
    const uint8_t *data;
    const uint16_t *scales, *mins;
    size_t n_blocks;
} panel;

/* Where the rows of a tile are: the codes and the four words (scale, scaled_sum, minus_sum,
 * minus_first) of its first row; `stride` bytes lead to the next group of 4 rows. */
typedef struct rows_at {
    const char *codes, *words;
    size_t stride;
} rows_at;

INLINE rows_at rows_from(const ftki_acts *x, int32_t row) {
    size_t stride = (size_t)(x->cols / FTKI_BLOCK) * sizeof(ftki_act_block);
    const char *group = (const char *)x->blocks + (size_t)(row / FTKI_ACT_ROWS) * stride;
    size_t r = (size_t)(row % FTKI_ACT_ROWS);
    return (rows_at){group + r * FTKI_BLOCK,
                     group + offsetof(ftki_act_block, scale) + r * sizeof(float), stride};
}

INLINE __m512 load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* sum += dot products of 16 outputs' unsigned codes w with the four signed codes at q. */
INLINE __m512i dot(__m512i sum, __m512i w, const char *q) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int32_t *)(const void *)q));
    return sum;
}

INLINE __m512 word(const char *p, int n) {
    return _mm512_set1_ps(((const float *)(const void *)p)[4 * n]);
}
INLINE __m512i int_word(const char *p, int n) {
    return _mm512_set1_epi32(((const int32_t *)(const void *)p)[4 * n]);
}

/* Integer starting value of a row's block or half block. */
INLINE __m512i start_sum(form f, const char *words, int half) {
    if (f.mins) return _mm512_setzero_si512();
    __m512i minus = int_word(words, f.halves && half == 0 ? 3 : 2);
    if (f.halves && half == 1) minus = _mm512_sub_epi32(minus, int_word(words, 3));
    return _mm512_slli_epi32(minus, (unsigned)f.shift);
}

/* acc [rows] of the rows at `x`. */
INLINE void tile(const form f, const int rows, const panel *p, rows_at x, __m512 *acc) {
    const int n_halves = f.halves ? 2 : 1, n_dots = f.halves ? 4 : 8;
    /* Weights that come from memory are read 1.5 times as fast for one row of 4-bit codes, and
     * twelve rows take 1.2 times less; one row of 8-bit codes streams better by itself. */
    const bool prefetch = f.u4 || rows > 1;
    const uint8_t *data = p->data;
    const uint16_t *scales = p->scales, *mins = p->mins;
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();

    for (size_t b = 0; b < p->n_blocks; b++) {
        const char *codes[3] = {x.codes, x.codes + x.stride, x.codes + 2 * x.stride};
        const char *words[3] = {x.words, x.words + x.stride, x.words + 2 * x.stride};
        UNROLL for (int half = 0; half < n_halves; half++) {
            __m512i sum[12];
            UNROLL for (int r = 0; r < rows; r++) sum[r] = start_sum(f, words[r / 4] + r % 4 * 4, half);
            UNROLL for (int d = 0; d < n_dots; d++) {
                int group = half * 4 + d;
                __m512i w;
                if (prefetch && (!f.u4 || group < 4))
                    _mm_prefetch((const char *)data + group * 64 + AHEAD, _MM_HINT_T0);
                if (f.u4) {
                    w = _mm512_loadu_si512(data + (group % 4) * 64);
                    if (group >= 4) w = _mm512_srli_epi16(w, 4);
                    w = _mm512_and_si512(w, _mm512_set1_epi8(15));
                } else {
                    w = _mm512_loadu_si512(data + group * 64);
                }
                UNROLL for (int r = 0; r < rows; r++)
                    sum[r] = dot(sum[r], w, codes[r / 4] + r % 4 * FTKI_BLOCK + group * 4);
            }
            __m512 scale = load_f16(scales);
            UNROLL for (int r = 0; r < rows; r++) {
                __m512 both = _mm512_mul_ps(scale, word(words[r / 4] + r % 4 * 4, 0));
                acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), both, acc[r]);
            }
            scales += FTKI_PANEL;
        }
        if (f.mins) {
            __m512 min = load_f16(mins);
            UNROLL for (int r = 0; r < rows; r++)
                acc[r] = _mm512_fmadd_ps(min, word(words[r / 4] + r % 4 * 4, 1), acc[r]);
            mins += FTKI_PANEL;
        }
        data += f.u4 ? 256 : 512;
        x.codes += sizeof(ftki_act_block);
        x.words += sizeof(ftki_act_block);
    }
}

#define TILE_CASE(n)             \
    case n:                      \
        tile(f, n, p, x, acc);   \
        store(t, n, acc);        \
        break
INLINE void any_tile(const form f, int rows, const panel *p, rows_at x, const target *t) {
    __m512 acc[12];
    switch (rows) {
        TILE_CASE(12);
        TILE_CASE(8);
        TILE_CASE(4);
        TILE_CASE(3);
        TILE_CASE(2);
        TILE_CASE(1);
    }
}

typedef void tile_fn(int rows, const panel *p, rows_at x, const target *t);
#define TILE_FN(name, ...)                                                     \
    static void name(int rows, const panel *p, rows_at x, const target *t) { \
        any_tile((form){__VA_ARGS__}, rows, p, x, t);                          \
    }
TILE_FN(tile_u8_zero128, false, false, false, 7)
TILE_FN(tile_u8_zero32_halves, false, false, true, 5)
TILE_FN(tile_u8_zero16, false, false, false, 4)
TILE_FN(tile_u8_mins, false, true, false, 0)
TILE_FN(tile_u4_zero8, true, false, false, 3)
TILE_FN(tile_u4_mins, true, true, false, 0)

static tile_fn *tile_for(const ftki_matrix *w) {
    if (w->kind == FTKI_W_U4) return w->mins ? tile_u4_mins : tile_u4_zero8;
    if (w->mins) return tile_u8_mins;
    return w->block == 16 ? tile_u8_zero32_halves : w->zero == 128 ? tile_u8_zero128 : tile_u8_zero16;
}

/* Rows a tile starting at acts row `row` takes, of `left`. */
static int32_t tile_rows(int32_t row, int32_t left) {
    int32_t skip = row % FTKI_ACT_ROWS;
    if (skip || left < FTKI_ACT_ROWS) {
        int32_t room = FTKI_ACT_ROWS - skip;
        return left < room ? left : room;
    }
    int32_t groups = left / FTKI_ACT_ROWS;
    return (groups < TILE_GROUPS ? groups : TILE_GROUPS) * FTKI_ACT_ROWS;
}

static void matmul_quantised(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add) {
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK;
    size_t block_bytes = w->kind == FTKI_W_U8 ? 512 : 256;
    size_t block_scales = (size_t)(FTKI_BLOCK / w->block) * FTKI_PANEL;
    tile_fn *run = tile_for(w);

    /* A chunk of rows stays in the cache while all panels pass over it. */
    size_t group_bytes = n_blocks * sizeof(ftki_act_block);
    int32_t chunk = (int32_t)(CACHE_BYTES / group_bytes) / TILE_GROUPS * TILE_GROUPS * FTKI_ACT_ROWS;
    if (chunk < TILE_GROUPS * FTKI_ACT_ROWS) chunk = TILE_GROUPS * FTKI_ACT_ROWS;

    for (int32_t begin = 0; begin < x->rows; begin += chunk) {
        int32_t end = x->rows - begin < chunk ? x->rows : begin + chunk;
        for (int32_t i = panel_begin; i < panel_end; i++) {
            size_t at = (size_t)i * n_blocks;
            panel p = {w->data + at * block_bytes, w->scales + at * block_scales,
                       w->mins ? w->mins + at * block_scales : NULL, n_blocks};
            target t = target_at(w, i, y, y_stride, add);
            for (int32_t r = begin, n; r < end; r += n) {
                int32_t row = x->first + r;
                n = tile_rows(row, end - r);
                t.y = y + (size_t)r * y_stride + (size_t)i * FTKI_PANEL;
                run(n, &p, rows_from(x, row), &t);
            }
        }
    }
}

void ftki_matmul_avx512(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                        int32_t panel_end, float *y, size_t y_stride, bool add) {
    if (w->kind == FTKI_W_U8 || w->kind == FTKI_W_U4)
        matmul_quantised(w, x, panel_begin, panel_end, y, y_stride, add);
    else
        ftki_matmul_floats_avx512(w, x, panel_begin, panel_end, y, y_stride, add);
}

// SPDX-License-Identifier: Apache-2.0
/* The matrix product for AVX2, which has no byte dot product: vpmaddubsw multiplies unsigned by
 * signed bytes and adds pairs in 16 bits, saturating, so each code range is handled such that
 * nothing saturates:
 *   8-bit codes (zero 128) become signed, w = u - 128; |w| <= 128 is the unsigned operand and q
 *   with w's sign the signed one: a pair is at most 2 * 128 * 127 = 32512.
 *   Codes below 64, 32 and 16 are the unsigned operand themselves, and 2, 4 and 8 pairs are added
 *   in 16 bits before they widen: at most 8 * 2 * 15 * 127 = 30480, 31496, 32004.
 * A tile is 4 activation rows times 8 outputs, or 1 to 3 rows times a panel of 16. */
#include <stddef.h>

#include "kernels/avx2/tile.h"

enum {
    AHEAD = 3072,   /* bytes by which weights are prefetched */
    MANY_GROUPS = 2 /* of 4 rows, from which matmul_many.c is faster */
};

/* How the codes of a matrix are kept; constant wherever it is used, so each becomes its own loop. */
typedef struct form {
    bool u4;
    bool mins;
    bool halves;  /* a scale per 16 inputs instead of 32 */
    bool centred; /* 8-bit codes, made signed */
    int shift;    /* the zero is 1 << shift; unused with mins and when centred */
    int depth;    /* products added in 16 bits before they widen */
} form;

typedef struct panel {
    const uint8_t *data;
    const uint16_t *scales, *mins;
    size_t n_blocks;
} panel;

INLINE __m256i four_codes(const int8_t *q) {
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

/* Codes of dot product `group` (0..7) of a block for the 8 outputs of `column`. */
INLINE __m256i codes(form f, const uint8_t *data, int group, int column) {
    if (!f.u4) return _mm256_loadu_si256((const __m256i *)(const void *)(data + group * 64 + column * 32));
    __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(data + group % 4 * 64 + column * 32));
    if (group >= 4) w = _mm256_srli_epi16(w, 4);
    return _mm256_and_si256(w, _mm256_set1_epi8(15));
}

/* -zero * (sum of q) of a row's block or half block. */
INLINE __m256i zero_sum(form f, const ftki_act_block *a, int r, int half) {
    int32_t minus = f.halves ? a->minus_first[r] : a->minus_sum[r];
    if (half == 1) minus = a->minus_sum[r] - minus;
    return _mm256_set1_epi32(minus * (1 << f.shift));
}

/* Rows skip, skip + 1, ... of a group of activations times `columns` vectors of outputs from
 * `column` on. */
INLINE void tile(const form f, const int rows, const int columns, const panel *p,
                 const ftki_act_block *a, int skip, int column, const target *t) {
    const int n_halves = f.halves ? 2 : 1, n_dots = f.halves ? 4 : 8;
    const bool prefetch = f.u4; /* 1.1 to 1.3 times as fast from memory; 8-bit codes gain nothing */
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *data = p->data;
    const uint16_t *scales = p->scales, *mins = p->mins;
    __m256 acc[4][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < columns; c++) acc[r][c] = _mm256_setzero_ps();

    for (size_t b = 0; b < p->n_blocks; b++, a++) {
        UNROLL for (int half = 0; half < n_halves; half++) {
            __m256i sum[4][2], pairs[4][2];
            UNROLL for (int d = 0; d < n_dots; d++) {
                int group = half * 4 + d;
                UNROLL for (int c = 0; c < columns; c++) {
                    __m256i w = codes(f, data, group, column + c), size = w;
                    if (prefetch && (column + c == 0) && (!f.u4 || group < 4))
                        _mm_prefetch((const char *)data + group * 64 + AHEAD, _MM_HINT_T0);
                    if (f.centred) {
                        w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                        size = _mm256_abs_epi8(w);
                    }
                    UNROLL for (int r = 0; r < rows; r++) {
                        __m256i q = four_codes(a->q[r + skip] + group * 4);
                        if (f.centred) q = _mm256_sign_epi8(q, w);
                        __m256i pair = _mm256_maddubs_epi16(size, q);
                        pairs[r][c] = d % f.depth ? _mm256_add_epi16(pairs[r][c], pair) : pair;
                        keep_order(&pairs[r][c]);
                        if (d % f.depth < f.depth - 1) continue;
                        __m256i wide = _mm256_madd_epi16(pairs[r][c], ones);
                        sum[r][c] = d < f.depth ? wide : _mm256_add_epi32(sum[r][c], wide);
                        keep_order(&sum[r][c]);
                    }
                }
            }
            UNROLL for (int c = 0; c < columns; c++) {
                __m256 scale = load_f16(scales + (column + c) * 8);
                UNROLL for (int r = 0; r < rows; r++) {
                    if (!f.mins && !f.centred)
                        sum[r][c] = _mm256_add_epi32(sum[r][c], zero_sum(f, a, r + skip, half));
                    __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(a->scale[r + skip]));
                    acc[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][c]), both, acc[r][c]);
                }
            }
            scales += FTKI_PANEL;
        }
        if (f.mins) {
            UNROLL for (int c = 0; c < columns; c++) {
                __m256 min = load_f16(mins + (column + c) * 8);
                UNROLL for (int r = 0; r < rows; r++)
                    acc[r][c] = _mm256_fmadd_ps(min, _mm256_set1_ps(a->scaled_sum[r + skip]), acc[r][c]);
            }
            mins += FTKI_PANEL;
        }
        data += f.u4 ? 256 : 512;
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < columns; c++) store8(t, r, column + c, acc[r][c]);
}

INLINE void any_tile(const form f, int rows, const panel *p, const ftki_act_block *a, int skip,
                     const target *t) {
    switch (rows) {
    case 4:
        tile(f, 4, 1, p, a, 0, 0, t);
        tile(f, 4, 1, p, a, 0, 1, t);
        break;
    case 3: tile(f, 1, 2, p, a, skip + 2, 0, &(target){t->y + 2 * t->stride, t->stride, t->outputs, t->add});
        /* fall through */
    case 2: tile(f, 2, 2, p, a, skip, 0, t); break;
    default: tile(f, 1, 2, p, a, skip, 0, t); break;
    }
}

typedef void tile_fn(int rows, const panel *p, const ftki_act_block *a, int skip, const target *t);
#define TILE_FN(name, ...)                                                                     \
    static void name(int rows, const panel *p, const ftki_act_block *a, int skip, const target *t) { \
        any_tile((form){__VA_ARGS__}, rows, p, a, skip, t);                                    \
    }
TILE_FN(tile_u8_zero128, .centred = true, .depth = 1)
TILE_FN(tile_u8_zero32_halves, .halves = true, .shift = 5, .depth = 2)
TILE_FN(tile_u8_zero16, .shift = 4, .depth = 4)
TILE_FN(tile_u8_mins, .mins = true, .depth = 4)
TILE_FN(tile_u4_zero8, .u4 = true, .shift = 3, .depth = 8)
TILE_FN(tile_u4_mins, .u4 = true, .mins = true, .depth = 8)

static tile_fn *tile_for(const ftki_matrix *w) {
    if (w->kind == FTKI_W_U4) return w->mins ? tile_u4_mins : tile_u4_zero8;
    if (w->mins) return tile_u8_mins;
    return w->block == 16 ? tile_u8_zero32_halves : w->zero == 128 ? tile_u8_zero128 : tile_u8_zero16;
}

/* Rows [begin, end) of the product. */
static void few_rows(const ftki_matrix *w, const ftki_acts *x, int32_t begin, int32_t end,
                     int32_t panel_begin, int32_t panel_end, float *y, size_t y_stride, bool add) {
    size_t n_blocks = (size_t)w->cols / FTKI_BLOCK;
    size_t block_bytes = w->kind == FTKI_W_U8 ? 512 : 256;
    size_t block_scales = (size_t)(FTKI_BLOCK / w->block) * FTKI_PANEL;
    tile_fn *run = tile_for(w);
    for (int32_t i = panel_begin; i < panel_end; i++) {
        size_t at = (size_t)i * n_blocks;
        panel p = {w->data + at * block_bytes, w->scales + at * block_scales,
                   w->mins ? w->mins + at * block_scales : NULL, n_blocks};
        for (int32_t r = begin, n; r < end; r += n) {
            int32_t row = x->first + r, skip = row % FTKI_ACT_ROWS;
            n = FTKI_ACT_ROWS - skip < end - r ? FTKI_ACT_ROWS - skip : end - r;
            target t = target_at(w, i, y + (size_t)r * y_stride, y_stride, add);
            run(n, &p, x->blocks + (size_t)(row / FTKI_ACT_ROWS) * n_blocks, skip, &t);
        }
    }
}

static void matmul_quantised(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                             int32_t panel_end, float *y, size_t y_stride, bool add) {
    int32_t begin = (FTKI_ACT_ROWS - x->first % FTKI_ACT_ROWS) % FTKI_ACT_ROWS; /* of whole groups */
    int32_t n_groups = (x->rows - begin) / FTKI_ACT_ROWS, end = begin + n_groups * FTKI_ACT_ROWS;
    if (n_groups < MANY_GROUPS) {
        few_rows(w, x, 0, x->rows, panel_begin, panel_end, y, y_stride, add);
        return;
    }
    const ftki_act_block *acts = x->blocks + (size_t)((x->first + begin) / FTKI_ACT_ROWS) * (size_t)(w->cols / FTKI_BLOCK);
    few_rows(w, x, 0, begin, panel_begin, panel_end, y, y_stride, add);
    ftki_matmul_many_avx2(w, acts, n_groups, panel_begin, panel_end, y + (size_t)begin * y_stride, y_stride, add);
    few_rows(w, x, end, x->rows, panel_begin, panel_end, y, y_stride, add);
}

void ftki_matmul_avx2(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                      int32_t panel_end, float *y, size_t y_stride, bool add) {
    if (w->kind == FTKI_W_U8 || w->kind == FTKI_W_U4)
        matmul_quantised(w, x, panel_begin, panel_end, y, y_stride, add);
    else
        ftki_matmul_floats_avx2(w, x, panel_begin, panel_end, y, y_stride, add);
}

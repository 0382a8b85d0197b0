// SPDX-License-Identifier: Apache-2.0
/* The product of many rows with quantised weights for AVX2. Rows are taken by CHUNK, inputs by
 * SLICE blocks: a slice of a panel is brought into the form its dot product wants, once for all
 * rows of the chunk, and tiles of 4 rows x 16 outputs run over it, their sums waiting in memory.
 *
 * Codes below 32 are the unsigned operand of vpmaddubsw; 4 or 8 products are added in 16 bits
 * before they widen (matmul.c has the bounds).
 *
 * Wider codes are 16-bit numbers, and half of the multiplications become additions, which have
 * twice the ports (Winograd, "A new algorithm for inner product", 1968):
 *   w0 q0 + w1 q1 = (w0 + q1) (w1 + q0) - w0 w1 - q0 q1
 * The last two depend on the weights or the activations alone. All is exact: |w + q| <= 255. */
#include <string.h>

#include "kernels/avx2/tile.h"

enum {
    CHUNK = 16, /* groups of 4 rows */
    SLICE = 8,  /* blocks of 32 inputs */
    PANELS = 4
};

/* A slice of a panel as tiles read it. */
typedef struct weights {
    union {
        int16_t words[SLICE][8][2][2][16]; /* [block][dot product][column][even or odd inputs] */
        uint8_t bytes[SLICE][8][2][32];    /* [block][dot product][column] */
    };
    int32_t minus_products[SLICE][3][FTKI_PANEL]; /* -(w0 w1 + w2 w3 + ...) of both halves, of all */
    float scale[SLICE][2][FTKI_PANEL];            /* of half blocks, or the first alone */
    float min[SLICE][FTKI_PANEL];
} __attribute__((aligned(64))) weights;

/* A block of 4 rows as 16-bit numbers. */
typedef struct words_block {
    int16_t q[FTKI_ACT_ROWS][2][16]; /* even inputs, odd inputs */
    int32_t minus_products[3][FTKI_ACT_ROWS]; /* of both halves, of all */
    float scale[FTKI_ACT_ROWS];               /* beside the rest: one cache line less to read */
} __attribute__((aligned(64))) words_block;

typedef struct space {
    words_block acts[CHUNK][SLICE];
    weights w;
    float acc[PANELS][CHUNK][FTKI_ACT_ROWS][FTKI_PANEL];
} __attribute__((aligned(64))) space;

INLINE __m256i load(const void *p) { return _mm256_load_si256((const __m256i *)p); }
INLINE void store(void *p, __m256i v) { _mm256_store_si256((__m256i *)p, v); }
INLINE __m256i even_words(__m256i bytes) { return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8); }
INLINE __m256i odd_words(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

/* ------------------------------------------------------------------ preparing */

static void spread_acts(const ftki_act_block *from, words_block *to, size_t n) {
    for (size_t b = 0; b < n; b++, from++, to++) {
        __m256i products[FTKI_ACT_ROWS];
        memcpy(to->scale, from->scale, sizeof to->scale);
        UNROLL for (int r = 0; r < FTKI_ACT_ROWS; r++) {
            __m256i q = load(from->q[r]), even = even_words(q), odd = odd_words(q);
            store(to->q[r][0], even);
            store(to->q[r][1], odd);
            products[r] = _mm256_madd_epi16(even, odd);
        }
        /* Halves of a register hold half blocks; adding across leaves a row per lane. */
        __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(products[0], products[1]),
                                         _mm256_hadd_epi32(products[2], products[3]));
        sums = _mm256_sub_epi32(_mm256_setzero_si256(), sums);
        store(to->minus_products, sums);
        _mm_store_si128((__m128i *)(void *)to->minus_products[2],
                        _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    }
}

/* 16-bit codes less the zero. */
static void spread_words(const ftki_matrix *m, const uint8_t *data, weights *w, size_t n) {
    const __m256i zero = _mm256_set1_epi8((char)m->zero);
    for (size_t b = 0; b < n; b++) {
        __m256i all[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        UNROLL for (int half = 0; half < 2; half++) {
            __m256i minus[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
            UNROLL for (int d = 4 * half; d < 4 * half + 4; d++)
                UNROLL for (int c = 0; c < 2; c++, data += 32) {
                    __m256i v = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)data), zero);
                    __m256i even = even_words(v), odd = odd_words(v);
                    store(w->words[b][d][c][0], even);
                    store(w->words[b][d][c][1], odd);
                    minus[c] = _mm256_sub_epi32(minus[c], _mm256_madd_epi16(even, odd));
                }
            UNROLL for (int c = 0; c < 2; c++) {
                store(w->minus_products[b][half] + 8 * c, minus[c]);
                all[c] = _mm256_add_epi32(all[c], minus[c]);
            }
        }
        UNROLL for (int c = 0; c < 2; c++) store(w->minus_products[b][2] + 8 * c, all[c]);
    }
}

static void spread_bytes(const ftki_matrix *m, const uint8_t *data, weights *w, size_t n) {
    const __m256i low = _mm256_set1_epi8(15);
    if (m->kind == FTKI_W_U8) {
        memcpy(w->bytes, data, n * sizeof w->bytes[0]);
        return;
    }
    for (size_t b = 0; b < n; b++)
        for (int d = 0; d < 4; d++)
            UNROLL for (int c = 0; c < 2; c++, data += 32) {
                __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)data);
                store(w->bytes[b][d][c], _mm256_and_si256(v, low));
                store(w->bytes[b][d + 4][c], _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
            }
}

static void spread_scales(const ftki_matrix *m, size_t block, weights *w, size_t n) {
    size_t parts = (size_t)(FTKI_BLOCK / m->block);
    const uint16_t *scales = m->scales + block * parts * FTKI_PANEL;
    for (size_t b = 0; b < n; b++) {
        for (size_t i = 0; i < parts * FTKI_PANEL; i += 8, scales += 8)
            _mm256_store_ps(w->scale[b][0] + i, load_f16(scales));
        for (size_t i = 0; m->mins && i < FTKI_PANEL; i += 8)
            _mm256_store_ps(w->min[b] + i, load_f16(m->mins + (block + b) * FTKI_PANEL + i));
    }
}

/* ---------------------------------------------------------------------- tiles */

/* acc = fma(s, scale * x_scale, acc), then the mins if any. */
INLINE void scale_sums(__m256i (*sum)[2], const float *scale, const float *x_scale, const float *min,
                       const float *scaled_sum, float (*acc)[FTKI_PANEL]) {
    UNROLL for (int c = 0; c < 2; c++) {
        __m256 w_scale = _mm256_load_ps(scale + 8 * c);
        UNROLL for (int r = 0; r < FTKI_ACT_ROWS; r++) {
            __m256 both = _mm256_mul_ps(w_scale, _mm256_set1_ps(x_scale[r])), to = _mm256_load_ps(acc[r] + 8 * c);
            to = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][c]), both, to);
            if (min) to = _mm256_fmadd_ps(_mm256_load_ps(min + 8 * c), _mm256_set1_ps(scaled_sum[r]), to);
            _mm256_store_ps(acc[r] + 8 * c, to);
        }
    }
}

/* Four activations, two of them 16 bits wide. */
INLINE __m256i broadcast(const void *at) {
    int32_t v;
    memcpy(&v, at, 4);
    return _mm256_set1_epi32(v);
}

INLINE void words_tile(const bool halves, const weights *w, const words_block *q, size_t n,
                       float (*acc)[FTKI_PANEL]) {
    const int n_halves = halves ? 2 : 1, n_dots = 8 / n_halves;
    for (size_t b = 0; b < n; b++, q++)
        UNROLL for (int half = 0; half < n_halves; half++) {
            __m256i sum[FTKI_ACT_ROWS][2];
            UNROLL for (int c = 0; c < 2; c++) {
                __m256i minus = load(w->minus_products[b][halves ? half : 2] + 8 * c);
                UNROLL for (int r = 0; r < FTKI_ACT_ROWS; r++) {
                    __m256i own = _mm256_set1_epi32(q->minus_products[halves ? half : 2][r]);
                    sum[r][c] = _mm256_add_epi32(minus, own);
                    keep_order(&sum[r][c]);
                }
            }
            UNROLL for (int d = half * n_dots; d < (half + 1) * n_dots; d++) {
                __m256i even[2], odd[2];
                UNROLL for (int c = 0; c < 2; c++) {
                    even[c] = load(w->words[b][d][c][0]);
                    odd[c] = load(w->words[b][d][c][1]);
                    keep_order(&even[c]); /* in a register: loads are as scarce as operations */
                    keep_order(&odd[c]);
                }
                UNROLL for (int r = 0; r < FTKI_ACT_ROWS; r++) {
                    __m256i q_even = broadcast(q->q[r][0] + 2 * d), q_odd = broadcast(q->q[r][1] + 2 * d);
                    UNROLL for (int c = 0; c < 2; c++) {
                        __m256i x = _mm256_add_epi16(even[c], q_odd), y = _mm256_add_epi16(odd[c], q_even);
                        sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_madd_epi16(x, y));
                        keep_order(&sum[r][c]);
                    }
                }
            }
            scale_sums(sum, w->scale[b][half], q->scale, NULL, NULL, acc);
        }
}

/* shift: the zero is 1 << shift; unused with mins. */
INLINE void bytes_tile(const bool mins, const int shift, const int depth, const weights *w,
                       const ftki_act_block *a, size_t n, float (*acc)[FTKI_PANEL]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t b = 0; b < n; b++, a++) {
        __m256i sum[FTKI_ACT_ROWS][2], pairs[FTKI_ACT_ROWS][2];
        UNROLL for (int d = 0; d < 8; d++) {
            __m256i v[2] = {load(w->bytes[b][d][0]), load(w->bytes[b][d][1])};
            UNROLL for (int r = 0; r < FTKI_ACT_ROWS; r++) {
                __m256i q = broadcast(a->q[r] + 4 * d);
                UNROLL for (int c = 0; c < 2; c++) {
                    __m256i pair = _mm256_maddubs_epi16(v[c], q);
                    pairs[r][c] = d % depth ? _mm256_add_epi16(pairs[r][c], pair) : pair;
                    keep_order(&pairs[r][c]);
                    if (d % depth < depth - 1) continue;
                    __m256i wide = _mm256_madd_epi16(pairs[r][c], ones);
                    sum[r][c] = d < depth ? wide : _mm256_add_epi32(sum[r][c], wide);
                }
            }
        }
        UNROLL for (int r = 0; r < FTKI_ACT_ROWS && !mins; r++)
            UNROLL for (int c = 0; c < 2; c++)
                sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_set1_epi32(a->minus_sum[r] * (1 << shift)));
        scale_sums(sum, w->scale[b][0], a->scale, mins ? w->min[b] : NULL, a->scaled_sum, acc);
    }
}

typedef void tile_fn(const weights *w, const words_block *q, const ftki_act_block *a, size_t n,
                     float (*acc)[FTKI_PANEL]);
#define WORDS(name, halves)                                                                           \
    static void name(const weights *w, const words_block *q, const ftki_act_block *a, size_t n,       \
                     float (*acc)[FTKI_PANEL]) {                                                      \
        (void)a;                                                                                      \
        words_tile(halves, w, q, n, acc);                                                             \
    }
#define BYTES(name, mins, shift, depth)                                                               \
    static void name(const weights *w, const words_block *q, const ftki_act_block *a, size_t n,       \
                     float (*acc)[FTKI_PANEL]) {                                                      \
        (void)q;                                                                                      \
        bytes_tile(mins, shift, depth, w, a, n, acc);                                                 \
    }
WORDS(tile_words, false)
WORDS(tile_words_halves, true)
BYTES(tile_u8_zero16, false, 4, 4)
BYTES(tile_u8_mins, true, 0, 4)
BYTES(tile_u4_zero8, false, 3, 8)
BYTES(tile_u4_mins, true, 0, 8)

static tile_fn *tile_for(const ftki_matrix *w) {
    if (w->kind == FTKI_W_U4) return w->mins ? tile_u4_mins : tile_u4_zero8;
    if (w->mins) return tile_u8_mins;
    return w->block == 16 ? tile_words_halves : w->zero == 128 ? tile_words : tile_u8_zero16;
}

/* -------------------------------------------------------------------- product */

/* Panels [begin, end), at most PANELS, times n_groups <= CHUNK groups of activations into s->acc. */
static void multiply_chunk(const ftki_matrix *m, space *s, const ftki_act_block *acts, size_t n_groups,
                           size_t begin, size_t end) {
    const size_t n_blocks = (size_t)m->cols / FTKI_BLOCK, block_bytes = m->kind == FTKI_W_U8 ? 512 : 256;
    tile_fn *run = tile_for(m);
    const bool words = run == tile_words || run == tile_words_halves;
    memset(s->acc, 0, (end - begin) * sizeof s->acc[0]);
    for (size_t b = 0; b < n_blocks; b += SLICE) {
        size_t n = n_blocks - b < SLICE ? n_blocks - b : SLICE;
        for (size_t g = 0; words && g < n_groups; g++) spread_acts(acts + g * n_blocks + b, s->acts[g], n);
        for (size_t p = begin; p < end; p++) {
            size_t block = p * n_blocks + b;
            (words ? spread_words : spread_bytes)(m, m->data + block * block_bytes, &s->w, n);
            spread_scales(m, block, &s->w, n);
            for (size_t g = 0; g < n_groups; g++)
                run(&s->w, s->acts[g], acts + g * n_blocks + b, n, s->acc[p - begin][g]);
        }
    }
}

void ftki_matmul_many_avx2(const ftki_matrix *m, const ftki_act_block *acts, int32_t n_groups,
                           int32_t panel_begin, int32_t panel_end, float *y, size_t y_stride, bool add) {
    const size_t n_blocks = (size_t)m->cols / FTKI_BLOCK;
    space s;
    for (int32_t at = 0; at < n_groups; at += CHUNK)
        for (int32_t begin = panel_begin; begin < panel_end; begin += PANELS) {
            int32_t groups = n_groups - at < CHUNK ? n_groups - at : CHUNK;
            int32_t end = panel_end - begin < PANELS ? panel_end : begin + PANELS;
            multiply_chunk(m, &s, acts + (size_t)at * n_blocks, (size_t)groups, (size_t)begin, (size_t)end);
            for (int32_t p = begin; p < end; p++) {
                target t = target_at(m, p, y + (size_t)at * FTKI_ACT_ROWS * y_stride, y_stride, add);
                for (int32_t r = 0; r < groups * FTKI_ACT_ROWS; r++) {
                    const float *row = s.acc[p - begin][r / FTKI_ACT_ROWS][r % FTKI_ACT_ROWS];
                    store8(&t, r, 0, _mm256_load_ps(row));
                    store8(&t, r, 1, _mm256_load_ps(row + 8));
                }
            }
        }
}

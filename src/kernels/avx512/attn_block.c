// SPDX-License-Identifier: Apache-2.0
/* INT8 attention of 16 query rows at once, one row per lane, so that nothing of the softmax goes
 * across lanes. Both products are VNNI dot products whose unsigned side (queries, weights) stays
 * in registers and whose signed side (keys, values) is broadcast from the page, 4 bytes at a
 * time, as a memory operand: one instruction per 16 x 4 multiply-adds and nothing else.
 *
 * Per page: the scores t [32 keys][16 rows] go through a scratch of 2 KiB; weights become codes
 * [8 key groups][16 rows][4] in registers; out is kept transposed, [dim][16 rows], until the
 * segment ends. */
#include "kernels/avx512/attn.h"

#include "kernels/avx512/exp.h"
#include "kernels/avx512/lanes.h"
#include "kernels/kv_layout.h"

enum { LANES = 16 };

typedef struct block {
    float out[FTKI_MAX_HEAD_DIM][LANES];
    float t[FTKI_PAGE][LANES];       /* scores of the page; integers until all dims are in */
    __m512 max, sum, q_scale;
    __m512i begin, end;              /* entries each row sees */
    int32_t all_begin, all_end;      /* seen by every row */
    int32_t any_begin, any_end;      /* seen by some row */
    int32_t dim;
    const uint8_t *q;                /* [dim/4][16 rows][4] */
} __attribute__((aligned(64))) block;

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* sum += 16 rows' four unsigned codes in `codes` times the four signed ones at `signed4`, which
 * all rows share. */
ALWAYS_INLINE __m512i dot(__m512i sum, __m512i codes, const int8_t *signed4) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(codes), "m"(*(const int32_t *)(const void *)signed4));
    return sum;
}

/* t of keys j .. j + 7 of a page; returns the larger of `top` and each row's largest of them. */
ALWAYS_INLINE __m512 score_keys(block *b, const unsigned char *page, int32_t j, const float *log,
                                const __mmask16 *seen, __m512 top) {
    const int32_t groups = b->dim / 4;
    const int8_t *k = (const int8_t *)page + FTKI_PAGE_INT8_CODES + j / 16 * groups * 64 + j % 16 * 4;
    const int32_t *start = ftki_page_k_start(page) + j;
    const float *k_scale = ftki_page_k_scale(page) + j;
    __m512i acc[8];
    UNROLL for (int32_t i = 0; i < 8; i++) acc[i] = _mm512_set1_epi32(start[i]);
    for (int32_t g = 0; g < groups; g += 4)
        UNROLL for (int32_t h = 0; h < 4; h++) {
            __m512i q = _mm512_load_si512(b->q + (g + h) * 64);
            UNROLL for (int32_t i = 0; i < 8; i++) acc[i] = dot(acc[i], q, k + (g + h) * 64 + i * 4);
        }
    UNROLL for (int32_t i = 0; i < 8; i++) {
        __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(acc[i]), _mm512_set1_ps(k_scale[i]));
        t = _mm512_fmadd_ps(t, b->q_scale, _mm512_set1_ps(log[j + i]));
        if (seen) t = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), seen[j + i], t);
        _mm512_store_ps(b->t[j + i], t);
        top = _mm512_max_ps(top, t);
    }
    return top;
}

/* t of a whole page; returns each row's largest. */
ALWAYS_INLINE __m512 score_page(block *b, const unsigned char *page, const float *log,
                                const __mmask16 *seen) {
    __m512 top = _mm512_set1_ps(-INFINITY);
    for (int32_t j = 0; j < FTKI_PAGE; j += 8) top = score_keys(b, page, j, log, seen, top);
    return top;
}

static void grow(block *b, __m512 grown) {
    __m512 factor = exp2_avx512(_mm512_sub_ps(b->max, grown));
    b->sum = _mm512_mul_ps(b->sum, factor);
    b->max = grown;
    for (int32_t d = 0; d < b->dim; d++)
        _mm512_store_ps(b->out[d], _mm512_mul_ps(_mm512_load_ps(b->out[d]), factor));
}

/* Weights of keys j .. j + 3: their codes packed; sums[i] = fma(e_(j + i), inverse, sums[i]), or
 * the product alone when `first`. Adding 2^23 rounds to an integer in the low byte. */
ALWAYS_INLINE __m512i weigh(const block *b, int32_t j, __m512 top, const float *inverse,
                            const bool first, __m512 *sums) {
    const __m512i low_byte = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i c[4];
    UNROLL for (int32_t i = 0; i < 4; i++) {
        __m512 e = exp2_code_avx512(_mm512_sub_ps(_mm512_load_ps(b->t[j + i]), top));
        __m512 factor = _mm512_set1_ps(inverse[j + i]);
        sums[i] = first ? _mm512_mul_ps(e, factor) : _mm512_fmadd_ps(e, factor, sums[i]);
        c[i] = _mm512_castps_si512(_mm512_fmadd_ps(e, _mm512_set1_ps(255.0f), _mm512_set1_ps(0x1p23f)));
    }
    c[0] = _mm512_mask_shuffle_epi8(c[0], 0x2222222222222222, c[1], low_byte);
    c[0] = _mm512_mask_shuffle_epi8(c[0], 0x4444444444444444, c[2], low_byte);
    return _mm512_mask_shuffle_epi8(c[0], 0x8888888888888888, c[3], low_byte);
}

ALWAYS_INLINE void add4(__m512 *into, const __m512 *from) {
    UNROLL for (int32_t i = 0; i < 4; i++) into[i] = _mm512_add_ps(into[i], from[i]);
}

/* Codes of the page; returns the sum of its weights, a tree of halves over x_0 .. x_15. */
ALWAYS_INLINE __m512 weigh_page(const block *b, __m512 top, const float *inverse, __m512i *codes) {
    __m512 x[4], y[4], z[4];
    codes[0] = weigh(b, 0, top, inverse, true, x);
    codes[4] = weigh(b, 16, top, inverse, false, x);
    codes[2] = weigh(b, 8, top, inverse, true, y);
    codes[6] = weigh(b, 24, top, inverse, false, y);
    add4(x, y);
    codes[1] = weigh(b, 4, top, inverse, true, y);
    codes[5] = weigh(b, 20, top, inverse, false, y);
    codes[3] = weigh(b, 12, top, inverse, true, z);
    codes[7] = weigh(b, 28, top, inverse, false, z);
    add4(y, z);
    add4(x, y);
    return _mm512_add_ps(_mm512_add_ps(x[0], x[2]), _mm512_add_ps(x[1], x[3]));
}

ALWAYS_INLINE void add_values(block *b, const int8_t *v, const __m512i *codes, __m512 unit) {
    for (int32_t d = 0; d < b->dim; d += 16, v += 512) {
        __m512i acc[16];
        UNROLL for (int32_t i = 0; i < 16; i++) acc[i] = _mm512_setzero_si512();
        UNROLL for (int32_t g = 0; g < 8; g++)
            UNROLL for (int32_t i = 0; i < 16; i++) acc[i] = dot(acc[i], codes[g], v + g * 64 + i * 4);
        UNROLL for (int32_t i = 0; i < 16; i++) {
            float *out = b->out[d + i];
            _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[i]), unit, _mm512_load_ps(out)));
        }
    }
}

ALWAYS_INLINE void attend(block *b, const unsigned char *page, const float *log, const float *inverse,
                          const __mmask16 *seen) {
    __m512 top = score_page(b, page, log, seen), limit = _mm512_add_ps(b->max, _mm512_set1_ps(FTKI_ATTN_SLACK));
    __mmask16 beyond = _mm512_cmp_ps_mask(top, limit, _CMP_GT_OQ);
    if (beyond) grow(b, _mm512_mask_mov_ps(b->max, beyond, top));
    __m512 f = exp2_avx512(_mm512_sub_ps(top, b->max));
    __m512i codes[8];
    b->sum = _mm512_fmadd_ps(weigh_page(b, top, inverse, codes), f, b->sum);
    const int8_t *v = (const int8_t *)page + FTKI_PAGE_INT8_CODES + FTKI_PAGE * b->dim;
    add_values(b, v, codes, _mm512_mul_ps(f, _mm512_set1_ps(1.0f / 255.0f)));
}

static void look(const block *b, int32_t first, __mmask16 *seen) {
    for (int32_t j = 0; j < FTKI_PAGE; j++) {
        __m512i entry = _mm512_set1_epi32(first + j);
        seen[j] = _mm512_cmple_epi32_mask(b->begin, entry) & _mm512_cmpgt_epi32_mask(b->end, entry);
    }
}

/* Lanes past the last row repeat its visibility, so that they never make a page a border one. */
static void open_block(block *b, const ftki_attn *a, const void *prepared, int32_t row, int32_t n) {
    int32_t begin[LANES], end[LANES], rows = a->n_tokens * a->group;
    b->dim = ftki_kv_dim(a->head_dim);
    b->q = ftki_prepared_codes(prepared, rows) + (size_t)row * (size_t)b->dim;
    b->q_scale = _mm512_load_ps(ftki_prepared_scale(prepared) + row);
    for (int32_t i = 0; i < LANES; i++) {
        int32_t token = (row + (i < n ? i : n - 1)) / a->group;
        begin[i] = a->begin ? a->begin[token] : 0;
        end[i] = a->end[token];
    }
    b->begin = _mm512_loadu_si512(begin);
    b->end = _mm512_loadu_si512(end);
    b->any_begin = _mm512_reduce_min_epi32(b->begin);
    b->all_begin = _mm512_reduce_max_epi32(b->begin);
    b->all_end = _mm512_reduce_min_epi32(b->end);
    b->any_end = _mm512_reduce_max_epi32(b->end);
    b->max = _mm512_set1_ps(-INFINITY);
    b->sum = _mm512_setzero_ps();
    for (int32_t d = 0; d < b->dim; d++) _mm512_store_ps(b->out[d], _mm512_setzero_ps());
}

static void close_block(block *b, int32_t row, int32_t n, const ftki_attn_state *state) {
    __mmask16 held = (__mmask16)((1u << n) - 1);
    _mm512_mask_storeu_ps(state->max + row, held, b->max);
    _mm512_mask_storeu_ps(state->sum + row, held, b->sum);
    for (int32_t d = 0; d < b->dim; d += LANES) {
        __m512 x[LANES];
        for (int32_t i = 0; i < LANES; i++) x[i] = _mm512_load_ps(b->out[d + i]);
        transpose16_avx512(x);
        for (int32_t r = 0; r < n; r++)
            _mm512_storeu_ps(state->out + (size_t)(row + r) * (size_t)b->dim + d, x[r]);
    }
}

void ftki_attn_block_avx512(const ftki_attn *a, const void *prepared, int32_t row, int32_t n,
                            int32_t page_begin, int32_t page_end, const attn_sides *sides,
                            const ftki_attn_state *state) {
    block b;
    __mmask16 seen[FTKI_PAGE];
    open_block(&b, a, prepared, row, n);
    for (int32_t page = page_begin; page < page_end; page++) {
        int32_t first = page * FTKI_PAGE, last = first + FTKI_PAGE;
        const float *log = sides->log[page - page_begin], *inverse = sides->inverse[page - page_begin];
        if (last <= b.any_begin || first >= b.any_end) continue;
        if (first >= b.all_begin && last <= b.all_end) {
            attend(&b, a->pages[page], log, inverse, NULL);
        } else {
            look(&b, first, seen);
            attend(&b, a->pages[page], log, inverse, seen);
        }
    }
    close_block(&b, row, n, state);
}

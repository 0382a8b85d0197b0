// SPDX-License-Identifier: Apache-2.0
/* The kernels: what each computes (the contract), the packed layouts they share, and the table
 * through which they are called. A table is a value: a process may hold the scalar and the
 * AVX-512 one side by side. The scalar path is the specification.
 *
 * Rounding. Sums of integer products are exact. Every float operation of a contract happens in
 * the written order, fused where `fma` is written, with outputs in the lanes of a vector; so all
 * levels give the same bits unless a contract says otherwise, and a row's result does not depend
 * on how many rows are computed with it (prefill, decode and any chunking agree).
 *
 * Nothing here allocates or fails; sizes are validated by the callers once, when a model opens. */
#ifndef FTKI_KERNELS_H
#define FTKI_KERNELS_H

#include "format/gguf.h"

enum {
    FTKI_PANEL = 16,   /* output rows that share a vector */
    FTKI_BLOCK = 32,   /* inputs that share an activation scale */
    FTKI_PAGE = 32,    /* KV entries of a page */
    FTKI_SEGMENT = 16, /* pages whose attention is computed before it is merged */
    FTKI_ALIGN = 64,   /* alignment of packed data, activations and pages, bytes */
    FTKI_MAX_HEAD_DIM = 512 /* sums of code products stay exact in a float */
};

/* ------------------------------------------------------------ weight matrices */

/* How a matrix W [rows, cols] of a GGUF tensor (dims[0] = cols, dims[1] = rows) is kept.
 *   U8:  weight = scale * (u - zero) with u in 0..255, per block of 32 or 16 inputs, or
 *        weight = scale * u + min when mins != NULL (zero is 0 then)
 *   U4:  the same with u in 0..15, two to a byte
 *   floats as they are.
 * Codes are below 2 * zero, or below 32 with mins.
 * Q8_0 -> U8 zero 128; Q6_K -> U8 zero 32, block 16; Q5_0 -> U8 zero 16; Q5_1, Q5_K -> U8 with
 * mins; Q4_0 -> U4 zero 8; Q4_1, Q4_K -> U4 with mins. */
typedef enum ftki_wkind { FTKI_W_U8, FTKI_W_U4, FTKI_W_F16, FTKI_W_BF16, FTKI_W_F32 } ftki_wkind;

/* Packed by panels of 16 rows; missing rows of the last panel are zero (scale 0).
 *   U8 data:   [n_panels][cols/4][16 rows][4 inputs] bytes
 *   U4 data:   [n_panels][cols/32][4][16 rows][4 inputs] bytes: byte (g, r, i) of a block holds
 *              input 4g+i in its low half and input 16+4g+i in its high half
 *   floats:    [n_panels][cols][16 rows]
 *   scales, mins: F16 [n_panels][cols/block][16 rows] */
typedef struct ftki_matrix {
    ftki_wkind kind;
    ftki_type source;     /* type in the file, for reports */
    int32_t rows, cols;   /* outputs, inputs; cols is a multiple of 32 for U8 and U4 */
    int32_t n_panels;     /* rows / 16 rounded up */
    int32_t block;        /* inputs per weight scale: 32 or 16 (U8, U4) */
    int32_t zero;         /* subtracted from u */
    const uint8_t *data;
    const uint16_t *scales;
    const uint16_t *mins; /* NULL: none */
} ftki_matrix;

/* Bytes that packing a tensor of this type and shape takes (multiple of 64); 0 when it cannot be
 * packed (cols not a multiple of 32 for quantised types, overflow). */
size_t ftki_pack_bytes(ftki_type type, int64_t rows, int64_t cols);
/* Lays out *out over `memory` [ftki_pack_bytes] without filling it. */
void ftki_pack_begin(ftki_matrix *out, ftki_type type, int32_t rows, int32_t cols, void *memory);
/* Fills panels [begin, end) from the tensor's blocks `src`; panels may be filled by different
 * threads at once. `row_map` [rows] gives the source row of each output row, NULL: the same. */
void ftki_pack_panels(ftki_matrix *m, const void *src, const int32_t *row_map, int32_t begin,
                      int32_t end);
/* Row `row` of the matrix as floats, dst [cols]: for embeddings. */
void ftki_matrix_row(const ftki_matrix *m, int32_t row, float *dst);
/* Bytes read to multiply once with the whole matrix. */
size_t ftki_matrix_bytes(const ftki_matrix *m);

/* Activations X [rows, cols] as the matrix kernels want them: blocks of 4 rows x 32 inputs with
 * all that a kernel reads about them, so that one pointer and small offsets reach everything.
 * Per row and block
 *   scale       max|x| / 127; 0 where max|x| < 2^-100, the block then counts as zeros
 *   q           round-to-nearest-even(x * (1 / scale)), in -127..127
 *   scaled_sum  scale * (sum of q), the factor of a weight block's min
 *   minus_sum   -(sum of q), minus_first -(sum of the first 16 q): times a weight's zero they
 *               start the integer sum
 * NaN counts as 0, infinities as the largest finite value. */
enum { FTKI_ACT_ROWS = 4 };
typedef struct ftki_act_block {
    int8_t q[FTKI_ACT_ROWS][FTKI_BLOCK];
    float scale[FTKI_ACT_ROWS];
    float scaled_sum[FTKI_ACT_ROWS];
    int32_t minus_sum[FTKI_ACT_ROWS];
    int32_t minus_first[FTKI_ACT_ROWS];
} ftki_act_block;

/* Memory is the caller's: blocks of ftki_acts_bytes, 64-byte aligned. Row r's block b is row
 * r % 4 of blocks[(r / 4) * (cols / 32) + b], whatever `rows` is; rows that were not quantised
 * may hold anything. */
typedef struct ftki_acts {
    int32_t rows, cols;
    int32_t first;          /* rows before it are not multiplied: row r of a product is row
                               first + r of blocks and f */
    ftki_act_block *blocks; /* [(first + rows)/4 rounded up][cols/32]; not read for float weights */
    const float *f;         /* [first + rows][f_stride] the floats themselves, for float weights;
                               NULL unless needed */
    size_t f_stride;
} ftki_acts;
static inline size_t ftki_acts_bytes(int32_t rows, int32_t cols) {
    size_t groups = ((size_t)rows + FTKI_ACT_ROWS - 1) / FTKI_ACT_ROWS;
    return groups * ((size_t)cols / FTKI_BLOCK) * sizeof(ftki_act_block);
}

/* ------------------------------------------------------------------- KV pages */

typedef enum ftki_kv_format { FTKI_KV_INT8, FTKI_KV_F16, FTKI_KV_F32 } ftki_kv_format;

/* A page holds 32 entries of one layer and one KV head. dim = head_dim rounded up to a multiple
 * of 16, the rest zero. Layout from the page's start, in this order, 64-byte aligned pieces:
 *   position [32] i32        position ids
 *   k_scale  [32] f32        INT8 only: max|k| / 127
 *   v_log    [32] f32        INT8 only: log2(max|v| / 127); -30 for an entry of zeros
 *   k_start  [32] i32        INT8 only: -128 * sum of the entry's key codes, what a product with
 *                            codes + 128 starts from
 *   INT8:  k [2][dim/4][16][4] i8: dims 4g..4g+3 of entry 16h+j at [h][g][j]
 *          v [dim/16][8][16][4] i8: dim 16b+d of entries 4g..4g+3 at [b][g][d]
 *   F16, F32:  k [dim][32], v [32][dim]
 * INT8 keys, and the queries they meet, are rotated (rotate.h) before they become codes.
 * Codes are in -127..127. Slots never written hold zeros or an old entry: numbers in a page are
 * always finite. */
static inline int32_t ftki_kv_dim(int32_t head_dim) { return (head_dim + 15) & ~15; }
size_t ftki_kv_page_bytes(ftki_kv_format format, int32_t head_dim);
/* Offset of the codes k and v from the page's start. */
size_t ftki_kv_k_offset(ftki_kv_format format);
size_t ftki_kv_v_offset(ftki_kv_format format, int32_t head_dim);

/* One call of attention: the query rows of one KV head's group against a run of pages.
 * Row r is query token r / group, head r % group; its query is
 * q + (r / group) * q_stride + (r % group) * head_dim, rotated, NOT scaled.
 * Row r sees entries [begin[r / group], end[r / group]) of the head's entry list.
 * Entry e is slot e % 32 of pages[e / 32]. */
typedef struct ftki_attn {
    ftki_kv_format format;
    int32_t head_dim;
    int32_t n_tokens, group;     /* rows = n_tokens * group */
    const float *q;              /* [n_tokens][q_stride], first head of the group */
    size_t q_stride;
    float scale;                 /* on the scores, usually 1/sqrt(head_dim) */
    const unsigned char *const *pages;
    const int32_t *begin, *end;  /* [n_tokens], entries; begin may be NULL: 0 */
    const float *const *bias;    /* per page, [32] added to the scaled scores (log of a merged
                                    entry's size); NULL: none; an element may be NULL. A bias of
                                    0 gives the bits of no bias; -INFINITY hides the entry */
} ftki_attn;

/* Queries prepared once per call and used for all its segments; memory is the caller's:
 * [ftki_attn_prepared_bytes], 64-byte aligned. Scores are kept in units of log 2, so that
 * exponentials are powers of two: unit = scale * log2(e).
 *   INT8: q rotated as keys are; codes round-to-nearest-even(q * (127 / max|q|)),
 *         q_scale = max|q| / 127 * unit per row
 *   floats: q * unit */
size_t ftki_attn_prepared_bytes(ftki_kv_format format, int32_t head_dim, int32_t rows);

/* Running softmax state of rows: out [rows][dim], unnormalised; max [rows], the reference that
 * weights are relative to: the largest score in units of log 2 (INT8: of score + v_log) or up to 8
 * less; sum [rows].
 * Nothing seen yet: max = -INFINITY, sum = 0, out = 0. */
typedef struct ftki_attn_state {
    float *out;
    float *max;
    float *sum;
} ftki_attn_state;

/* ------------------------------------------------------------------- the table */

typedef struct ftki_kernels {
    const char *name; /* "scalar", "avx2", "avx512", "neon", "i8mm" */

    /* Fills rows [begin, end) of x->blocks from src [end][src_stride]. Different threads may
     * fill different rows at once. */
    void (*quantize)(const ftki_acts *x, const float *src, size_t src_stride, int32_t begin,
                     int32_t end);

    /* y[r][o] (+)= sum over inputs of w[o][i] * x[first + r][i], for r in [0, x->rows) and the outputs
     * of panels [panel_begin, panel_end); y [x->rows][y_stride]. `add` adds to what y holds.
     * Per weight block b (32 inputs, or 16), in ascending order, with
     *   s = integer sum over the block of (u - zero) * q, exact
     *   acc = fma((float)s, w_scale[b] * x_scale, acc), x_scale of the 32 inputs around b
     *   with mins:  acc = fma(min[b], scaled_sum, acc) after it (blocks of 32 only)
     * starting from acc = 0; the result is acc, or y + acc when adding.
     * Float weights: acc = fma(w, x, acc) over inputs in ascending order. */
    void (*matmul)(const ftki_matrix *w, const ftki_acts *x, int32_t panel_begin,
                   int32_t panel_end, float *y, size_t y_stride, bool add);

    /* y = x / sqrt(mean(x^2) + eps) * weight, n elements; y may be x. Sum of squares: 16 partial
     * sums (element i in partial i % 16, fma), added as a tree of halves. weight may be NULL: 1 */
    void (*rms_norm)(const float *x, const float *weight, float eps, int32_t n, float *y);
    /* Rotates one head in place: x [head_dim]; cos, sin [head_dim/2]. Pair p is (2p, 2p+1) when
     * interleaved, (p, p + head_dim/2) otherwise:
     * (a, b) -> (a*c - b*s, a*s + b*c) as fma(a, c, -(b*s)), fma(a, s, b*c). */
    void (*rope)(float *x, const float *cos, const float *sin, int32_t head_dim, bool interleaved);
    /* y[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + exp(-g)); y may be gate. */
    void (*silu_mul)(const float *gate, const float *up, int32_t n, float *y);
    /* The same with gelu, tanh form: 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). */
    void (*gelu_mul)(const float *gate, const float *up, int32_t n, float *y);
    /* y = (x - mean) / sqrt(variance + eps) * weight + bias, n elements; y may be x. Mean and variance from
     * sums of x and, after it, of (x - mean)^2 in 16 partial sums as in rms_norm (the first plainly added);
     * y = fma((x - mean) * factor, weight, bias). */
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *y);
    /* y[i] = gelu(x[i] + bias[i]), exact form as in erf.h; bias may be NULL, y may be x. */
    void (*gelu)(const float *x, const float *bias, int32_t n, float *y);
    /* y += x */
    void (*add)(const float *x, int32_t n, float *y);

    /* Writes key and value [head_dim] of one entry into slot `slot` of a page (key rotated). The
     * position is written by the cache. */
    void (*kv_write)(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                     const float *key, const float *value);
    /* Reads them back as floats, key and value [head_dim]; either may be NULL. */
    void (*kv_read)(ftki_kv_format format, int32_t head_dim, const unsigned char *page,
                    int32_t slot, float *key, float *value);

    void (*attn_prepare)(const ftki_attn *a, void *prepared);
    /* Attends to pages [page_begin, page_end), at most FTKI_SEGMENT, starting from "nothing seen
     * yet"; overwrites state [rows]. Rows that see nothing there stay at nothing.
     * Pages in ascending order. For each row that sees an entry of the page; j over its 32
     * entries; b_j = bias_j * log2(e), 0 without; exp2 and exp2_code are exp.h's; `new` is
     * the page's top where that exceeds max + 8, else max as it was; out and sum are multiplied by
     * exp2(max - new) first.
     *   INT8:   t_j = fma((float)(q . k_j, exact) * k_scale_j, q_scale, v_log_j + b_j)
     *           top = max t_j over seen entries, e_j = exp2_code(t_j - top), 0 unseen
     *           x_j = fma(e_(j+16), exp2(-v_log_(j+16)), e_j * exp2(-v_log_j)) for j < 16,
     *           added as a tree of halves: x_j + x_(j+8), then + 4, + 2, + 1, joins by
     *           sum = fma(that, f, sum) with f = exp2(top - new)
     *           c_j = fma(e_j, 255, 2^23) - 2^23, an integer in 0..255
     *           out_d = fma((float)(sum of c_j v_jd, exact), f * (1/255), out_d)
     *           So weights times value scales have 8 bits relative to the page's largest.
     *   floats: s_j = (sum over d ascending of fma(q_d, k_jd)) + b_j, top = max s_j
     *           p_j = exp2(s_j - new), 0 unseen; sum += p_j as a tree of halves: + 16, + 8, ...
     *           out_d = fma(p_j, v_jd, out_d), j ascending */
    void (*attn_segment)(const ftki_attn *a, const void *prepared, int32_t page_begin,
                         int32_t page_end, const ftki_attn_state *state);
    /* into (+)= from, for rows [0, rows): the running-softmax merge. new = max of both maxes,
     * x = x_into * exp2(max_into - new) + x_from * exp2(max_from - new) as
     * fma(x_from, f_from, x_into * f_into) for sum and out; nothing when `from` saw nothing. */
    void (*attn_merge)(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                       int32_t dim);
    /* y[r][0..head_dim) = out * (1 / sum) (0 where sum is 0); row r goes to
     * y + (r / group) * y_stride + (r % group) * head_dim. */
    void (*attn_finish)(const ftki_attn *a, const ftki_attn_state *state, float *y, size_t y_stride);
    /* By-product for reduction: adds to columns [n_entries] the softmax weights that the rows give
     * to each entry, from the rows' final max and sum (state after the last merge):
     * columns[e] = fma(p, 1 / sum, columns[e]), rows ascending, p = exp2(min(s - max, 128)) with
     * INT8: s = fma((float)(q . k) * k_scale, q_scale, b). */
    void (*attn_columns)(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                         int32_t n_entries, float *columns);
    /* norms[e] = L2 norm of the values of entries [0, n_entries). INT8: exp2(v_log) * sqrt of the
     * exact sum of squared codes; floats: 16 partial sums as in rms_norm, then sqrt. */
    void (*value_norms)(ftki_kv_format format, int32_t head_dim, const unsigned char *const *pages,
                        int32_t n_entries, float *norms);

    /* The roofline. Multiplies and adds `iterations` rounds of independent chains of the level's
     * INT8 dot product in registers alone; returns the operations done, a multiply and an add
     * being two. */
    uint64_t (*dot_peak)(int64_t iterations);
    /* Sum of words [n] modulo 2^64, read as wide as the level can; 64-byte aligned. */
    uint64_t (*sum_words)(const uint64_t *words, size_t n);
} ftki_kernels;

/* The table called `name`: "scalar", "avx2", "avx512"; "neon", "i8mm" on ARM. NULL: the one the
 * environment variable FREETOKEN_ISA names, or else the best this machine can run. A known level this machine
 * cannot run is FTK_UNSUPPORTED, an unknown one FTK_INVALID_ARGUMENT, both naming the choices. */
ftk_status ftki_kernels_choose(const ftki_kernels **out, const char *name, ftk_error *e);
/* Level i of those this machine can run, ascending from scalar; NULL past the end. */
const ftki_kernels *ftki_kernels_at(size_t i);
/* CPU features in words; static. */
const char *ftki_cpu_features(void);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Planted bugs in attention, the cache's entries and the elementwise operations; listed in
 * mutants.def. Each lets the scalar kernel work on something falsified, or falsifies its result. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exp.h"
#include "kernels/harness.h"
#include "kernels/kv_layout.h"
#include "kernels/rotate.h"

#define X(slot, name, as_scalar) FTKI_SLOT_TYPE(slot) mutant_##name;
#include "kernels/mutants.def"

/* ------------------------------------------------------------- elementwise */

void mutant_rms_norm_forgets_eps(const float *x, const float *weight, float eps, int32_t n, float *y) {
    (void)eps;
    ftki_rms_norm_scalar(x, weight, 0.0f, n, y);
}

void mutant_rms_norm_adds_in_order(const float *x, const float *weight, float eps, int32_t n, float *y) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i++) sum = fmaf(x[i], x[i], sum);
    float factor = 1.0f / sqrtf(sum / (float)n + eps);
    for (int32_t i = 0; i < n; i++) y[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

void mutant_rms_norm_skips_tail(const float *x, const float *weight, float eps, int32_t n, float *y) {
    if (n < 16) ftki_rms_norm_scalar(x, weight, eps, n, y);
    else ftki_rms_norm_scalar(x, weight, eps, n & ~15, y);
}

void mutant_rms_norm_ignores_weight(const float *x, const float *weight, float eps, int32_t n, float *y) {
    (void)weight;
    ftki_rms_norm_scalar(x, NULL, eps, n, y);
}

void mutant_rope_wrong_pairs(float *x, const float *cosines, const float *sines, int32_t dim, bool interleaved) {
    ftki_rope_scalar(x, cosines, sines, dim, !interleaved);
}

void mutant_rope_turns_back(float *x, const float *cosines, const float *sines, int32_t dim, bool interleaved) {
    float back[128];
    for (int32_t i = 0; i < dim / 2 && i < 128; i++) back[i] = -sines[i];
    ftki_rope_scalar(x, cosines, back, dim, interleaved);
}

void mutant_silu_mul_forgets_up(const float *gate, const float *up, int32_t n, float *y) {
    (void)up;
    for (int32_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + ftki_exp2_clamped(gate[i] * -FTKI_LOG2E));
}

/* Without the clamp the exponent wraps. */
void mutant_silu_mul_overflows(const float *gate, const float *up, int32_t n, float *y) {
    for (int32_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + ftki_exp2(gate[i] * -FTKI_LOG2E)) * up[i];
}

void mutant_gelu_mul_is_silu(const float *gate, const float *up, int32_t n, float *y) {
    ftki_silu_mul_scalar(gate, up, n, y);
}

void mutant_gelu_mul_writes_beyond(const float *gate, const float *up, int32_t n, float *y) {
    ftki_gelu_mul_scalar(gate, up, n, y);
    y[n] = 0.0f;
}

void mutant_add_skips_last(const float *x, int32_t n, float *y) { ftki_add_scalar(x, n - 1, y); }

/* -------------------------------------------------------------------- cache */

void mutant_kv_write_next_slot(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                               const float *key, const float *value) {
    ftki_kv_write_scalar(format, head_dim, page, (slot + 1) % FTKI_PAGE, key, value);
}

/* Rotating first undoes the rotation. */
void mutant_kv_write_does_not_rotate(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                                     const float *key, const float *value) {
    float x[FTKI_MAX_HEAD_DIM] = {0};
    memcpy(x, key, (size_t)head_dim * sizeof *x);
    if (head_dim % 16 == 0) ftki_rotate(x, head_dim);
    ftki_kv_write_scalar(format, head_dim, page, slot, x, value);
}

void mutant_kv_write_forgets_start(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                                   const float *key, const float *value) {
    ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
    if (format == FTKI_KV_INT8) ftki_page_k_start(page)[slot] /= 128;
}

void mutant_kv_write_leaves_padding(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                                    const float *key, const float *value) {
    size_t bytes = ftki_kv_page_bytes(format, head_dim), size = ftki_kv_element_bytes(format);
    int32_t dim = ftki_kv_dim(head_dim);
    unsigned char *before = malloc(bytes);
    memcpy(before, page, bytes);
    ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
    for (int32_t d = head_dim; d < dim; d++) {
        size_t v = format == FTKI_KV_INT8 ? ftki_v_code(slot, d) : (size_t)(slot * dim + d);
        size_t at = ftki_kv_v_offset(format, head_dim) + v * size;
        memcpy(page + at, before + at, size);
    }
    free(before);
}

void mutant_kv_write_allows_minus_128(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                                      const float *key, const float *value) {
    ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
    if (format != FTKI_KV_INT8) return;
    for (int32_t d = 0; d < head_dim; d++) {
        unsigned char *code = page + ftki_kv_v_offset(format, head_dim) + ftki_v_code(slot, d);
        if (*code == 0x81) *code = 0x80; /* -127 */
    }
}

void mutant_kv_write_keeps_infinity(ftki_kv_format format, int32_t head_dim, unsigned char *page, int32_t slot,
                                    const float *key, const float *value) {
    ftki_kv_write_scalar(format, head_dim, page, slot, key, value);
    float *v = (float *)(void *)(page + ftki_kv_v_offset(format, head_dim));
    for (int32_t d = 0; d < head_dim; d++)
        if (format == FTKI_KV_F32) v[slot * ftki_kv_dim(head_dim) + d] = value[d];
}

void mutant_kv_read_forgets_scale(ftki_kv_format format, int32_t head_dim, const unsigned char *page, int32_t slot,
                                  float *key, float *value) {
    ftki_kv_read_scalar(format, head_dim, page, slot, key, value);
    float scale = format == FTKI_KV_INT8 ? exp2f(-ftki_page_v_log(page)[slot]) : 1.0f;
    for (int32_t d = 0; value && d < head_dim; d++) value[d] *= scale;
}

void mutant_kv_read_does_not_rotate(ftki_kv_format format, int32_t head_dim, const unsigned char *page, int32_t slot,
                                    float *key, float *value) {
    ftki_kv_read_scalar(format, head_dim, page, slot, key, value);
    if (key && format == FTKI_KV_INT8 && head_dim % 16 == 0) ftki_rotate(key, head_dim);
}

/* The fault is to be seen by the harness, not by a sanitizer before it. */
__attribute__((no_sanitize("undefined")))
void mutant_kv_read_touches_both(ftki_kv_format format, int32_t head_dim, const unsigned char *page, int32_t slot,
                                 float *key, float *value) {
    ftki_kv_read_scalar(format, head_dim, page, slot, key, value);
    *key += 0.0f; /* a key nobody asked for */
}

void mutant_value_norms_forgets_root(ftki_kv_format format, int32_t head_dim, const unsigned char *const *pages,
                                     int32_t n_entries, float *norms) {
    ftki_value_norms_scalar(format, head_dim, pages, n_entries, norms);
    for (int32_t e = 0; e < n_entries; e++) norms[e] *= norms[e];
}

void mutant_value_norms_reads_keys(ftki_kv_format format, int32_t head_dim, const unsigned char *const *pages,
                                   int32_t n_entries, float *norms) {
    float key[FTKI_MAX_HEAD_DIM];
    for (int32_t e = 0; e < n_entries; e++) {
        ftki_kv_read_scalar(format, head_dim, pages[e / 32], e % 32, key, NULL);
        norms[e] = 0.0f;
        for (int32_t d = 0; d < head_dim; d++) norms[e] += key[d] * key[d];
        norms[e] = sqrtf(norms[e]) * (format == FTKI_KV_INT8 ? 1.1f : 1.0f);
    }
}

/* ---------------------------------------------------------------- attention */

void mutant_attn_prepare_forgets_scale(const ftki_attn *a, void *prepared) {
    ftki_attn b = *a;
    b.scale = 1.0f;
    ftki_attn_prepare_scalar(&b, prepared);
}

void mutant_attn_prepare_other_head(const ftki_attn *a, void *prepared) {
    ftki_attn b = *a;
    if (a->n_tokens > 1) b.q_stride = (size_t)(a->group * a->head_dim) - (a->group > 1 ? (size_t)a->head_dim : 1);
    ftki_attn_prepare_scalar(&b, prepared);
}

void mutant_attn_prepare_natural_log(const ftki_attn *a, void *prepared) {
    ftki_attn b = *a;
    b.scale /= FTKI_LOG2E;
    ftki_attn_prepare_scalar(&b, prepared);
}

/* The scalar segment with ranges changed for every token. */
static void with_ranges(const ftki_attn *a, const void *prepared, int32_t page_begin, int32_t page_end,
                        const ftki_attn_state *state, int32_t more, bool all) {
    ftki_attn b = *a;
    int32_t end[64], begin[64];
    for (int32_t i = 0; i < a->n_tokens && i < 64; i++) {
        end[i] = all ? INT32_MAX : a->end[i] + more;
        begin[i] = all || !a->begin ? 0 : a->begin[i];
    }
    b.end = end;
    b.begin = begin;
    ftki_attn_segment_scalar(&b, prepared, page_begin, page_end, state);
}

void mutant_attn_segment_sees_one_more(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                       int32_t page_end, const ftki_attn_state *state) {
    with_ranges(a, prepared, page_begin, page_end, state, 1, false);
}

void mutant_attn_segment_sees_all(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                  int32_t page_end, const ftki_attn_state *state) {
    with_ranges(a, prepared, page_begin, page_end, state, 0, true);
}

void mutant_attn_segment_skips_first_page(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                          int32_t page_end, const ftki_attn_state *state) {
    ftki_attn_segment_scalar(a, prepared, page_begin + (page_end - page_begin > 1), page_end, state);
}

void mutant_attn_segment_forgets_bias(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                      int32_t page_end, const ftki_attn_state *state) {
    ftki_attn b = *a;
    b.bias = NULL;
    ftki_attn_segment_scalar(&b, prepared, page_begin, page_end, state);
}

/* Pages one by one, joined; `bug` falsifies how. */
typedef enum join_bug { NO_RESCALE, NO_START, OTHER_BITS } join_bug;
static void page_by_page(const ftki_attn *a, const void *prepared, int32_t page_begin, int32_t page_end,
                         const ftki_attn_state *state, join_bug bug) {
    int32_t rows = a->n_tokens * a->group, dim = ftki_kv_dim(a->head_dim);
    size_t n = (size_t)rows * (size_t)dim;
    float *memory = calloc(n + 2 * (size_t)rows, sizeof *memory);
    ftki_attn_state one = {memory, memory + n, memory + n + rows};
    for (int32_t p = page_begin; p < page_end; p++) {
        ftki_attn_segment_scalar(a, prepared, p, p + 1, &one);
        if (p == page_begin && bug != NO_START) {
            memcpy(state->out, one.out, n * sizeof *memory);
            memcpy(state->max, one.max, (size_t)rows * sizeof *memory);
            memcpy(state->sum, one.sum, (size_t)rows * sizeof *memory);
        } else if (bug == NO_RESCALE) {
            for (size_t i = 0; i < n; i++) state->out[i] += one.out[i];
            for (int32_t r = 0; r < rows; r++) {
                state->sum[r] += one.sum[r];
                state->max[r] = fmaxf(state->max[r], one.max[r]);
            }
        } else {
            ftki_attn_merge_scalar(state, &one, rows, dim);
        }
    }
    if (bug == OTHER_BITS)
        for (size_t i = 0; i < n; i++) state->out[i] *= 1.0f - 0x1p-16f;
    free(memory);
}

void mutant_attn_segment_forgets_rescale(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                         int32_t page_end, const ftki_attn_state *state) {
    page_by_page(a, prepared, page_begin, page_end, state, NO_RESCALE);
}

void mutant_attn_segment_starts_from_state(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                           int32_t page_end, const ftki_attn_state *state) {
    page_by_page(a, prepared, page_begin, page_end, state, NO_START);
}

void mutant_attn_segment_rounds_otherwise(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                         int32_t page_end, const ftki_attn_state *state) {
    page_by_page(a, prepared, page_begin, page_end, state, OTHER_BITS);
}

void mutant_attn_segment_forgets_v_scale(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                         int32_t page_end, const ftki_attn_state *state) {
    ftki_attn_segment_scalar(a, prepared, page_begin, page_end, state);
    if (a->format != FTKI_KV_INT8) return;
    float factor = exp2f(ftki_page_v_log(a->pages[page_begin])[0] * 0.25f);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++) state->sum[r] *= factor;
}

void mutant_attn_segment_next_row_too(const ftki_attn *a, const void *prepared, int32_t page_begin,
                                      int32_t page_end, const ftki_attn_state *state) {
    ftki_attn_segment_scalar(a, prepared, page_begin, page_end, state);
    state->sum[a->n_tokens * a->group] = 1.0f;
}

void mutant_attn_merge_forgets_max(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                                   int32_t dim) {
    float max = into->max[0];
    ftki_attn_merge_scalar(into, from, rows, dim);
    into->max[0] = max;
}

/* exp2(-inf - -inf) is not a number. */
void mutant_attn_merge_ignores_nothing(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                                       int32_t dim) {
    for (int32_t r = 0; r < rows; r++) {
        float max = fmaxf(into->max[r], from->max[r]);
        float f_into = exp2f(into->max[r] - max), f_from = exp2f(from->max[r] - max);
        for (int32_t d = 0; d < dim; d++)
            into->out[r * dim + d] = fmaf(from->out[r * dim + d], f_from, into->out[r * dim + d] * f_into);
        into->sum[r] = fmaf(from->sum[r], f_from, into->sum[r] * f_into);
        into->max[r] = max;
    }
}

void mutant_attn_merge_adds_plainly(const ftki_attn_state *into, const ftki_attn_state *from, int32_t rows,
                                    int32_t dim) {
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t d = 0; d < dim; d++) into->out[r * dim + d] += from->out[r * dim + d];
        into->sum[r] += from->sum[r];
        into->max[r] = fmaxf(into->max[r], from->max[r]);
    }
}

void mutant_attn_finish_divides_by_zero(const ftki_attn *a, const ftki_attn_state *state, float *y, size_t stride) {
    ftki_attn_finish_scalar(a, state, y, stride);
    for (int32_t r = 0; r < a->n_tokens * a->group; r++)
        y[(size_t)(r / a->group) * stride + (size_t)(r % a->group * a->head_dim)] =
            state->out[r * ftki_kv_dim(a->head_dim)] * (1.0f / state->sum[r]);
}

void mutant_attn_finish_writes_padding(const ftki_attn *a, const ftki_attn_state *state, float *y, size_t stride) {
    ftki_attn_finish_scalar(a, state, y, stride);
    y[(size_t)(a->n_tokens - 1) * stride + (size_t)(a->group * a->head_dim)] = 0.0f;
}

void mutant_attn_finish_ignores_stride(const ftki_attn *a, const ftki_attn_state *state, float *y, size_t stride) {
    (void)stride;
    ftki_attn_finish_scalar(a, state, y, (size_t)(a->group * a->head_dim));
}

void mutant_attn_columns_overwrites(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                                    int32_t n_entries, float *columns) {
    memset(columns, 0, (size_t)n_entries * sizeof *columns);
    ftki_attn_columns_scalar(a, prepared, state, n_entries, columns);
}

void mutant_attn_columns_one_too_many(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                                      int32_t n_entries, float *columns) {
    ftki_attn_columns_scalar(a, prepared, state, n_entries, columns);
    columns[n_entries] += 0.0f;
}

void mutant_attn_columns_forgets_sum(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                                     int32_t n_entries, float *columns) {
    int32_t rows = a->n_tokens * a->group;
    float *ones = malloc((size_t)rows * sizeof *ones);
    for (int32_t r = 0; r < rows; r++) ones[r] = state->sum[r] > 0.0f;
    ftki_attn_columns_scalar(a, prepared, &(ftki_attn_state){state->out, state->max, ones}, n_entries, columns);
    free(ones);
}

void mutant_attn_columns_sees_all(const ftki_attn *a, const void *prepared, const ftki_attn_state *state,
                                  int32_t n_entries, float *columns) {
    ftki_attn b = *a;
    int32_t end[64];
    for (int32_t i = 0; i < 64; i++) end[i] = n_entries;
    b.end = end;
    b.begin = NULL;
    ftki_attn_columns_scalar(&b, prepared, state, n_entries, columns);
}

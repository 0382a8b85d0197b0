// SPDX-License-Identifier: Apache-2.0
/* Where the pieces of a KV page lie (the layout is stated in kernels.h), for the kernels and the
 * cache. Pages are 64-byte aligned. Owns nothing. */
#ifndef FTKI_KERNELS_KV_LAYOUT_H
#define FTKI_KERNELS_KV_LAYOUT_H

#include "kernels/exp.h"
#include "kernels/kernels.h"

enum {
    FTKI_PAGE_K_SCALE = 4 * FTKI_PAGE,
    FTKI_PAGE_V_LOG = 8 * FTKI_PAGE,
    FTKI_PAGE_K_START = 12 * FTKI_PAGE,
    FTKI_PAGE_INT8_CODES = 16 * FTKI_PAGE,
    FTKI_PAGE_FLOATS = 4 * FTKI_PAGE
};

/* A vector whose largest magnitude is below this counts as zeros, so that 127 / x is finite. */
#define FTKI_KV_TINY 0x1p-100f
/* v_log of an entry of zeros: low enough not to coarsen its page's weights, high enough for its
 * own weight not to vanish from the sum (as it does beside values of 2^97 and more). */
#define FTKI_KV_ZERO_LOG -30.0f

/* Pages and prepared queries never hold NaN or infinity: NaN counts as 0, infinities as the
 * largest finite value of the format. */
#define FTKI_F16_MAX 65504.0f
static inline float ftki_finite(float x, float largest) {
    if (!(x == x)) return 0.0f;
    return x > largest ? largest : x < -largest ? -largest : x;
}

/* The pieces of an INT8 page, [32] each; written only by those who own the page. */
static inline float *ftki_page_k_scale(const unsigned char *page) {
    return (float *)(uintptr_t)(page + FTKI_PAGE_K_SCALE);
}
static inline float *ftki_page_v_log(const unsigned char *page) {
    return (float *)(uintptr_t)(page + FTKI_PAGE_V_LOG);
}
static inline int32_t *ftki_page_k_start(const unsigned char *page) {
    return (int32_t *)(uintptr_t)(page + FTKI_PAGE_K_START);
}

static inline size_t ftki_kv_element_bytes(ftki_kv_format format) {
    return format == FTKI_KV_INT8 ? 1 : format == FTKI_KV_F16 ? 2 : 4;
}

/* Byte of element d of entry `slot` within an INT8 page's k and v. */
static inline size_t ftki_k_code(int32_t dim, int32_t slot, int32_t d) {
    return (size_t)(((slot / 16 * (dim / 4) + d / 4) * 16 + slot % 16) * 4 + d % 4);
}
static inline size_t ftki_v_code(int32_t slot, int32_t d) {
    return (size_t)(((d / 16 * 8 + slot / 4) * 16 + d % 16) * 4 + slot % 4);
}

/* Prepared queries, the same for all levels; rows padded to a multiple of 16 by zero queries.
 *   INT8:   scale [rows16] f32 = max|q| / 127 * (a->scale * log2 e), then
 *           codes [rows16/16][dim/4][16 rows][4] u8 = code + 128
 *   floats: q * (a->scale * log2 e) [rows16][dim] f32 */
static inline int32_t ftki_attn_rows16(int32_t rows) { return (rows + 15) & ~15; }
static inline const float *ftki_prepared_scale(const void *prepared) { return prepared; }
static inline const uint8_t *ftki_prepared_codes(const void *prepared, int32_t rows) {
    return (const uint8_t *)prepared + (size_t)ftki_attn_rows16(rows) * 4;
}

/* A row's reference moves only when a page exceeds it by more than this: rescaling the output costs
 * as much as an eighth of a page, and without slack some row of 16 needs it on almost every page. */
#define FTKI_ATTN_SLACK 8.0f

/* exp2(from - to), from <= to + FTKI_ATTN_SLACK, for a running softmax's state; 0 from nothing (-INFINITY). */
static inline float ftki_attn_rescale(float from, float to) {
    return from == -INFINITY ? 0.0f : ftki_exp2(from - to);
}

/* Copies one entry, codes, scales and position, without quantising again. */
void ftki_kv_copy_entry(ftki_kv_format format, int32_t head_dim, unsigned char *to, int32_t to_slot,
                        const unsigned char *from, int32_t from_slot);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Packing: the block formats of GGUF to the panel layout of the matrix kernels, and rows of a
 * packed matrix back to floats. Owns the knowledge of both layouts; shapes were validated when
 * the model opened. Codes are taken over as they are, so nothing is quantised again; only the
 * products of scales in the K formats are rounded, to F16. */
#include <string.h>

#include "format/quants.h"
#include "kernels/kernels.h"

/* How each source type is kept. */
typedef struct pack_rule {
    ftki_type type;
    ftki_wkind kind;
    int32_t block; /* inputs per weight scale, 0 for floats */
    int32_t zero;
    bool mins;
} pack_rule;

static const pack_rule rules[] = {
    {FTKI_F32, FTKI_W_F32, 0, 0, false},    {FTKI_F16, FTKI_W_F16, 0, 0, false},
    {FTKI_BF16, FTKI_W_BF16, 0, 0, false},  {FTKI_Q4_0, FTKI_W_U4, 32, 8, false},
    {FTKI_Q4_1, FTKI_W_U4, 32, 0, true},    {FTKI_Q5_0, FTKI_W_U8, 32, 16, false},
    {FTKI_Q5_1, FTKI_W_U8, 32, 0, true},    {FTKI_Q8_0, FTKI_W_U8, 32, 128, false},
    {FTKI_Q4_K, FTKI_W_U4, 32, 0, true},    {FTKI_Q5_K, FTKI_W_U8, 32, 0, true},
    {FTKI_Q6_K, FTKI_W_U8, 16, 32, false},
};

static const pack_rule *find_rule(ftki_type type) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].type == type) return &rules[i];
    return NULL;
}

static bool is_float(ftki_wkind kind) { return kind != FTKI_W_U8 && kind != FTKI_W_U4; }

/* Bytes of one panel's data. */
static size_t panel_bytes(ftki_wkind kind, int32_t cols) {
    size_t weights = (size_t)cols * FTKI_PANEL;
    switch (kind) {
    case FTKI_W_U4: return weights / 2;
    case FTKI_W_U8: return weights;
    case FTKI_W_F32: return weights * 4;
    default: return weights * 2;
    }
}

static size_t aligned(size_t bytes) { return (bytes + FTKI_ALIGN - 1) & ~(size_t)(FTKI_ALIGN - 1); }

/* Bytes of the scales, or of the mins. */
static size_t scale_bytes(int32_t n_panels, int32_t cols, int32_t block) {
    return block ? (size_t)n_panels * ((size_t)cols / (size_t)block) * FTKI_PANEL * 2 : 0;
}

size_t ftki_pack_bytes(ftki_type type, int64_t rows, int64_t cols) {
    const pack_rule *rule = find_rule(type);
    const ftki_type_info *info = ftki_type_find(type);
    if (!rule || !info || rows < 1 || cols < 1 || rows > INT32_MAX - FTKI_PANEL ||
        cols > INT32_MAX - FTKI_BLOCK || cols % info->block)
        return 0;
    /* At most 4 bytes a weight and as much again for scales: below 2^62 nothing overflows. */
    int64_t n_panels = (rows + FTKI_PANEL - 1) / FTKI_PANEL;
    if (n_panels > INT64_MAX / 8 / FTKI_PANEL / cols) return 0;
    size_t scales = aligned(scale_bytes((int32_t)n_panels, (int32_t)cols, rule->block));
    return aligned((size_t)n_panels * panel_bytes(rule->kind, (int32_t)cols)) +
           scales * (rule->mins ? 2 : 1);
}

void ftki_pack_begin(ftki_matrix *out, ftki_type type, int32_t rows, int32_t cols, void *memory) {
    const pack_rule *rule = find_rule(type);
    int32_t n_panels = (int32_t)(((int64_t)rows + FTKI_PANEL - 1) / FTKI_PANEL);
    unsigned char *at = memory;
    memset(out, 0, sizeof *out);
    out->kind = rule->kind;
    out->source = type;
    out->rows = rows;
    out->cols = cols;
    out->n_panels = n_panels;
    out->block = rule->block;
    out->zero = rule->zero;
    out->data = at;
    if (!rule->block) return;
    size_t scales = aligned(scale_bytes(n_panels, cols, rule->block));
    at += aligned((size_t)n_panels * panel_bytes(rule->kind, cols));
    out->scales = (const uint16_t *)(const void *)at;
    if (rule->mins) out->mins = (const uint16_t *)(const void *)(at + scales);
}

/* ---------------------------------------------------------- source blocks */

static uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float read_f16(const uint8_t *p) { return ftki_f16_to_f32(read_u16(p)); }

/* 32 weights of a row: codes in input order, the scales of both halves, and the min. */
typedef struct codes32 {
    uint8_t u[FTKI_BLOCK];
    float scale[2];
    float min;
} codes32;

static void nibbles(const uint8_t *qs, uint8_t *u) {
    for (int i = 0; i < 16; i++) {
        u[i] = qs[i] & 15;
        u[i + 16] = qs[i] >> 4;
    }
}

/* Bit i of the 32 at `bits` becomes bit 4 of code i. */
static void fifth_bits(const uint8_t *bits, uint8_t *u) {
    for (int i = 0; i < 32; i++) u[i] |= (uint8_t)((bits[i / 8] >> (i % 8) & 1) << 4);
}

/* Scale and min j (0..7) of a K block's twelve bytes, six bits each. */
static void scale_min_k(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

static void one_scale(codes32 *c, float scale) { c->scale[0] = c->scale[1] = scale; }

/* Q4_K and Q5_K: d, dmin, scales [12], (fifth bits [32],) nibbles [128]. Sub-blocks 2j and 2j+1
 * share 32 bytes, low halves and high halves. */
static void decode_k45(const uint8_t *block, int j, bool fifth, codes32 *c) {
    int scale, min;
    scale_min_k(block + 4, j, &scale, &min);
    one_scale(c, read_f16(block) * (float)scale);
    c->min = -(read_f16(block + 2) * (float)min);
    const uint8_t *high = block + 16, *qs = block + (fifth ? 48 : 16) + j / 2 * 32;
    for (int i = 0; i < 32; i++) {
        c->u[i] = j % 2 ? qs[i] >> 4 : qs[i] & 15;
        if (fifth) c->u[i] |= (uint8_t)((high[i] >> j & 1) << 4);
    }
}

/* Q6_K: low nibbles [128], high pairs of bits [64], scales [16] i8, d. Each half of 128 weights
 * is four sub-blocks of 32 over 64 nibble bytes and 32 bytes of pairs. */
static void decode_q6k(const uint8_t *block, int j, codes32 *c) {
    int half = j / 4, part = j % 4;
    const uint8_t *low = block + half * 64 + (part % 2) * 32, *high = block + 128 + half * 32;
    const int8_t *scales = (const int8_t *)block + 192 + half * 8 + part * 2;
    float d = read_f16(block + 208);
    c->scale[0] = d * (float)scales[0];
    c->scale[1] = d * (float)scales[1];
    for (int i = 0; i < 32; i++)
        c->u[i] = (uint8_t)((part < 2 ? low[i] & 15 : low[i] >> 4) | (high[i] >> (2 * part) & 3) << 4);
}

/* Decodes inputs [32 * index, 32 * index + 32) of the row at `row`. */
static void decode(ftki_type type, const uint8_t *row, size_t index, codes32 *c) {
    const uint8_t *p;
    c->min = 0.0f;
    switch (type) {
    case FTKI_Q4_0:
        p = row + index * 18;
        one_scale(c, read_f16(p));
        nibbles(p + 2, c->u);
        break;
    case FTKI_Q4_1:
        p = row + index * 20;
        one_scale(c, read_f16(p));
        c->min = read_f16(p + 2);
        nibbles(p + 4, c->u);
        break;
    case FTKI_Q5_0:
        p = row + index * 22;
        one_scale(c, read_f16(p));
        nibbles(p + 6, c->u);
        fifth_bits(p + 2, c->u);
        break;
    case FTKI_Q5_1:
        p = row + index * 24;
        one_scale(c, read_f16(p));
        c->min = read_f16(p + 2);
        nibbles(p + 8, c->u);
        fifth_bits(p + 4, c->u);
        break;
    case FTKI_Q8_0:
        p = row + index * 34;
        one_scale(c, read_f16(p));
        for (int i = 0; i < 32; i++) c->u[i] = p[2 + i] ^ 0x80;
        break;
    case FTKI_Q4_K: decode_k45(row + index / 8 * 144, (int)(index % 8), false, c); break;
    case FTKI_Q5_K: decode_k45(row + index / 8 * 176, (int)(index % 8), true, c); break;
    default: decode_q6k(row + index / 8 * 210, (int)(index % 8), c); break;
    }
}

/* ---------------------------------------------------------------- packing */

/* Products of scales can pass the range of F16 in damaged files: they stop at its end. */
static uint16_t to_f16(float f) {
    if (f > 65504.0f) f = 65504.0f;
    if (f < -65504.0f) f = -65504.0f;
    return ftki_f32_to_f16(f);
}

/* `data`, `scales` and `mins` point at the block's first byte and value in the panel. */
static void put_block(const ftki_matrix *m, const codes32 *c, int32_t o, uint8_t *data,
                      uint16_t *scales, uint16_t *mins) {
    if (m->kind == FTKI_W_U8) {
        for (int g = 0; g < 8; g++) memcpy(data + g * 64 + o * 4, c->u + g * 4, 4);
    } else {
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 4; i++)
                data[g * 64 + o * 4 + i] = (uint8_t)(c->u[4 * g + i] | c->u[16 + 4 * g + i] << 4);
    }
    scales[o] = to_f16(c->scale[0]);
    if (m->block == 16) scales[FTKI_PANEL + o] = to_f16(c->scale[1]);
    if (mins) mins[o] = to_f16(c->min);
}

static void pack_quantised(const ftki_matrix *m, const uint8_t *const src[FTKI_PANEL], int32_t panel) {
    size_t n_blocks = (size_t)m->cols / FTKI_BLOCK;
    size_t bytes = panel_bytes(m->kind, FTKI_BLOCK), per_block = (size_t)(FTKI_BLOCK / m->block);
    static const codes32 nothing;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t at = (size_t)panel * n_blocks + b, scale_at = at * per_block * FTKI_PANEL;
        uint8_t *data = (uint8_t *)(uintptr_t)m->data + at * bytes;
        uint16_t *scales = (uint16_t *)(uintptr_t)m->scales + scale_at;
        uint16_t *mins = m->mins ? (uint16_t *)(uintptr_t)m->mins + scale_at : NULL;
        for (int32_t o = 0; o < FTKI_PANEL; o++) {
            codes32 c;
            if (src[o]) decode(m->source, src[o], b, &c);
            put_block(m, src[o] ? &c : &nothing, o, data, scales, mins);
        }
    }
}

static void pack_floats(const ftki_matrix *m, const uint8_t *const src[FTKI_PANEL], int32_t panel) {
    size_t bytes = m->kind == FTKI_W_F32 ? 4 : 2;
    uint8_t *out = (uint8_t *)(uintptr_t)m->data + (size_t)panel * panel_bytes(m->kind, m->cols);
    for (size_t i = 0; i < (size_t)m->cols; i++)
        for (int32_t o = 0; o < FTKI_PANEL; o++, out += bytes) {
            if (src[o]) memcpy(out, src[o] + i * bytes, bytes);
            else memset(out, 0, bytes);
        }
}

void ftki_pack_panels(ftki_matrix *m, const void *src, const int32_t *row_map, int32_t begin,
                      int32_t end) {
    const ftki_type_info *info = ftki_type_find(m->source);
    size_t row_bytes = (size_t)m->cols / info->block * info->block_bytes;
    for (int32_t p = begin; p < end; p++) {
        const uint8_t *rows[FTKI_PANEL];
        for (int32_t o = 0; o < FTKI_PANEL; o++) {
            int32_t row = p * FTKI_PANEL + o;
            rows[o] = NULL;
            if (row < m->rows)
                rows[o] = (const uint8_t *)src + (size_t)(row_map ? row_map[row] : row) * row_bytes;
        }
        if (is_float(m->kind)) pack_floats(m, rows, p);
        else pack_quantised(m, rows, p);
    }
}

/* ------------------------------------------------------------ reading back */

static float packed_float(const ftki_matrix *m, size_t at) {
    if (m->kind == FTKI_W_F32) {
        float f;
        memcpy(&f, m->data + at * 4, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, m->data + at * 2, 2);
    if (m->kind == FTKI_W_F16) return ftki_f16_to_f32(h);
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Code of input i (0..31) of output o in the block at `data`. */
static int32_t packed_code(ftki_wkind kind, const uint8_t *data, size_t i, size_t o) {
    if (kind == FTKI_W_U8) return data[i / 4 * 64 + o * 4 + i % 4];
    uint8_t byte = data[i % 16 / 4 * 64 + o * 4 + i % 4];
    return i < 16 ? byte & 15 : byte >> 4;
}

static void quantised_row(const ftki_matrix *m, size_t panel, size_t o, float *dst) {
    size_t n_blocks = (size_t)m->cols / FTKI_BLOCK, bytes = panel_bytes(m->kind, FTKI_BLOCK);
    size_t parts = (size_t)(FTKI_BLOCK / m->block), n = (size_t)m->block;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t block = panel * n_blocks + b;
        for (size_t part = 0; part < parts; part++) {
            size_t at = (block * parts + part) * FTKI_PANEL + o;
            float scale = ftki_f16_to_f32(m->scales[at]), min = m->mins ? ftki_f16_to_f32(m->mins[at]) : 0.0f;
            for (size_t i = part * n; i < (part + 1) * n; i++, dst++) {
                *dst = scale * (float)(packed_code(m->kind, m->data + block * bytes, i, o) - m->zero);
                if (m->mins) *dst += min;
            }
        }
    }
}

void ftki_matrix_row(const ftki_matrix *m, int32_t row, float *dst) {
    size_t panel = (size_t)row / FTKI_PANEL, o = (size_t)row % FTKI_PANEL, cols = (size_t)m->cols;
    if (!is_float(m->kind)) {
        quantised_row(m, panel, o, dst);
        return;
    }
    for (size_t i = 0; i < cols; i++) dst[i] = packed_float(m, (panel * cols + i) * FTKI_PANEL + o);
}

size_t ftki_matrix_bytes(const ftki_matrix *m) {
    size_t scales = scale_bytes(m->n_panels, m->cols, m->block);
    return (size_t)m->n_panels * panel_bytes(m->kind, m->cols) + scales * (m->mins ? 2 : 1);
}

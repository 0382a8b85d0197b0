// SPDX-License-Identifier: Apache-2.0
/* The GGUF writer of the tests. Quantised tensors are made of random codes under scales that
 * give the wished deviation: nothing here depends on the code under test. */
#include "e2e/tiny_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32 };
/* Value type numbers of GGUF. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };

static void *must(void *p) {
    if (!p) {
        fprintf(stderr, "tiny_gguf: out of memory\n");
        exit(3);
    }
    return p;
}

static char *copy_text(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(must(malloc(n)), s, n);
}

void tiny_put(tiny_buffer *b, const void *data, size_t len) {
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = must(realloc(b->data, b->cap));
    }
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
}

static void put_u32(tiny_buffer *b, uint32_t v) { tiny_put(b, &v, sizeof v); }
static void put_u64(tiny_buffer *b, uint64_t v) { tiny_put(b, &v, sizeof v); }
static void put_text(tiny_buffer *b, const char *s) {
    put_u64(b, strlen(s));
    tiny_put(b, s, strlen(s));
}

void tiny_gguf_free(tiny_gguf *g) {
    for (size_t i = 0; i < g->n_keys; i++) {
        free(g->keys[i].name);
        free(g->keys[i].value.data);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        free(g->tensors[i].name);
        free(g->tensors[i].data.data);
    }
    free(g->keys);
    free(g->tensors);
    memset(g, 0, sizeof *g);
}

/* ---- keys */

static size_t find_key(const tiny_gguf *g, const char *name) {
    size_t i = 0;
    while (i < g->n_keys && strcmp(g->keys[i].name, name) != 0) i++;
    return i;
}

/* The empty value of key `name`, its type number written. */
static tiny_buffer *start_key(tiny_gguf *g, const char *name, uint32_t type) {
    size_t i = find_key(g, name);
    if (i == g->n_keys) {
        g->keys = must(realloc(g->keys, (g->n_keys + 1) * sizeof *g->keys));
        g->keys[g->n_keys++] = (tiny_key){.name = copy_text(name)};
    }
    g->keys[i].value.len = 0;
    put_u32(&g->keys[i].value, type);
    return &g->keys[i].value;
}

static tiny_buffer *start_array(tiny_gguf *g, const char *name, uint32_t element, size_t n) {
    tiny_buffer *b = start_key(g, name, GGUF_ARRAY);
    put_u32(b, element);
    put_u64(b, n);
    return b;
}

void tiny_set_u32(tiny_gguf *g, const char *name, uint32_t v) {
    put_u32(start_key(g, name, GGUF_U32), v);
}
void tiny_set_f32(tiny_gguf *g, const char *name, float v) {
    tiny_put(start_key(g, name, GGUF_F32), &v, sizeof v);
}
void tiny_set_bool(tiny_gguf *g, const char *name, bool v) {
    unsigned char byte = v;
    tiny_put(start_key(g, name, GGUF_BOOL), &byte, 1);
}
void tiny_set_text(tiny_gguf *g, const char *name, const char *v) {
    put_text(start_key(g, name, GGUF_STRING), v);
}
void tiny_set_texts(tiny_gguf *g, const char *name, const char *const *v, size_t n) {
    tiny_buffer *b = start_array(g, name, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) put_text(b, v[i]);
}
void tiny_set_i32s(tiny_gguf *g, const char *name, const int32_t *v, size_t n) {
    tiny_put(start_array(g, name, GGUF_I32, n), v, n * sizeof *v);
}
void tiny_set_f32s(tiny_gguf *g, const char *name, const float *v, size_t n) {
    tiny_put(start_array(g, name, GGUF_F32, n), v, n * sizeof *v);
}

void tiny_drop_key(tiny_gguf *g, const char *name) {
    size_t i = find_key(g, name);
    if (i == g->n_keys) return;
    free(g->keys[i].name);
    free(g->keys[i].value.data);
    memmove(g->keys + i, g->keys + i + 1, (g->n_keys - i - 1) * sizeof *g->keys);
    g->n_keys--;
}

/* ---- tensors */

bool tiny_type(uint32_t type, uint32_t *block, uint32_t *block_bytes) {
    static const uint32_t known[][3] = {
        {FTKI_F32, 1, 4},      {FTKI_F16, 1, 2},      {FTKI_BF16, 1, 2},    {FTKI_Q4_0, 32, 18},
        {FTKI_Q4_1, 32, 20},   {FTKI_Q5_0, 32, 22},   {FTKI_Q5_1, 32, 24},  {FTKI_Q8_0, 32, 34},
        {FTKI_Q4_K, 256, 144}, {FTKI_Q5_K, 256, 176}, {FTKI_Q6_K, 256, 210}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i][0] != type) continue;
        *block = known[i][1];
        *block_bytes = known[i][2];
        return true;
    }
    return false;
}

/* Half precision by truncation; values too small for a normal half become 0. */
static uint16_t half(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u;
    int32_t exponent = (int32_t)((u >> 23) & 255) - 127 + 15;
    if (exponent <= 0) return (uint16_t)sign;
    if (exponent >= 31) return (uint16_t)(sign | 0x7bffu);
    return (uint16_t)(sign | (uint32_t)exponent << 10 | ((u >> 13) & 1023u));
}

static void put_half(unsigned char *at, float f) {
    uint16_t h = half(f);
    memcpy(at, &h, 2);
}

/* Scale that gives codes spread evenly over `levels` values this deviation. */
static float even_scale(float deviation, int levels) {
    return deviation * sqrtf(12.0f) / (float)levels;
}

/* Overwrites the scale fields of a block of random bytes. */
static void set_scales(uint32_t type, unsigned char *at, float deviation) {
    float d;
    switch (type) {
    case FTKI_Q4_0: put_half(at, even_scale(deviation, 16)); break;
    case FTKI_Q5_0: put_half(at, even_scale(deviation, 32)); break;
    case FTKI_Q8_0: put_half(at, even_scale(deviation, 256)); break;
    case FTKI_Q4_1:
        d = even_scale(deviation, 16);
        put_half(at, d);
        put_half(at + 2, -7.5f * d);
        break;
    case FTKI_Q5_1:
        d = even_scale(deviation, 32);
        put_half(at, d);
        put_half(at + 2, -15.5f * d);
        break;
    case FTKI_Q4_K: /* sub-block scales and mins are random 0..63, 31.5 in the mean */
        d = even_scale(deviation, 16) / 32.0f;
        put_half(at, d);
        put_half(at + 2, 7.5f * d);
        break;
    case FTKI_Q5_K:
        d = even_scale(deviation, 32) / 32.0f;
        put_half(at, d);
        put_half(at + 2, 15.5f * d);
        break;
    default: /* Q6_K: 16 signed sub-block scales, 64 in the mean magnitude */
        put_half(at + 208, even_scale(deviation, 64) / 64.0f);
        break;
    }
}

static void fill_random(tiny_tensor *t, ftki_rng *rng, float mean, float deviation) {
    uint32_t block, bytes;
    if (!tiny_type(t->type, &block, &bytes)) return;
    uint64_t n_blocks = t->dims[0] / block * t->dims[1];
    unsigned char at[256];
    for (uint64_t i = 0; i < n_blocks; i++) {
        if (block > 1) {
            for (uint32_t j = 0; j < bytes; j++) at[j] = (unsigned char)(ftki_rng_u32(rng) >> 24);
            set_scales(t->type, at, deviation);
        } else {
            float f = mean + deviation * 1.7320508f * (2.0f * ftki_rng_float(rng) - 1.0f);
            uint32_t u;
            memcpy(&u, &f, 4);
            if (t->type == FTKI_BF16) u >>= 16;
            if (t->type == FTKI_F16) u = half(f);
            memcpy(at, &u, 4);
        }
        tiny_put(&t->data, at, bytes);
    }
}

tiny_tensor *tiny_add_tensor(tiny_gguf *g, ftki_rng *rng, const char *name, uint32_t type,
                             uint64_t cols, uint64_t rows, float mean, float deviation) {
    g->tensors = must(realloc(g->tensors, (g->n_tensors + 1) * sizeof *g->tensors));
    tiny_tensor *t = &g->tensors[g->n_tensors++];
    *t = (tiny_tensor){.name = copy_text(name), .type = type, .n_dims = rows > 1 ? 2 : 1,
                       .dims = {cols, rows, 1, 1}};
    fill_random(t, rng, mean, deviation);
    return t;
}

tiny_tensor *tiny_find_tensor(const tiny_gguf *g, const char *name) {
    for (size_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return &g->tensors[i];
    return NULL;
}

void tiny_drop_tensor(tiny_gguf *g, const char *name) {
    tiny_tensor *t = tiny_find_tensor(g, name);
    if (!t) return;
    free(t->name);
    free(t->data.data);
    size_t i = (size_t)(t - g->tensors);
    memmove(t, t + 1, (g->n_tensors - i - 1) * sizeof *t);
    g->n_tensors--;
}

/* ---- the file */

static void pad(tiny_buffer *b) {
    static const unsigned char zeros[ALIGNMENT];
    tiny_put(b, zeros, (ALIGNMENT - b->len % ALIGNMENT) % ALIGNMENT);
}

unsigned char *tiny_gguf_bytes(const tiny_gguf *g, size_t *len) {
    tiny_buffer b = {0};
    tiny_put(&b, "GGUF", 4);
    put_u32(&b, 3);
    put_u64(&b, g->n_tensors);
    put_u64(&b, g->n_keys);
    for (size_t i = 0; i < g->n_keys; i++) {
        put_text(&b, g->keys[i].name);
        tiny_put(&b, g->keys[i].value.data, g->keys[i].value.len);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const tiny_tensor *t = &g->tensors[i];
        put_text(&b, t->name);
        put_u32(&b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) put_u64(&b, d < 4 ? t->dims[d] : 1); /* n_dims may be bent */
        put_u32(&b, t->type);
        put_u64(&b, offset);
        offset += (t->data.len + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    pad(&b);
    for (size_t i = 0; i < g->n_tensors; i++) {
        tiny_put(&b, g->tensors[i].data.data, g->tensors[i].data.len);
        pad(&b);
    }
    *len = b.len;
    return b.data;
}

bool tiny_gguf_write(const tiny_gguf *g, const char *path) {
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(g, &len);
    remove(path); /* some systems flush a file that is cut to nothing and written anew */
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, len, f) == len;
    if (f && fclose(f) != 0) ok = false;
    free(bytes);
    return ok;
}

// SPDX-License-Identifier: Apache-2.0
/* Writes GGUF files byte by byte, good and bad ones, for the loader's tests. */
#ifndef TESTS_UNIT_GGUF_BYTES_H
#define TESTS_UNIT_GGUF_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_bytes {
    unsigned char *data;
    size_t len, cap;
} gguf_bytes;

static inline void put_bytes(gguf_bytes *b, const void *data, size_t len) {
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = realloc(b->data, b->cap);
        if (b->data == NULL) abort();
    }
    if (len > 0) memcpy(b->data + b->len, data, len);
    b->len += len;
}
static inline void put_number(gguf_bytes *b, uint64_t v, size_t size) {
    unsigned char p[8];
    for (size_t i = 0; i < size; i++) p[i] = (unsigned char)(v >> 8 * i);
    put_bytes(b, p, size);
}
static inline void put_u32(gguf_bytes *b, uint32_t v) { put_number(b, v, 4); }
static inline void put_u64(gguf_bytes *b, uint64_t v) { put_number(b, v, 8); }
static inline void put_f32(gguf_bytes *b, float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    put_u32(b, bits);
}
static inline void put_text_n(gguf_bytes *b, const char *text, size_t len) {
    put_u64(b, len);
    put_bytes(b, text, len);
}
static inline void put_text(gguf_bytes *b, const char *text) { put_text_n(b, text, strlen(text)); }

static inline void put_header(gguf_bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    put_bytes(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}
/* Name and type; the value follows. Types: 4 u32, 5 i32, 6 f32, 7 bool, 8 string, 9 array. */
static inline void put_key(gguf_bytes *b, const char *name, uint32_t type) {
    put_text(b, name);
    put_u32(b, type);
}
static inline void put_u32_key(gguf_bytes *b, const char *name, uint32_t v) {
    put_key(b, name, 4);
    put_u32(b, v);
}
static inline void put_text_key(gguf_bytes *b, const char *name, const char *v) {
    put_key(b, name, 8);
    put_text(b, v);
}
static inline void put_array_key(gguf_bytes *b, const char *name, uint32_t element, uint64_t count) {
    put_key(b, name, 9);
    put_u32(b, element);
    put_u64(b, count);
}
static inline void put_tensor(gguf_bytes *b, const char *name, uint32_t n_dims, const uint64_t *dims,
                              uint32_t type, uint64_t offset) {
    put_text(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) put_u64(b, dims[i]);
    put_u32(b, type);
    put_u64(b, offset);
}
static inline void pad_to(gguf_bytes *b, size_t alignment) {
    while (b->len % alignment != 0) put_bytes(b, "", 1);
}
static inline void free_bytes(gguf_bytes *b) {
    free(b->data);
    *b = (gguf_bytes){NULL, 0, 0};
}

#endif

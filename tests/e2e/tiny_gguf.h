// SPDX-License-Identifier: Apache-2.0
/* A GGUF v3 file built in memory by a test: keys and tensors that can be set, replaced, dropped
 * and bent out of shape before the bytes are written. It checks nothing, so that damaged files
 * can be made; it ends the program when memory runs out. Knows no models: that is tiny_model.h. */
#ifndef TINY_GGUF_H
#define TINY_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "format/gguf.h"

typedef struct tiny_buffer {
    unsigned char *data; /* [len], owned */
    size_t len, cap;
} tiny_buffer;
void tiny_put(tiny_buffer *b, const void *data, size_t len);

typedef struct tiny_key {
    char *name;
    tiny_buffer value; /* type number, then the value, as the file has them */
} tiny_key;

typedef struct tiny_tensor {
    char *name;
    uint32_t type, n_dims;
    uint64_t dims[4];
    tiny_buffer data;
} tiny_tensor;

typedef struct tiny_gguf {
    tiny_key *keys;
    size_t n_keys;
    tiny_tensor *tensors;
    size_t n_tensors;
} tiny_gguf;

void tiny_gguf_free(tiny_gguf *g); /* what it holds, not *g */

/* Set or replace. */
void tiny_set_u32(tiny_gguf *g, const char *name, uint32_t v);
void tiny_set_f32(tiny_gguf *g, const char *name, float v);
void tiny_set_bool(tiny_gguf *g, const char *name, bool v);
void tiny_set_text(tiny_gguf *g, const char *name, const char *v);
void tiny_set_texts(tiny_gguf *g, const char *name, const char *const *v, size_t n);
void tiny_set_i32s(tiny_gguf *g, const char *name, const int32_t *v, size_t n);
void tiny_set_f32s(tiny_gguf *g, const char *name, const float *v, size_t n);
void tiny_drop_key(tiny_gguf *g, const char *name);

/* Adds a tensor of random weights, uniform with standard deviation `deviation` around `mean`
 * (mean only for F32). dims[0] is the contiguous one. The pointer is good until the next add. */
tiny_tensor *tiny_add_tensor(tiny_gguf *g, ftki_rng *rng, const char *name, uint32_t type,
                             uint64_t cols, uint64_t rows, float mean, float deviation);
tiny_tensor *tiny_find_tensor(const tiny_gguf *g, const char *name); /* NULL: absent */
void tiny_drop_tensor(tiny_gguf *g, const char *name);
/* Weights per block and bytes per block of a type this writer knows; false: unknown. */
bool tiny_type(uint32_t type, uint32_t *block, uint32_t *block_bytes);

/* The file's bytes, [*len], to be freed with free(). */
unsigned char *tiny_gguf_bytes(const tiny_gguf *g, size_t *len);
/* false: could not be written. */
bool tiny_gguf_write(const tiny_gguf *g, const char *path);

#endif

// SPDX-License-Identifier: Apache-2.0
/* GGUF v2/v3: bytes to a validated directory of keys and tensors. Memory-mapped; every limit is
 * checked before anything of the size it names is allocated. Interprets no model: that is
 * src/model. Tensor data is borrowed from the mapping and lives as long as the ftki_gguf. */
#ifndef FTKI_FORMAT_GGUF_H
#define FTKI_FORMAT_GGUF_H

#include "base/mapfile.h"

/* GGML type numbers as files carry them. */
typedef enum ftki_type {
    FTKI_F32 = 0, FTKI_F16 = 1, FTKI_Q4_0 = 2, FTKI_Q4_1 = 3, FTKI_Q5_0 = 6, FTKI_Q5_1 = 7,
    FTKI_Q8_0 = 8, FTKI_Q4_K = 12, FTKI_Q5_K = 13, FTKI_Q6_K = 14, FTKI_BF16 = 30
} ftki_type;

typedef struct ftki_type_info {
    ftki_type type;
    const char *name;     /* "Q4_1" */
    uint32_t block;       /* weights per block, 1 for floats */
    uint32_t block_bytes;
} ftki_type_info;
/* NULL for types we do not read. */
const ftki_type_info *ftki_type_find(uint32_t type);
const char *ftki_type_name_of(uint32_t type); /* also of GGML types we do not read; "type 99" never: "unknown" */

typedef enum ftki_key_type {
    FTKI_KEY_U8, FTKI_KEY_I8, FTKI_KEY_U16, FTKI_KEY_I16, FTKI_KEY_U32, FTKI_KEY_I32, FTKI_KEY_F32,
    FTKI_KEY_BOOL, FTKI_KEY_STRING, FTKI_KEY_ARRAY, FTKI_KEY_U64, FTKI_KEY_I64, FTKI_KEY_F64
} ftki_key_type;

typedef struct ftki_text { /* borrowed bytes, not NUL-terminated */
    const char *data;
    size_t len;
} ftki_text;

typedef struct ftki_key {
    ftki_text name;
    ftki_key_type type;
    ftki_key_type element;     /* of arrays; arrays of arrays are refused */
    uint64_t count;            /* array elements; 1 for scalars */
    const unsigned char *data; /* the value, in the mapping, unaligned */
    size_t bytes;              /* of all elements */
} ftki_key;

typedef struct ftki_tensor {
    const char *name; /* NUL-terminated, owned by the ftki_gguf */
    ftki_type type;
    uint32_t n_dims;
    uint64_t dims[4]; /* dims[0] contiguous; unused ones are 1; none is 0 */
    uint64_t offset;  /* from the start of the file */
    uint64_t bytes;
    const unsigned char *data;
} ftki_tensor;

typedef struct ftki_gguf {
    ftki_mapfile file;
    uint32_t version;
    size_t n_keys, n_tensors;
    ftki_key *keys;
    ftki_tensor *tensors;
    void *names;       /* storage of tensor names and indices */
} ftki_gguf;

ftk_status ftki_gguf_open(ftki_gguf *out, const char *path, ftk_error *e);
/* From memory [len], borrowed for the life of *out: for tests and fuzzing. */
ftk_status ftki_gguf_parse(ftki_gguf *out, const unsigned char *data, size_t len, ftk_error *e);
void ftki_gguf_close(ftki_gguf *g);

const ftki_key *ftki_gguf_key(const ftki_gguf *g, const char *name);       /* NULL: absent */
const ftki_tensor *ftki_gguf_tensor(const ftki_gguf *g, const char *name); /* NULL: absent */

/* Typed reads. A wrong type is FTK_FORMAT naming the key. Absent: `*_or` leave *out, the others fail. */
ftk_status ftki_gguf_u32(const ftki_gguf *g, const char *name, uint32_t *out, ftk_error *e);
ftk_status ftki_gguf_u32_or(const ftki_gguf *g, const char *name, uint32_t *out, ftk_error *e);
ftk_status ftki_gguf_f32_or(const ftki_gguf *g, const char *name, float *out, ftk_error *e);
ftk_status ftki_gguf_bool_or(const ftki_gguf *g, const char *name, bool *out, ftk_error *e);
ftk_status ftki_gguf_text(const ftki_gguf *g, const char *name, ftki_text *out, ftk_error *e);
ftk_status ftki_gguf_text_or(const ftki_gguf *g, const char *name, ftki_text *out, ftk_error *e);
/* Arrays: the caller checks `count`. Strings are walked in order: *at starts at 0. */
ftk_status ftki_gguf_array(const ftki_gguf *g, const char *name, ftki_key_type element,
                           const ftki_key **out, ftk_error *e); /* absent: *out = NULL, FTK_OK */
ftki_text ftki_key_next_text(const ftki_key *k, size_t *at);

#endif

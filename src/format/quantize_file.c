// SPDX-License-Identifier: Apache-2.0
/* ftk_quantize_file: a GGUF file in, the same keys and tensors out with the matrices in another
 * type. Owns the layout of the file it writes; blocks are made by quantize.c.
 *
 * A tensor is treated as one run of weights: rows are whole blocks in both types, so blocks never
 * straddle rows, and memory does not depend on the length of a row. */
#include "base/memory.h"
#include "base/options.h"
#include "base/threads.h"
#include "format/quants.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    PIECE = 1 << 14,      /* weights one worker converts at a time; a multiple of every block */
    BATCH_PIECES = 128,   /* pieces between two writes */
    DEFAULT_ALIGNMENT = 32,
    QUANTIZATION_VERSION = 2 /* of the block formats as they are today */
};

/* The types we write, with llama.cpp's number for a file that is mostly of that type. */
static const struct target {
    ftki_type type;
    uint32_t file_type;
} targets[] = {{FTKI_Q8_0, 7}, {FTKI_Q4_0, 2}, {FTKI_Q4_K, 14}};

typedef struct job {
    ftki_gguf in;
    ftki_writer *writer;
    ftki_team *team;
    const ftki_type_info *target;
    uint32_t file_type;
    uint64_t alignment;
    float *scratch;     /* [workers][PIECE] */
    unsigned char *out; /* BATCH_PIECES pieces in the target type */
    /* The batch being converted. */
    const ftki_tensor *tensor;
    uint64_t first;      /* weight the batch starts with */
    uint64_t n_weights;  /* in the batch */
    atomic_bool not_finite;
} job;

static bool find_target(const char *name, job *j) {
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const ftki_type_info *info = ftki_type_find((uint32_t)targets[i].type);
        if (strcmp(info->name, name) == 0) {
            j->target = info;
            j->file_type = targets[i].file_type;
            return true;
        }
    }
    return false;
}

static bool is_converted(const job *j, const ftki_tensor *t) {
    return t->n_dims > 1 && t->type != j->target->type && t->dims[0] % j->target->block == 0;
}

static uint64_t n_weights(const ftki_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; /* fits: the parser checked */
}

static bool out_bytes(const job *j, const ftki_tensor *t, uint64_t *bytes) {
    if (!is_converted(j, t)) {
        *bytes = t->bytes;
        return true;
    }
    return !__builtin_mul_overflow(n_weights(t) / j->target->block, j->target->block_bytes, bytes);
}

/* --------------------------------------------------------------- the directory
 * A failed write is kept by the writer, so these need no checks of their own: the caller asks the
 * writer once at the end of the section. */

static void write_u32(job *j, uint32_t v) {
    unsigned char b[4];
    for (int i = 0; i < 4; i++) b[i] = (unsigned char)(v >> 8 * i);
    (void)ftki_writer_write(j->writer, b, sizeof b, NULL);
}

static void write_u64(job *j, uint64_t v) {
    write_u32(j, (uint32_t)v);
    write_u32(j, (uint32_t)(v >> 32));
}

static void write_text(job *j, const char *text) {
    size_t len = strlen(text);
    write_u64(j, len);
    (void)ftki_writer_write(j->writer, text, len, NULL);
}

static void write_u32_key(job *j, const char *name, uint32_t v) {
    write_text(j, name);
    write_u32(j, FTKI_KEY_U32);
    write_u32(j, v);
}

static void write_padding(job *j) {
    static const unsigned char zeros[64];
    uint64_t n = (j->alignment - ftki_writer_position(j->writer) % j->alignment) % j->alignment;
    for (; n > 0; n -= n < sizeof zeros ? n : sizeof zeros)
        (void)ftki_writer_write(j->writer, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros, NULL);
}

static bool is_rewritten(const ftki_key *k) {
    static const char *const names[] = {"general.file_type", "general.quantization_version"};
    for (size_t i = 0; i < 2; i++)
        if (k->name.len == strlen(names[i]) && memcmp(k->name.data, names[i], k->name.len) == 0)
            return true;
    return false;
}

static void write_keys(job *j) {
    for (size_t i = 0; i < j->in.n_keys; i++) {
        const ftki_key *k = &j->in.keys[i];
        if (is_rewritten(k)) continue;
        /* As it stands in the file, from the length of its name to the end of its value. */
        const unsigned char *start = (const unsigned char *)k->name.data - 8;
        (void)ftki_writer_write(j->writer, start, (size_t)(k->data + k->bytes - start), NULL);
    }
    write_u32_key(j, "general.file_type", j->file_type);
    write_u32_key(j, "general.quantization_version", QUANTIZATION_VERSION);
}

static ftk_status write_directory(job *j, ftk_error *e) {
    size_t n_keys = 2;
    for (size_t i = 0; i < j->in.n_keys; i++) n_keys += !is_rewritten(&j->in.keys[i]);
    (void)ftki_writer_write(j->writer, "GGUF", 4, NULL);
    write_u32(j, 3);
    write_u64(j, j->in.n_tensors);
    write_u64(j, n_keys);
    write_keys(j);
    uint64_t offset = 0;
    for (size_t i = 0; i < j->in.n_tensors; i++) {
        const ftki_tensor *t = &j->in.tensors[i];
        uint64_t bytes, end;
        write_text(j, t->name);
        write_u32(j, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) write_u64(j, t->dims[d]);
        write_u32(j, (uint32_t)(is_converted(j, t) ? j->target->type : t->type));
        write_u64(j, offset);
        if (!out_bytes(j, t, &bytes) ||
            __builtin_add_overflow(offset, bytes, &end) ||
            __builtin_add_overflow(end, j->alignment - 1, &end))
            return ftki_fail(e, FTK_UNSUPPORTED, "the result would be larger than 64 bits count");
        offset = end & ~(j->alignment - 1);
    }
    write_padding(j);
    return ftki_writer_write(j->writer, NULL, 0, e);
}

/* --------------------------------------------------------------------- tensors */

static void convert_pieces(void *ctx, int32_t worker, int32_t workers) {
    (void)workers;
    job *j = ctx;
    const ftki_type_info *from = ftki_type_find((uint32_t)j->tensor->type), *to = j->target;
    float *w = j->scratch + (size_t)worker * PIECE;
    uint64_t n_pieces = (j->n_weights + PIECE - 1) / PIECE;
    for (uint64_t p; (p = (uint64_t)ftki_team_next(j->team)) < n_pieces;) {
        uint64_t at = p * PIECE;
        size_t n = j->n_weights - at < PIECE ? (size_t)(j->n_weights - at) : PIECE;
        ftki_dequantize_row(from->type,
                            j->tensor->data + (j->first + at) / from->block * from->block_bytes, w, n);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(w[i])) atomic_store_explicit(&j->not_finite, true, memory_order_relaxed);
        ftki_quantize_row(to->type, w, j->out + at / to->block * to->block_bytes, n);
    }
}

static ftk_status convert_tensor(job *j, const ftki_tensor *t, const ftk_quantize_opts *o,
                                 uint64_t done, uint64_t total, ftk_error *e) {
    uint64_t n = n_weights(t);
    j->tensor = t;
    for (j->first = 0; j->first < n; j->first += j->n_weights) {
        uint64_t most = (uint64_t)PIECE * BATCH_PIECES;
        j->n_weights = n - j->first < most ? n - j->first : most;
        ftki_team_run(j->team, convert_pieces, j);
        if (atomic_load(&j->not_finite))
            return ftki_fail(e, FTK_FORMAT,
                             "tensor '%s' holds a weight that is infinite or not a number; the "
                             "model is damaged", t->name);
        FTKI_TRY(ftki_writer_write(j->writer, j->out,
                                   (size_t)(j->n_weights / j->target->block * j->target->block_bytes), e));
        if (o->progress != NULL &&
            !o->progress(o->progress_ctx, "quantizing", done + j->first + j->n_weights, total))
            return ftki_fail(e, FTK_CANCELLED, "quantizing was cancelled");
    }
    return FTK_OK;
}

static ftk_status write_tensors(job *j, const ftk_quantize_opts *o, ftk_error *e) {
    uint64_t done = 0, total = 0;
    for (size_t i = 0; i < j->in.n_tensors; i++) total += n_weights(&j->in.tensors[i]);
    for (size_t i = 0; i < j->in.n_tensors; i++) {
        const ftki_tensor *t = &j->in.tensors[i];
        if (is_converted(j, t)) FTKI_TRY(convert_tensor(j, t, o, done, total, e));
        else FTKI_TRY(ftki_writer_write(j->writer, t->data, (size_t)t->bytes, e));
        write_padding(j);
        ftki_mapfile_drop(&j->in.file, (size_t)t->offset, (size_t)t->bytes);
        done += n_weights(t);
    }
    return ftki_writer_write(j->writer, NULL, 0, e);
}

ftk_status ftk_quantize_file(const char *in, const char *out, const ftk_quantize_opts *opts,
                             ftk_error *e) {
    ftk_quantize_opts o = {0};
    ftki_options_read(&o, sizeof o, opts);
    job j = {.alignment = DEFAULT_ALIGNMENT};
    if (in == NULL || out == NULL || o.type == NULL)
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "in, out and the type must not be NULL");
    if (!find_target(o.type, &j))
        return ftki_fail(e, FTK_INVALID_ARGUMENT,
                         "type '%s' cannot be written; use Q8_0, Q4_0 or Q4_K",
                         ftki_quote(o.type, strlen(o.type)).text);

    FTKI_TRY(ftki_gguf_open(&j.in, in, e));
    uint32_t alignment = DEFAULT_ALIGNMENT;
    ftk_status status = ftki_gguf_u32_or(&j.in, "general.alignment", &alignment, e);
    j.alignment = alignment;
    if (status == FTK_OK) status = ftki_team_open(&j.team, o.n_threads, e);
    if (status == FTK_OK) {
        size_t workers = (size_t)ftki_team_size(j.team);
        j.scratch = ftki_alloc(workers * PIECE, sizeof(float));
        j.out = ftki_alloc((size_t)BATCH_PIECES * (PIECE / j.target->block), j.target->block_bytes);
        if (j.scratch == NULL || j.out == NULL)
            status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory to convert tensors in");
    }
    /* The mapping keeps the old content alive when `out` is `in`. */
    if (status == FTK_OK) status = ftki_writer_open(&j.writer, out, e);
    if (status == FTK_OK) status = write_directory(&j, e);
    if (status == FTK_OK) status = write_tensors(&j, &o, e);
    if (status == FTK_OK) status = ftki_writer_commit(j.writer, e);
    ftki_writer_close(j.writer);
    ftki_team_close(j.team);
    ftki_free(j.scratch);
    ftki_free(j.out);
    ftki_gguf_close(&j.in);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* Saving a session to a file, and taking it up again.
 *
 * The file, little-endian:
 *   magic        8 bytes "FTKSNAP" and a zero
 *   version      u32, 1
 *   kv_type      u32, as ftk_kv_type
 *   fingerprint  u64 of the model file
 *   n_layers, n_kv_heads, head_dim, n_vocab   u32 each
 *   n_tokens     u32
 *   has_logits   u32, 0 or 1
 *   tokens       i32 [n_tokens]
 *   logits       f32 [n_vocab] if has_logits
 *   cache        what ftki_kv_save writes (its format is described there)
 *   checksum     u64, ftki_hash of every byte before it
 *
 * Restoring believes nothing until the checksum holds, and even then every field: a file made to
 * hold it must not do harm either. The session changes only when nothing can fail any more. */
#include <string.h>

#include "base/hash.h"
#include "engine/model.h"

enum { VERSION = 1, HEADER_BYTES = 48, CHECKSUM_BYTES = 8 };
static const unsigned char magic[8] = "FTKSNAP";

/* ------------------------------------------------------------------- save */

static void put_u32(unsigned char *at, uint32_t v) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(v >> (8 * i));
}

static void put_u64(unsigned char *at, uint64_t v) {
    put_u32(at, (uint32_t)v);
    put_u32(at + 4, (uint32_t)(v >> 32));
}

static void put_header(unsigned char *at, const ftk_session *s) {
    const ftki_config *c = &s->model->decoder.config;
    memcpy(at, magic, 8);
    put_u32(at + 8, VERSION);
    put_u32(at + 12, (uint32_t)s->kv.format);
    put_u64(at + 16, s->model->fingerprint);
    put_u32(at + 24, (uint32_t)c->n_layers);
    put_u32(at + 28, (uint32_t)c->n_kv_heads);
    put_u32(at + 32, (uint32_t)c->head_dim);
    put_u32(at + 36, (uint32_t)c->n_vocab);
    put_u32(at + 40, (uint32_t)s->n_tokens);
    put_u32(at + 44, s->has_logits);
}

/* Tokens and logits are both 32 bits wide. */
static ftk_status write_words(ftki_writer *w, const void *words, size_t n, ftk_error *e) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return ftki_writer_write(w, words, n * 4, e);
#else
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[4];
        put_u32(bytes, ((const uint32_t *)words)[i]);
        FTKI_TRY(ftki_writer_write(w, bytes, 4, e));
    }
    return FTK_OK;
#endif
}

static ftk_status write_all(const ftk_session *s, ftki_writer *w, ftk_error *e) {
    unsigned char header[HEADER_BYTES], checksum[CHECKSUM_BYTES];
    ftki_hash hash;
    ftki_hash_start(&hash);
    ftki_writer_checksum(w, &hash);
    put_header(header, s);
    FTKI_TRY(ftki_writer_write(w, header, sizeof header, e));
    FTKI_TRY(write_words(w, s->tokens, (size_t)s->n_tokens, e));
    if (s->has_logits) FTKI_TRY(write_words(w, s->logits, (size_t)s->model->decoder.config.n_vocab, e));
    FTKI_TRY(ftki_kv_save(&s->kv, w, e));
    ftki_writer_checksum(w, NULL);
    put_u64(checksum, ftki_hash_end(&hash));
    FTKI_TRY(ftki_writer_write(w, checksum, sizeof checksum, e));
    return ftki_writer_commit(w, e);
}

ftk_status ftk_session_save(const ftk_session *s, const char *path, ftk_error *e) {
    if (!s || !path) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session and path must not be NULL");
    ftki_writer *w;
    FTKI_TRY(ftki_writer_open(&w, path, e));
    ftk_status status = write_all(s, w, e);
    ftki_writer_close(w);
    return status;
}

/* ---------------------------------------------------------------- restore */

/* What a snapshot holds apart from the cache; words are in the file, unaligned. */
typedef struct contents {
    uint32_t n_tokens, has_logits;
    const unsigned char *tokens, *logits;
} contents;

static uint32_t word_at(const unsigned char *words, size_t i) {
    words += 4 * i;
    return (uint32_t)words[0] | (uint32_t)words[1] << 8 | (uint32_t)words[2] << 16 | (uint32_t)words[3] << 24;
}

static ftk_status check_frame(ftki_cursor *c, ftk_error *e) {
    const unsigned char *start;
    if (c->len < HEADER_BYTES + CHECKSUM_BYTES)
        return ftki_fail_at(e, FTK_FORMAT, (int64_t)c->len, "the snapshot is cut off after %zu bytes", c->len);
    FTKI_TRY(ftki_read_bytes(c, sizeof magic, &start, "magic", e));
    if (memcmp(start, magic, sizeof magic) != 0)
        return ftki_fail_at(e, FTK_FORMAT, 0, "this is not a snapshot of a session");
    ftki_hash hash;
    ftki_hash_start(&hash);
    ftki_cursor end = {c->data, c->len, c->len - CHECKSUM_BYTES};
    ftki_hash_add(&hash, c->data, end.pos);
    uint64_t stored;
    FTKI_TRY(ftki_read_u64(&end, &stored, "checksum", e));
    if (stored != ftki_hash_end(&hash))
        return ftki_fail(e, FTK_FORMAT,
                         "the snapshot is damaged: its checksum does not hold; delete it and start afresh");
    c->len -= CHECKSUM_BYTES;
    uint32_t version;
    FTKI_TRY(ftki_read_u32(c, &version, "version", e));
    if (version != VERSION)
        return ftki_fail_at(e, FTK_UNSUPPORTED, 8, "the snapshot is of version %u, this library reads %d", version,
                            VERSION);
    return FTK_OK;
}

static ftk_status check_model(const ftk_session *s, ftki_cursor *c, ftk_error *e) {
    static const char *const kv_names[] = {"INT8", "F16", "F32"};
    const ftki_config *config = &s->model->decoder.config;
    uint32_t kv_type;
    uint64_t fingerprint;
    FTKI_TRY(ftki_read_u32(c, &kv_type, "kv_type", e));
    if (kv_type != (uint32_t)s->kv.format)
        return ftki_fail_at(e, FTK_MISMATCH, 12, "the snapshot's cache is %s, the session's is %s: open it with that kv_type",
                            kv_type < 3 ? kv_names[kv_type] : "unknown", kv_names[s->kv.format]);
    FTKI_TRY(ftki_read_u64(c, &fingerprint, "fingerprint", e));
    if (fingerprint != s->model->fingerprint)
        return ftki_fail_at(e, FTK_MISMATCH, 16, "the snapshot was made with another model file");
    const struct {
        const char *name;
        int32_t value;
    } shape[] = {{"n_layers", config->n_layers}, {"n_kv_heads", config->n_kv_heads},
                 {"head_dim", config->head_dim}, {"n_vocab", config->n_vocab}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int64_t at = (int64_t)c->pos;
        uint32_t value;
        FTKI_TRY(ftki_read_u32(c, &value, shape[i].name, e));
        if (value != (uint32_t)shape[i].value)
            return ftki_fail_at(e, FTK_MISMATCH, at, "the snapshot's %s is %u, the model's is %d", shape[i].name,
                                value, shape[i].value);
    }
    return FTK_OK;
}

static ftk_status read_contents(contents *out, const ftk_session *s, ftki_cursor *c, ftk_error *e) {
    uint32_t n_vocab = (uint32_t)s->model->decoder.config.n_vocab;
    FTKI_TRY(ftki_read_u32(c, &out->n_tokens, "n_tokens", e));
    FTKI_TRY(ftki_read_u32(c, &out->has_logits, "has_logits", e));
    if (out->n_tokens > (uint32_t)s->context)
        return ftki_fail_at(e, FTK_CONTEXT_FULL, 40,
                            "the snapshot holds %u tokens, the session's context is %d: open it with a longer one",
                            out->n_tokens, s->context);
    if (out->has_logits > 1)
        return ftki_fail_at(e, FTK_FORMAT, 44, "has_logits is %u, must be 0 or 1", out->has_logits);
    int64_t at = (int64_t)c->pos;
    FTKI_TRY(ftki_read_bytes(c, (size_t)out->n_tokens * 4, &out->tokens, "tokens", e));
    for (uint32_t i = 0; i < out->n_tokens; i++)
        if (word_at(out->tokens, i) >= n_vocab)
            return ftki_fail_at(e, FTK_FORMAT, at + 4 * (int64_t)i, "token %u is outside the vocabulary of %u",
                                word_at(out->tokens, i), n_vocab);
    out->logits = NULL;
    if (out->has_logits) FTKI_TRY(ftki_read_bytes(c, (size_t)n_vocab * 4, &out->logits, "logits", e));
    return FTK_OK;
}

static ftk_status restore(ftk_session *s, ftki_cursor *c, ftk_error *e) {
    contents held;
    FTKI_TRY(check_frame(c, e));
    FTKI_TRY(check_model(s, c, e));
    FTKI_TRY(read_contents(&held, s, c, e));
    FTKI_TRY(ftki_kv_load(&s->kv, c, (int32_t)held.n_tokens, e));
    for (uint32_t i = 0; i < held.n_tokens; i++) s->tokens[i] = (ftk_token)word_at(held.tokens, i);
    for (size_t i = 0; held.has_logits && i < (size_t)s->model->decoder.config.n_vocab; i++) {
        uint32_t bits = word_at(held.logits, i);
        memcpy(&s->logits[i], &bits, 4);
    }
    s->n_tokens = (int32_t)held.n_tokens;
    s->has_logits = held.has_logits;
    ftki_reducer_restored(s);
    s->stats.kv_bytes = ftki_kv_bytes(&s->kv);
    s->stats.kv_peak_bytes = ftki_kv_peak_bytes(&s->kv);
    return FTK_OK;
}

ftk_status ftk_session_restore(ftk_session *s, const char *path, ftk_error *e) {
    if (!s || !path) return ftki_fail(e, FTK_INVALID_ARGUMENT, "session and path must not be NULL");
    ftki_mapfile file;
    FTKI_TRY(ftki_mapfile_open(&file, path, e));
    ftki_cursor c = {.data = file.data, .len = file.len};
    ftk_status status = restore(s, &c, e);
    ftki_mapfile_close(&file);
    return status;
}

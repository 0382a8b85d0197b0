// SPDX-License-Identifier: Apache-2.0
/* The public text functions, bound to a model: arguments checked here, work done in src/text. */
#include <string.h>

#include "engine/model.h"

static ftk_status want_vocabulary(const ftk_model *m, ftk_error *e) {
    if (m->tokenizer) return FTK_OK;
    return ftki_fail(e, FTK_UNSUPPORTED, "a %s model takes no text", m->encoder.config.arch_name);
}

ftk_status ftk_tokenize(const ftk_model *m, const char *text, size_t len, int flags, ftk_token *ids,
                        size_t cap, size_t *n, ftk_error *e) {
    if (!m || !n || (!text && len > 0) || (!ids && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, text, ids and n must not be NULL");
    if (flags & ~(FTK_TOKENIZE_SPECIAL | FTK_TOKENIZE_BOS_EOS))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "flags 0x%x holds bits that mean nothing",
                         (unsigned)flags);
    FTKI_TRY(want_vocabulary(m, e));
    return ftki_tokenizer_encode(m->tokenizer, text ? text : "", len, flags, ids, cap, n, e);
}

const char *ftk_token_bytes(const ftk_model *m, ftk_token id, bool special, size_t *len) {
    size_t ignored;
    if (!len) len = &ignored;
    *len = 0;
    return m->tokenizer ? ftki_tokenizer_bytes(m->tokenizer, id, special, len) : NULL;
}

ftk_status ftk_detokenize(const ftk_model *m, const ftk_token *ids, size_t n, bool special,
                          char *text, size_t cap, size_t *len, ftk_error *e) {
    if (!m || !len || (!ids && n > 0) || (!text && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, ids, text and len must not be NULL");
    FTKI_TRY(want_vocabulary(m, e));
    return ftki_tokenizer_decode(m->tokenizer, ids, n, special, text, cap, len, e);
}

bool ftk_token_is_end(const ftk_model *m, ftk_token id) {
    return m->tokenizer && ftki_tokenizer_is_end(m->tokenizer, id);
}

bool ftk_token_is_special(const ftk_model *m, ftk_token id) {
    return m->tokenizer && ftki_tokenizer_is_special(m->tokenizer, id);
}

ftk_token ftk_token_bos(const ftk_model *m) { return m->tokenizer ? ftki_tokenizer_bos(m->tokenizer) : -1; }
ftk_token ftk_token_eos(const ftk_model *m) { return m->tokenizer ? ftki_tokenizer_eos(m->tokenizer) : -1; }

/* -------------------------------------------------------------------- chat */

/* The text of a token as the templates print it: not NUL-terminated in the model, so copied. */
static ftk_status marker_text(const ftk_model *m, ftk_token id, char text[64], ftk_error *e) {
    size_t len = 0;
    const char *bytes = id < 0 ? "" : ftki_tokenizer_bytes(m->tokenizer, id, true, &len);
    if (len >= 64)
        return ftki_fail(e, FTK_UNSUPPORTED, "token %d, which chat templates print, is longer than "
                         "63 bytes", id);
    memcpy(text, bytes, len);
    text[len] = '\0';
    return FTK_OK;
}

static ftk_status render(ftki_chat_text *out, const ftk_model *m, const char *family,
                         const ftk_message *messages, size_t n, bool add_generation_prompt,
                         char bos[64], ftk_error *e) {
    char eos[64];
    FTKI_TRY(want_vocabulary(m, e));
    if (!family && !m->chat_family)
        return ftki_fail(e, FTK_UNSUPPORTED, "%s; choose one of: %s",
                         m->has_template ? "the model's chat template is not one we know"
                                         : "the model's file has no chat template",
                         ftki_chat_families());
    FTKI_TRY(marker_text(m, ftki_tokenizer_bos(m->tokenizer), bos, e));
    FTKI_TRY(marker_text(m, ftki_tokenizer_eos(m->tokenizer), eos, e));
    return ftki_chat_render(out, family ? family : m->chat_family, bos, eos, messages, n,
                            add_generation_prompt, e);
}

ftk_status ftk_chat_render(const ftk_model *m, const char *family, const ftk_message *messages,
                           size_t n, bool add_generation_prompt, char *text, size_t cap,
                           size_t *len, ftk_error *e) {
    if (!m || !len || (!text && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, text and len must not be NULL");
    char bos[64];
    ftki_chat_text out = {0};
    FTKI_TRY(render(&out, m, family, messages, n, add_generation_prompt, bos, e));
    size_t taken = out.len < cap ? out.len : cap;
    if (taken > 0) memcpy(text, out.text, taken);
    *len = out.len;
    ftki_chat_free(&out);
    return FTK_OK;
}

ftk_status ftk_chat_tokens(const ftk_model *m, const char *family, const ftk_message *messages,
                           size_t n, bool add_generation_prompt, ftk_token *ids, size_t cap,
                           size_t *n_ids, ftk_error *e) {
    if (!m || !n_ids || (!ids && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, ids and n_ids must not be NULL");
    char bos[64];
    ftki_chat_text out = {0};
    FTKI_TRY(render(&out, m, family, messages, n, add_generation_prompt, bos, e));
    /* A template that prints BOS itself must not get a second one. */
    size_t bos_len = strlen(bos);
    bool printed = bos_len > 0 && out.len >= bos_len && memcmp(out.text, bos, bos_len) == 0;
    ftk_status status = ftki_tokenizer_encode_plain(
        m->tokenizer, out.len > 0 ? out.text : "", out.len, out.plain, out.n_plain,
        FTK_TOKENIZE_SPECIAL | (printed ? 0 : FTKI_TOKENIZE_BOS), ids, cap, n_ids, e);
    ftki_chat_free(&out);
    return status;
}

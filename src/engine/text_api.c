// SPDX-License-Identifier: Apache-2.0
/* The public text functions, bound to a model: arguments checked here, work done in src/text. */
#include "engine/model.h"

ftk_status ftk_tokenize(const ftk_model *m, const char *text, size_t len, int flags, ftk_token *ids,
                        size_t cap, size_t *n, ftk_error *e) {
    if (!m || !n || (!text && len > 0) || (!ids && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, text, ids and n must not be NULL");
    if (flags & ~(FTK_TOKENIZE_SPECIAL | FTK_TOKENIZE_BOS_EOS))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "flags 0x%x holds bits that mean nothing",
                         (unsigned)flags);
    return ftki_tokenizer_encode(m->tokenizer, text ? text : "", len, flags, ids, cap, n, e);
}

const char *ftk_token_bytes(const ftk_model *m, ftk_token id, bool special, size_t *len) {
    size_t ignored;
    return ftki_tokenizer_bytes(m->tokenizer, id, special, len ? len : &ignored);
}

ftk_status ftk_detokenize(const ftk_model *m, const ftk_token *ids, size_t n, bool special,
                          char *text, size_t cap, size_t *len, ftk_error *e) {
    if (!m || !len || (!ids && n > 0) || (!text && cap > 0))
        return ftki_fail(e, FTK_INVALID_ARGUMENT, "model, ids, text and len must not be NULL");
    return ftki_tokenizer_decode(m->tokenizer, ids, n, special, text, cap, len, e);
}

bool ftk_token_is_end(const ftk_model *m, ftk_token id) {
    return ftki_tokenizer_is_end(m->tokenizer, id);
}

bool ftk_token_is_special(const ftk_model *m, ftk_token id) {
    return ftki_tokenizer_is_special(m->tokenizer, id);
}

ftk_token ftk_token_bos(const ftk_model *m) { return ftki_tokenizer_bos(m->tokenizer); }
ftk_token ftk_token_eos(const ftk_model *m) { return ftki_tokenizer_eos(m->tokenizer); }

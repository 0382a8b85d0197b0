// SPDX-License-Identifier: Apache-2.0
/* The objects behind the public handles. */
#ifndef FTKI_ENGINE_MODEL_H
#define FTKI_ENGINE_MODEL_H

#include "engine/reduce.h"
#include "model/decoder.h"
#include "model/encoder.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct ftk_model {
    ftki_gguf gguf;
    ftki_tokenizer *tokenizer; /* NULL: the file has no vocabulary (pictures, sounds) */
    bool has_template;       /* the file carries a chat template */
    const char *chat_family; /* recognised family, NULL: unknown or none */
    ftki_decoder decoder;
    bool is_encoder;         /* `encoder` is filled then, `decoder` has the kernels alone */
    ftki_encoder encoder;
    bool has_weights;        /* false: opened with vocab_only */
    uint64_t fingerprint;    /* of keys, tensor directory and samples of the data */
    uint64_t n_params;
    char *name;              /* NUL-terminated, owned */
    const char *weight_type; /* static */
};

struct ftk_session {
    const ftk_model *model;
    int32_t context;
    ftki_kv kv;
    ftki_scratch scratch;
    ftki_team *team;
    ftki_arena arena;      /* tokens, logits */
    ftk_token *tokens;     /* [context] */
    int32_t n_tokens;
    float *logits;         /* [n_vocab] */
    bool has_logits;
    atomic_bool cancel;
    ftk_progress_fn progress;
    void *progress_ctx;
    ftk_tap_fn tap;
    void *tap_ctx;
    ftki_reducer reducer;
    ftk_stats stats;
};

#endif

// SPDX-License-Identifier: Apache-2.0
/* Model files: any bytes, first as a directory of keys and tensors, then opened as a model and, if
 * that goes, run. What must hold: everything found lies inside the file and is found again by its
 * name; a refusal says why and leaves nothing behind; a model that opens can be used. */
#include <stdlib.h>
#include <string.h>

#include "format/gguf.h"
#include "format/quants.h"
#include "subject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Weights of a tensor to look at: its bounds are what matters, not all its numbers. */
enum { ROW = 4096, PROMPT = 5 };

static bool inside(const void *p, size_t len, const uint8_t *data, size_t size) {
    const uint8_t *at = p;
    return at >= data && at <= data + size && len <= (size_t)(data + size - at);
}

/* Reads the last byte of every value and the last row of every tensor. */
static void walk(const ftki_gguf *g, const uint8_t *data, size_t size) {
    static float row[ROW];
    for (size_t i = 0; i < g->n_keys; i++) {
        const ftki_key *k = &g->keys[i];
        char name[256];
        subject_must(inside(k->name.data, k->name.len, data, size) && inside(k->data, k->bytes, data, size));
        if (k->name.len < sizeof name && !memchr(k->name.data, 0, k->name.len)) {
            memcpy(name, k->name.data, k->name.len);
            name[k->name.len] = 0;
            subject_must(ftki_gguf_key(g, name) == k);
        }
        if (k->type == FTKI_KEY_ARRAY && k->element == FTKI_KEY_STRING) {
            size_t at = 0;
            for (uint64_t t = 0; t < k->count; t++) {
                ftki_text text = ftki_key_next_text(k, &at);
                subject_must(inside(text.data, text.len, data, size));
            }
        }
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const ftki_tensor *t = &g->tensors[i];
        const ftki_type_info *type = ftki_type_find(t->type);
        subject_must(type && ftki_gguf_tensor(g, t->name) == t && inside(t->data, t->bytes, data, size));
        subject_must(t->dims[0] > 0 && t->dims[1] > 0 && t->dims[2] > 0 && t->dims[3] > 0);
        size_t n = t->dims[0] < ROW ? (size_t)t->dims[0] : ROW / type->block * type->block;
        ftki_dequantize_row(t->type, t->data + t->bytes - n / type->block * type->block_bytes, row, n);
    }
}

/* Dense and then with everything that can be left out. */
static void use_encoder(const ftk_model *m, const ftk_encoder_info *info) {
    enum { VALUES = 1 << 18 };
    static float values[VALUES], states[VALUES];
    static const ftk_token tokens[PROMPT] = {0};
    ftk_input in = {.kind = info->input, .ids = tokens, .n = info->max_tokens < PROMPT ? (size_t)info->max_tokens : PROMPT,
                    .values = values, .rows = info->frames, .cols = info->features};
    if (info->input == FTK_INPUT_PIXELS) in.rows = in.cols = info->image_size;
    int64_t n = (int64_t)in.rows * in.cols * (info->input == FTK_INPUT_PIXELS ? info->channels : 1);
    if (info->input != FTK_INPUT_TOKENS && n > VALUES) return;
    for (int64_t i = 0; i < n; i++) values[i] = (float)(i * 37 % 101) / 50 - 1;
    ftk_encoder *s = NULL;
    ftk_error e = {0};
    ftk_status status = ftk_encoder_open(&s, m, &(ftk_encoder_opts){.n_threads = 1, .max_bytes = (uint64_t)256 << 20}, &e);
    if (status != FTK_OK) {
        subject_must(status == FTK_OUT_OF_MEMORY && s == NULL && e.message[0]);
        return;
    }
    ftk_encoder_reduction less = {.merge = 1, .keep = 0.7f, .fine_keep = 0.7f, .fuse = true, .attend = 32,
                                  .patience = info->n_exits > 0, .by = info->n_scorers ? FTK_SELECT_LEARNED : FTK_SELECT_ATTENTION};
    for (int reduced = 0; reduced < 2; reduced++) {
        size_t offsets[2];
        ftk_score_of top;
        ftk_status ran = ftk_encode(s, &in, 1, states, VALUES / (size_t)info->dim, offsets, &e);
        subject_must(ran == FTK_OK || ran == FTK_INVALID_ARGUMENT); /* frames may be odd, pixels few */
        if (ran == FTK_OK) subject_must(offsets[1] >= 1 && offsets[1] <= (size_t)info->max_tokens);
        if (ran == FTK_OK && info->n_labels) subject_must(ftk_classify(s, &in, 1, &top, 1, &e) == FTK_OK && top.label < info->n_labels);
        if (ftk_encoder_reduce(s, &less, &e) != FTK_OK) break;
    }
    ftk_encoder_close(s);
}

static void use(const ftk_model *m) {
    ftk_session *s = NULL;
    ftk_error e = {0};
    ftk_encoder_info info;
    if (ftk_encoder_get_info(m, &info, &e) == FTK_OK) {
        use_encoder(m, &info);
        return;
    }
    ftk_session_opts o = {.context = 32, .n_threads = 1, .chunk = 4};
    ftk_memory memory;
    subject_must(ftk_memory_estimate(m, &o, &memory, &e) == FTK_OK);
    if (memory.scratch > (uint64_t)256 << 20) return; /* honest about a large model: not for here */
    subject_must(ftk_session_open(&s, m, &o, &e) == FTK_OK);
    ftk_token tokens[PROMPT];
    size_t n = 0;
    if (ftk_tokenize(m, "a the", 5, FTK_TOKENIZE_BOS_EOS, tokens, PROMPT, &n, &e) != FTK_OK || n > PROMPT || n == 0)
        for (n = 0; n < 2; n++) tokens[n] = 0;
    subject_must(ftk_prefill(s, tokens, n, &e) == FTK_OK && ftk_decode(s, tokens[0], &e) == FTK_OK);
    subject_must(ftk_session_length(s) == n + 1 && ftk_logits(s, &n) != NULL && n > 0);
    ftk_session_close(s);
}

static void open_model(const uint8_t *data, size_t size, bool vocab_only) {
    subject_file f = subject_file_of(data, size);
    ftk_model *m = NULL;
    ftk_error e = {0};
    ftk_status status = ftk_model_open(&m, f.path, &(ftk_model_opts){.n_threads = 1, .vocab_only = vocab_only}, &e);
    if (status != FTK_OK) subject_must(m == NULL && e.code == status && e.message[0]);
    else if (!vocab_only) use(m);
    ftk_model_close(m);
    subject_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ftki_gguf g;
    ftk_error e = {0};
    ftk_status status = ftki_gguf_parse(&g, data, size, &e);
    if (status != FTK_OK) {
        subject_must(e.code == status && e.message[0] && e.offset <= (int64_t)size);
        return 0;
    }
    walk(&g, data, size);
    ftki_gguf_close(&g);
    open_model(data, size, true);
    open_model(data, size, false);
    return 0;
}

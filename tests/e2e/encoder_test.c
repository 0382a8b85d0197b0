// SPDX-License-Identifier: Apache-2.0
/* Encoders through the public interface on a tiny random BERT: threads, levels and batches agree, everything kept
 * equals dense, what is left out is accounted, bad input and bad files are refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "freetoken/freetoken.h"
#include "kernels/kernels.h"

enum { HIDDEN = 64, FFN = 96, HEADS = 2, LAYERS = 4, VOCAB = 50, CONTEXT = 80, LABELS = 5 };

/* ------------------------------------------------------------- a tiny file */

typedef struct file {
    unsigned char bytes[1 << 20];
    size_t n;
    unsigned char data[1 << 20];
    size_t n_data, n_tensors, count_at, keys_at, n_keys;
    ftki_rng rng;
} file;

static void put(file *f, const void *p, size_t n) {
    assert_true(f->n + n <= sizeof f->bytes);
    memcpy(f->bytes + f->n, p, n);
    f->n += n;
}
static void put_u32(file *f, uint32_t v) { put(f, &v, 4); }
static void put_u64(file *f, uint64_t v) { put(f, &v, 8); }
static void put_text(file *f, const char *s) {
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static void key_u32(file *f, const char *name, uint32_t v) {
    put_text(f, name);
    put_u32(f, 4);
    put_u32(f, v);
    f->n_keys++;
}
static void key_text(file *f, const char *name, const char *v) {
    put_text(f, name);
    put_u32(f, 8);
    put_text(f, v);
    f->n_keys++;
}

/* A tensor of random floats around `mean`. */
static void tensor(file *f, const char *name, uint64_t rows, uint64_t cols, float mean, float spread) {
    put_text(f, name);
    put_u32(f, 2);
    put_u64(f, cols);
    put_u64(f, rows);
    put_u32(f, 0);
    put_u64(f, f->n_data);
    for (uint64_t i = 0; i < rows * cols; i++) {
        float v = mean + spread * (2 * ftki_rng_float(&f->rng) - 1);
        memcpy(f->data + f->n_data, &v, 4);
        f->n_data += 4;
    }
    f->n_data = (f->n_data + 31) & ~(size_t)31;
    f->n_tensors++;
}

static void layer_tensor(file *f, int layer, const char *name, uint64_t rows, uint64_t cols, float mean, float spread) {
    char text[64];
    snprintf(text, sizeof text, "blk.%d.%s", layer, name);
    tensor(f, text, rows, cols, mean, spread);
}

typedef enum damage { WHOLE, NO_NORM, WRONG_SHAPE, STRANGER, NO_HEADS_KEY } damage;

static void build(file *f, damage what) {
    memset(f, 0, sizeof *f);
    ftki_rng_seed(&f->rng, 11);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    f->count_at = f->n;
    put_u64(f, 0);
    put_u64(f, 0);
    key_text(f, "general.architecture", "bert");
    key_u32(f, "bert.block_count", LAYERS);
    key_u32(f, "bert.embedding_length", HIDDEN);
    key_u32(f, "bert.feed_forward_length", FFN);
    if (what != NO_HEADS_KEY) key_u32(f, "bert.attention.head_count", HEADS);
    key_u32(f, "bert.context_length", CONTEXT);
    tensor(f, "token_embd.weight", VOCAB, HIDDEN, 0, 1);
    tensor(f, "position_embd.weight", CONTEXT, HIDDEN, 0, 0.5f);
    tensor(f, "token_types.weight", 1, HIDDEN, 0, 0.5f);
    tensor(f, "token_embd_norm.weight", 1, HIDDEN, 1, 0.2f);
    for (int i = 0; i < LAYERS; i++) {
        layer_tensor(f, i, "attn_qkv.weight", 3 * HIDDEN, what == WRONG_SHAPE && i == 1 ? FFN : HIDDEN, 0, 0.3f);
        layer_tensor(f, i, "attn_output.weight", HIDDEN, HIDDEN, 0, 0.3f);
        layer_tensor(f, i, "attn_norm.weight", 1, HIDDEN, 1, 0.2f);
        layer_tensor(f, i, "ffn_up.weight", FFN, HIDDEN, 0, 0.3f);
        layer_tensor(f, i, "ffn_up.bias", 1, FFN, 0, 0.3f);
        layer_tensor(f, i, "ffn_down.weight", HIDDEN, FFN, 0, 0.3f);
        if (what != NO_NORM) layer_tensor(f, i, "ffn_norm.weight", 1, HIDDEN, 1, 0.2f);
        layer_tensor(f, i, "exit.weight", LABELS, HIDDEN, 0, 0.5f);
    }
    if (what == STRANGER) tensor(f, "blk.0.gate.weight", HIDDEN, HIDDEN, 0, 1);
    tensor(f, "head.weight", LABELS, HIDDEN, 0, 0.5f);
    uint64_t counts[2] = {f->n_tensors, f->n_keys};
    memcpy(f->bytes + f->count_at, counts, sizeof counts);
    while (f->n % 32) put(f, "", 1);
    put(f, f->data, f->n_data);
}

static char path[64];

static ftk_status open_as(ftk_model **m, damage what, const char *isa, ftk_error *e) {
    static file f;
    build(&f, what);
    snprintf(path, sizeof path, "/tmp/encoder-test-%d.gguf", (int)getpid());
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f.bytes, 1, f.n, out), f.n);
    fclose(out);
    ftk_status status = ftk_model_open(m, path, &(ftk_model_opts){.isa = isa}, e);
    unlink(path);
    return status;
}

/* -------------------------------------------------------------------- tests */

static ftk_token ids[3][CONTEXT];
static ftk_input inputs[3];

static void make_inputs(void) {
    static const size_t lengths[3] = {37, CONTEXT, 5};
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < CONTEXT; t++) ids[i][t] = (t * 7 + i * 13 + t * t) % VOCAB;
        inputs[i] = (ftk_input){.kind = FTK_INPUT_TOKENS, .ids = ids[i], .n = lengths[i]};
    }
}

/* logits [LABELS] of input `which` alone. */
static void logits_of(const ftk_model *m, int threads, const ftk_encoder_reduction *r, int which, float *out) {
    ftk_encoder *s = NULL;
    ftk_error e;
    ftk_score_of top;
    assert_int_equal(ftk_encoder_open(&s, m, &(ftk_encoder_opts){.n_threads = threads}, &e), FTK_OK);
    assert_int_equal(ftk_encoder_reduce(s, r, &e), FTK_OK);
    assert_int_equal(ftk_classify(s, &inputs[which], 1, &top, 1, &e), FTK_OK);
    memcpy(out, ftk_encoder_logits(s, 0), LABELS * sizeof *out);
    ftk_encoder_close(s);
}

static void threads_levels_and_batches_agree(void **state) {
    (void)state;
    static const ftk_encoder_reduction policies[] = {
        {0}, {.keep = 0.6f}, {.keep = 0.7f, .fine_keep = 0.7f, .fuse = true}, {.merge = 5}, {.merge = 5, .min_tokens = 50}, {.merge = 4, .merge_local = true},
        {.keep = 0.5f, .by = FTK_SELECT_KEY_NORM}, {.keep = 0.5f, .by = FTK_SELECT_DISTINCT}, {.exit_tau = 0.5f}, {.patience = 2}, {.attend = 40},
        {.attend = 40, .keep = 0.8f, .merge = 2}};
    ftk_error e;
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        float want[3][LABELS], got[LABELS];
        const ftki_kernels *k;
        for (size_t level = 0; (k = ftki_kernels_at(level)) != NULL; level++) {
            ftk_model *m = NULL;
            assert_int_equal(open_as(&m, WHOLE, k->name, &e), FTK_OK);
            for (int i = 0; i < 3; i++)
                for (int threads = 1; threads <= 3; threads++) {
                    bool first = level == 0 && threads == 1;
                    logits_of(m, threads, &policies[p], i, first ? want[i] : got);
                    if (!first) assert_memory_equal(got, want[i], sizeof got);
                }
            ftk_encoder *s = NULL;
            ftk_score_of top[3];
            assert_int_equal(ftk_encoder_open(&s, m, &(ftk_encoder_opts){.n_threads = 2, .max_inputs = 3, .max_tokens = 200}, &e), FTK_OK);
            assert_int_equal(ftk_encoder_reduce(s, &policies[p], &e), FTK_OK);
            /* What another batch left behind in the scratch must not matter. */
            assert_int_equal(ftk_classify(s, (ftk_input[]){inputs[1], inputs[0], inputs[2]}, 3, top, 1, &e), FTK_OK);
            assert_int_equal(ftk_classify(s, inputs, 3, top, 1, &e), FTK_OK);
            for (size_t i = 0; i < 3; i++) assert_memory_equal(ftk_encoder_logits(s, i), want[i], sizeof want[i]);
            ftk_encoder_close(s);
            ftk_model_close(m);
        }
    }
}

static void survivors_are_kept_in_step(void **state) {
    (void)state;
    ftk_model *m = NULL;
    ftk_encoder *s = NULL;
    ftk_error e;
    ftk_score_of top;
    ftk_encoded r;
    int32_t owners[CONTEXT];
    assert_int_equal(open_as(&m, WHOLE, NULL, &e), FTK_OK);
    assert_int_equal(ftk_encoder_open(&s, m, NULL, &e), FTK_OK);
    ftk_encoder_reduction policy = {.merge = 6, .keep = 0.8f, .fine_keep = 0.9f};
    assert_int_equal(ftk_encoder_reduce(s, &policy, &e), FTK_OK);
    assert_int_equal(ftk_classify(s, &inputs[1], 1, &top, 1, &e), FTK_OK);
    assert_int_equal(ftk_encoder_result(s, 0, &r, &e), FTK_OK);
    assert_int_equal(r.tokens_in, CONTEXT);
    assert_true(r.multiply_adds < r.multiply_adds_dense);
    for (int layer = 0; layer < LAYERS; layer++) {
        int32_t highest = -1;
        bool held[CONTEXT] = {false};
        assert_int_equal(ftk_encoder_owners(s, 0, layer, owners, &e), FTK_OK);
        for (int t = 0; t < CONTEXT; t++) {
            assert_in_range(owners[t] + 1, 0, r.ffn_tokens[layer]);
            if (owners[t] >= 0) held[owners[t]] = true;
            if (owners[t] > highest) highest = owners[t];
        }
        assert_int_equal(highest + 1, r.ffn_tokens[layer]);
        for (int i = 0; i <= highest; i++) assert_true(held[i]);
        assert_int_equal(owners[0], 0); /* [CLS] and [SEP] stay where they are */
        assert_int_equal(owners[CONTEXT - 1], highest);
        assert_true(r.ffn_tokens[layer] <= r.attention_tokens[layer]);
    }
    assert_int_equal(ftk_encoder_reduce(s, NULL, &e), FTK_OK);
    ftk_encoder_close(s);
    ftk_model_close(m);
}

static void refuses(const ftk_model *m, ftk_input in, const char *word) {
    ftk_encoder *s = NULL;
    ftk_error e = {0};
    ftk_score_of top = {.label = 77};
    assert_int_equal(ftk_encoder_open(&s, m, NULL, &e), FTK_OK);
    assert_int_equal(ftk_classify(s, &in, 1, &top, 1, &e), FTK_INVALID_ARGUMENT);
    if (!strstr(e.message, word)) fail_msg("'%s' does not say '%s'", e.message, word);
    assert_int_equal(top.label, 77);
    assert_null(ftk_encoder_logits(s, 0));
    ftk_encoder_close(s);
}

static void bad_input_is_refused_by_name(void **state) {
    (void)state;
    ftk_model *m = NULL;
    ftk_error e;
    ftk_token wrong[2] = {1, VOCAB};
    float pixels[4] = {0};
    assert_int_equal(open_as(&m, WHOLE, NULL, &e), FTK_OK);
    refuses(m, (ftk_input){.ids = wrong, .n = 2}, "outside the vocabulary");
    refuses(m, (ftk_input){.ids = ids[0], .n = 0}, "no tokens");
    refuses(m, (ftk_input){.ids = ids[0], .n = CONTEXT + 1}, "cut the text");
    refuses(m, (ftk_input){.kind = FTK_INPUT_PIXELS, .values = pixels, .rows = 2, .cols = 2}, "takes tokens");

    ftk_encoder *s = NULL;
    assert_int_equal(ftk_encoder_open(&s, m, NULL, &e), FTK_OK);
    const struct {
        ftk_encoder_reduction r;
        const char *word;
    } policies[] = {{{.keep = 1.5f}, "keep"}, {{.merge = -1}, "merge"}, {{.by = FTK_SELECT_LEARNED, .keep = 0.5f}, "scorer"},
                    {{.exit_tau = 2}, "exit_tau"}, {{.keeps = (const float[]){0.5f, 1, 1, 1}}, "keeps[0]"}, {{.tile = -4}, "tile"}};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        assert_int_not_equal(ftk_encoder_reduce(s, &policies[i].r, &e), FTK_OK);
        if (!strstr(e.message, policies[i].word)) fail_msg("'%s' does not say '%s'", e.message, policies[i].word);
    }
    ftk_encoder_cancel(s);
    ftk_score_of top;
    assert_int_equal(ftk_classify(s, inputs, 1, &top, 1, &e), FTK_CANCELLED);
    assert_int_equal(ftk_classify(s, inputs, 1, &top, 1, &e), FTK_OK);
    ftk_encoder_close(s);

    ftk_session *session = NULL;
    assert_int_equal(ftk_session_open(&session, m, NULL, &e), FTK_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "encoder"));
    size_t n;
    assert_int_equal(ftk_tokenize(m, "a", 1, 0, NULL, 0, &n, &e), FTK_UNSUPPORTED); /* the file has no vocabulary */
    ftk_model_close(m);
}

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    static const char *const words[] = {[NO_NORM] = "ffn_norm.weight", [WRONG_SHAPE] = "blk.1.attn_qkv.weight",
                                        [STRANGER] = "blk.0.gate.weight", [NO_HEADS_KEY] = "head_count"};
    for (damage d = NO_NORM; d <= NO_HEADS_KEY; d++) {
        ftk_model *m = NULL;
        ftk_error e = {0};
        assert_int_not_equal(open_as(&m, d, NULL, &e), FTK_OK);
        assert_null(m);
        if (!strstr(e.message, words[d])) fail_msg("'%s' does not say '%s'", e.message, words[d]);
    }
}

int main(void) {
    make_inputs();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_levels_and_batches_agree), cmocka_unit_test(survivors_are_kept_in_step),
        cmocka_unit_test(bad_input_is_refused_by_name), cmocka_unit_test(bad_files_are_refused_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Model files that must not open, each with a message that names what is wrong; and files that open
 * but hold nonsense. */
#include "e2e/support.h"

#include <math.h>
#include <sys/stat.h>

/* Opens the file made of g (freed) and expects this failure and these words. */
#define refuse(g, status, ...) refuse_words(g, status, (const char *const[]){__VA_ARGS__, NULL})

static void refuse_words(tiny_gguf *g, ftk_status want, const char *const *words) {
    support_name path = support_path("damaged.gguf");
    assert_true(tiny_gguf_write(g, path.text));
    tiny_gguf_free(g);
    ftk_error e = {0};
    ftk_model *m = NULL;
    ftk_status got = ftk_model_open(&m, path.text, &(ftk_model_opts){.n_threads = 1}, &e);
    assert_null(m);
    support_fails(got, want, &e, words[0], words[0] ? words[1] : NULL, NULL);
    assert_int_equal(ftk_model_open(&m, path.text, NULL, NULL), want);
}

static tiny_gguf model_of(const char *arch) {
    tiny_gguf g;
    tiny_model(&g, &(tiny_opts){.arch = arch, .untied = true});
    return g;
}

static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};

/* M14: every tensor of every family is needed; the output matrix alone may be absent. */
static void a_missing_tensor_is_named(void **state) {
    (void)state;
    for (int a = 0; a < 4; a++) {
        tiny_gguf whole = model_of(archs[a]);
        size_t n = whole.n_tensors;
        tiny_gguf_free(&whole);
        for (size_t i = 0; i < n; i++) {
            tiny_gguf g = model_of(archs[a]);
            char name[64];
            snprintf(name, sizeof name, "%s", g.tensors[i].name);
            if (strncmp(name, "blk.", 4) == 0 && name[4] != '0' && name[4] != '1') {
                tiny_gguf_free(&g);
                continue; /* the last layers are like the first */
            }
            tiny_drop_tensor(&g, name);
            if (strcmp(name, "output.weight") != 0) {
                refuse(&g, FTK_FORMAT, name);
                continue;
            }
            ftk_model *m = support_open_gguf(&g, NULL);
            ftk_model_close(m);
        }
    }
}

static void a_wrong_shape_is_named(void **state) {
    (void)state;
    for (int a = 0; a < 4; a++) {
        tiny_gguf whole = model_of(archs[a]);
        size_t n = whole.n_tensors;
        for (size_t i = 0; i < n && !(strncmp(whole.tensors[i].name, "blk.1", 5) == 0); i++) {
            for (int way = 0; way < 3; way++) {
                tiny_gguf g = model_of(archs[a]);
                char name[64];
                tiny_tensor *t = &g.tensors[i];
                snprintf(name, sizeof name, "%s", t->name);
                /* Fewer rows, rows and columns swapped, a third dimension: all inside the file. */
                if (way == 0 && t->n_dims == 1) t->dims[0] -= 1;
                else if (way == 0) t->dims[1] -= 1;
                else if (way == 1 && (t->n_dims == 1 || t->dims[0] == t->dims[1])) {
                    tiny_gguf_free(&g);
                    continue;
                } else if (way == 1) {
                    uint64_t d = t->dims[0];
                    t->dims[0] = t->dims[1];
                    t->dims[1] = d;
                } else {
                    uint64_t half = t->dims[0] / 2;
                    t->dims[0] = half;
                    t->dims[t->n_dims++] = 2;
                }
                /* The embedding's rows say how many tokens there are: the output disagrees. */
                bool fewer_tokens = way == 0 && strcmp(name, "token_embd.weight") == 0;
                refuse(&g, FTK_FORMAT, fewer_tokens ? "output.weight" : name);
            }
        }
        tiny_gguf_free(&whole);
    }
}

static void unknown_tensors_are_refused(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 1);
    const char *const names[] = {"blk.0.ffn_gate_exps.weight", "blk.1.attn_sinks.weight", "mm.0.weight",
                                 "blk.2.attn_norm.weight", "blk.0.attn_q_norm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_gguf g = model_of("llama");
        tiny_add_tensor(&g, &rng, names[i], FTKI_F32, 64, 1, 0.0f, 1.0f);
        refuse(&g, FTK_UNSUPPORTED, names[i]);
    }
    /* A type we cannot multiply, named. */
    tiny_gguf g = model_of("llama");
    tiny_find_tensor(&g, "blk.0.attn_q.weight")->type = 10; /* Q2_K */
    refuse(&g, FTK_UNSUPPORTED, "blk.0.attn_q.weight", "Q2_K");
    /* A vector that is not F32. */
    g = model_of("llama");
    tiny_tensor *t = tiny_find_tensor(&g, "blk.0.attn_norm.weight");
    t->type = FTKI_Q8_0;
    refuse(&g, FTK_UNSUPPORTED, "blk.0.attn_norm.weight");
}

static void unknown_architectures_are_named(void **state) {
    (void)state;
    tiny_gguf g = model_of("llama");
    tiny_set_text(&g, "general.architecture", "mamba");
    refuse(&g, FTK_UNSUPPORTED, "mamba", "qwen3");
    g = model_of("llama");
    tiny_drop_key(&g, "general.architecture");
    refuse(&g, FTK_FORMAT, "general.architecture");
    g = model_of("llama");
    tiny_set_u32(&g, "general.architecture", 3);
    refuse(&g, FTK_FORMAT, "general.architecture");
    g = model_of("llama");
    tiny_set_text(&g, "general.architecture", "a\nvery\x1b[31m long name that goes on and on and on and on and on and on");
    refuse(&g, FTK_UNSUPPORTED, "architecture");
}

/* M6, M10 and their kind: every count of the shape at 0, too large, larger still, and as text. */
static void counts_out_of_range_are_named(void **state) {
    (void)state;
    const char *const keys[] = {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
                                "llama.attention.head_count", "llama.attention.head_count_kv",
                                "llama.attention.key_length", "llama.context_length", "llama.rope.dimension_count"};
    const uint32_t values[] = {0, 513, 1u << 19, 1u << 31, UINT32_MAX};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            if (strcmp(keys[k], "llama.context_length") == 0 && values[v] > 0 && values[v] <= 1u << 24) continue;
            tiny_gguf g = model_of("llama");
            tiny_set_u32(&g, keys[k], values[v]);
            support_name path = support_path("damaged.gguf");
            assert_true(tiny_gguf_write(&g, path.text));
            tiny_gguf_free(&g);
            ftk_error e = {0};
            ftk_model *m = NULL;
            ftk_status got = ftk_model_open(&m, path.text, NULL, &e);
            assert_null(m);
            assert_true(got == FTK_FORMAT || got == FTK_UNSUPPORTED);
            assert_true(e.message[0]);
            if (values[v] == 0 || values[v] > 1u << 19) {
                if (!strstr(e.message, keys[k])) fail_msg("%s = %u: \"%s\"", keys[k], values[v], e.message);
            }
        }
        tiny_gguf g = model_of("llama");
        tiny_set_text(&g, keys[k], "many");
        refuse(&g, FTK_FORMAT, keys[k]);
    }
    tiny_gguf g = model_of("llama");
    tiny_set_u32(&g, "llama.block_count", 0);
    refuse(&g, FTK_FORMAT, "no layers");
    g = model_of("llama");
    tiny_drop_key(&g, "llama.block_count");
    refuse(&g, FTK_FORMAT, "llama.block_count");
    g = model_of("llama");
    tiny_set_u32(&g, "llama.block_count", 3); /* one more than there are */
    refuse(&g, FTK_FORMAT, "blk.2.");
    g = model_of("llama");
    tiny_set_u32(&g, "llama.block_count", 1); /* one fewer */
    refuse(&g, FTK_UNSUPPORTED, "blk.1.");
    g = model_of("llama");
    tiny_set_u32(&g, "llama.attention.head_count_kv", 3); /* does not divide 4 */
    refuse(&g, FTK_FORMAT, "4", "3");
}

static void real_keys_out_of_range_are_named(void **state) {
    (void)state;
    const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
                                "llama.rope.scaling.factor"};
    const float values[] = {NAN, INFINITY, -1.0f, 1e30f};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            tiny_gguf g = model_of("llama");
            tiny_set_f32(&g, keys[k], values[v]);
            refuse(&g, FTK_FORMAT, keys[k]);
        }
    }
    tiny_gguf g = model_of("llama");
    tiny_set_text(&g, "llama.rope.scaling.type", "longrope");
    refuse(&g, FTK_UNSUPPORTED, "longrope");
    g = model_of("llama");
    tiny_set_u32(&g, "llama.expert_count", 8);
    refuse(&g, FTK_UNSUPPORTED, "expert_count");
}

static void vocabularies_that_do_not_fit(void **state) {
    (void)state;
    const char *const two[] = {"a", "b"};
    tiny_gguf g = model_of("llama");
    tiny_drop_key(&g, "tokenizer.ggml.tokens");
    refuse(&g, FTK_FORMAT, "tokenizer.ggml.tokens");
    g = model_of("llama");
    tiny_set_texts(&g, "tokenizer.ggml.tokens", two, 2); /* token_type has more */
    refuse(&g, FTK_FORMAT, "token");
    g = model_of("llama");
    tiny_drop_key(&g, "tokenizer.ggml.model");
    refuse(&g, FTK_FORMAT, "tokenizer.ggml.model");
    g = model_of("llama");
    tiny_set_text(&g, "tokenizer.ggml.pre", "never heard of"); /* T15 */
    refuse(&g, FTK_UNSUPPORTED, "never heard of");
    /* More tokens than the embedding has rows. */
    tiny_gguf larger;
    tiny_model(&larger, &(tiny_opts){.vocab = 500, .untied = true});
    g = model_of("llama");
    const char *const keys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < larger.n_keys; i++) {
            if (strcmp(larger.keys[i].name, keys[k]) != 0) continue;
            tiny_set_u32(&g, keys[k], 0);
            for (size_t j = 0; j < g.n_keys; j++) {
                if (strcmp(g.keys[j].name, keys[k]) != 0) continue;
                g.keys[j].value.len = 0;
                tiny_put(&g.keys[j].value, larger.keys[i].value.data, larger.keys[i].value.len);
            }
        }
    }
    tiny_gguf_free(&larger);
    refuse(&g, FTK_FORMAT, "500");
}

/* Cut anywhere, the file is refused, and nothing is read past its end (sanitizers look on). */
static void every_cut_is_refused(void **state) {
    (void)state;
    tiny_gguf g;
    tiny_model(&g, &(tiny_opts){.layers = 1, .hidden = 32, .head_dim = 8, .ffn = 32});
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(&g, &len);
    size_t last = g.tensors[g.n_tensors - 1].data.len; /* the padding after it may be absent */
    tiny_gguf_free(&g);
    support_name path = support_path("cut.gguf");
    assert_true(last > 32);
    for (size_t cut = 1; cut <= len - 32; cut += cut < 400 ? 1 : 97) {
        remove(path.text);
        FILE *f = fopen(path.text, "wb");
        assert_non_null(f);
        assert_true(fwrite(bytes, 1, len - cut, f) == len - cut);
        fclose(f);
        ftk_error e = {0};
        ftk_model *m = NULL;
        ftk_status status = ftk_model_open(&m, path.text, &(ftk_model_opts){.n_threads = 1}, &e);
        if (status == FTK_OK) {
            assert_true(cut < 32);
            ftk_model_close(m);
            continue;
        }
        assert_null(m);
        assert_int_equal(status, FTK_FORMAT);
        assert_true(e.message[0]);
    }
    free(bytes);
}

/* Not numbers among the weights: the model may open or not, the program lives on. */
static void nan_weights_do_not_crash(void **state) {
    (void)state;
    const ftki_type types[] = {FTKI_F32, FTKI_F16, FTKI_Q8_0, FTKI_Q4_1};
    const char *const names[] = {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                 "blk.0.attn_v.weight", "blk.1.ffn_down.weight", "blk.0.attn_norm.weight",
                                 "output_norm.weight", "output.weight"};
    for (int t = 0; t < 4; t++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            for (int kv = 0; kv < 3; kv++) {
                tiny_gguf g;
                tiny_model(&g, &(tiny_opts){.type = types[t], .untied = true});
                tiny_tensor *victim = tiny_find_tensor(&g, names[i]);
                /* Every byte 0xFF: NaN as float, half and scale. */
                memset(victim->data.data, 0xFF, i % 2 ? victim->data.len : victim->data.len / 2);
                support_name path = support_path("nan.gguf");
                assert_true(tiny_gguf_write(&g, path.text));
                tiny_gguf_free(&g);
                ftk_error e = {0};
                ftk_model *m = NULL;
                ftk_status status = ftk_model_open(&m, path.text, &(ftk_model_opts){.n_threads = 1}, &e);
                if (status != FTK_OK) {
                    assert_int_equal(status, FTK_FORMAT);
                    continue;
                }
                ftk_session *s = support_session(m, &(ftk_session_opts){.context = 80, .kv_type = (ftk_kv_type)kv,
                                                                        .n_threads = 1});
                ftk_token tokens[70];
                support_tokens(m, tokens, 70, 1);
                support_prefill(s, tokens, 70);
                support_decode(s, 3);
                for (int temperature = 0; temperature < 2; temperature++) {
                    ftk_sampler *p = NULL;
                    assert_ok(ftk_sampler_open(&p, m, &(ftk_sampler_opts){.temperature = (float)temperature}, &e), &e);
                    ftk_generated generated;
                    status = ftk_generate(s, p, &(ftk_generate_opts){.max_tokens = 3}, &generated, &e);
                    assert_true(status == FTK_OK || status == FTK_FORMAT);
                    ftk_sampler_close(p);
                }
                ftk_session_close(s);
                ftk_model_close(m);
            }
        }
    }
}

static void paths_that_cannot_be_read(void **state) {
    (void)state;
    ftk_error e = {0};
    ftk_model *m = NULL;
    support_name path = support_path("missing.gguf");
    support_fails(ftk_model_open(&m, path.text, NULL, &e), FTK_IO, &e, "missing.gguf", NULL);
    support_fails(ftk_model_open(&m, "/tmp", NULL, &e), FTK_IO, &e, "directory", NULL);
    support_fails(ftk_model_open(&m, "/dev/null", NULL, &e), FTK_IO, &e, "/dev/null", NULL);
    path = support_path("empty.gguf");
    FILE *f = fopen(path.text, "wb");
    assert_non_null(f);
    fclose(f);
    support_fails(ftk_model_open(&m, path.text, NULL, &e), FTK_FORMAT, &e, "empty", NULL);
    assert_int_equal(ftk_model_open(&m, NULL, NULL, NULL), FTK_INVALID_ARGUMENT);
    assert_int_equal(ftk_model_open(NULL, path.text, NULL, NULL), FTK_INVALID_ARGUMENT);
    path = support_path("tiny.gguf");
    assert_true(tiny_model_write(NULL, path.text));
    support_fails(ftk_model_open(&m, path.text, &(ftk_model_opts){.isa = "mmx"}, &e), FTK_INVALID_ARGUMENT, &e, "mmx",
                  "scalar", NULL);
    support_fails(ftk_model_open(&m, path.text, &(ftk_model_opts){.n_threads = -1}, &e), FTK_INVALID_ARGUMENT, &e,
                  "n_threads", NULL);
    assert_null(m);
    ftk_model_close(NULL);
}

/* A model without weights tokenizes, and says why it opens no session. */
static void vocabulary_only(void **state) {
    (void)state;
    tiny_gguf g;
    tiny_model(&g, NULL);
    ftk_model *m = support_open_gguf(&g, &(ftk_model_opts){.vocab_only = true});
    ftk_session *s = NULL;
    ftk_error e = {0};
    support_fails(ftk_session_open(&s, m, NULL, &e), FTK_INVALID_ARGUMENT, &e, "vocab_only", NULL);
    ftk_model_info info;
    ftk_model_get_info(m, &info);
    assert_true(info.n_vocab > 256 && info.weight_bytes == 0);
    ftk_model_close(m);
}

typedef struct packing {
    uint64_t calls, refuse_at;
} packing;

static bool watch(void *ctx, const char *phase, uint64_t done, uint64_t total) {
    packing *p = ctx;
    assert_string_equal(phase, "packing");
    assert_true(done <= total);
    return ++p->calls != p->refuse_at;
}

static void opening_can_be_cancelled(void **state) {
    (void)state;
    support_name path = support_path("cancel.gguf");
    assert_true(tiny_model_write(&(tiny_opts){.layers = 8}, path.text));
    packing p = {0};
    ftk_error e = {0};
    ftk_model *m = NULL;
    ftk_model_opts o = {.n_threads = 2, .progress = watch, .progress_ctx = &p};
    assert_ok(ftk_model_open(&m, path.text, &o, &e), &e);
    ftk_model_close(m);
    m = NULL;
    assert_true(p.calls > 0);
    p = (packing){.refuse_at = 1};
    support_fails(ftk_model_open(&m, path.text, &o, &e), FTK_CANCELLED, &e, NULL);
    assert_null(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_wrong_shape_is_named),
        cmocka_unit_test(unknown_tensors_are_refused),
        cmocka_unit_test(unknown_architectures_are_named),
        cmocka_unit_test(counts_out_of_range_are_named),
        cmocka_unit_test(real_keys_out_of_range_are_named),
        cmocka_unit_test(vocabularies_that_do_not_fit),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(nan_weights_do_not_crash),
        cmocka_unit_test(paths_that_cannot_be_read),
        cmocka_unit_test(vocabulary_only),
        cmocka_unit_test(opening_can_be_cancelled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

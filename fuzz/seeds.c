// SPDX-License-Identifier: Apache-2.0
/* Makes the seeds of the fuzzers whose formats change with the code:
 *   fuzz_seeds DIR     writes DIR/gguf/... and DIR/snapshot/...
 * Whole seeds are checked to be accepted, so that the fuzzers begin inside the code and not at its
 * door; damaged ones to be refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "e2e/tiny_model.h"
#include "subject.h"

static const char *directory; /* where seeds go */

static void fail(const char *what) {
    fprintf(stderr, "fuzz_seeds: %s\n", what);
    exit(1);
}

static void make_directory(const char *name, char *path, size_t size) {
    snprintf(path, size, "%s%s%s", directory, *name ? "/" : "", name);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) fail(path);
}

/* ------------------------------------------------------------- model files */

/* Writes the file's bytes [len] and checks that it opens, or does not. */
static void put_bytes(const char *name, const unsigned char *bytes, size_t len, bool opens) {
    char path[512];
    snprintf(path, sizeof path, "%s/gguf/%s", directory, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) != 0) fail(path);
    ftk_model *m = NULL;
    ftk_error e = {0};
    bool opened = ftk_model_open(&m, path, &(ftk_model_opts){.n_threads = 1}, &e) == FTK_OK;
    ftk_model_close(m);
    if (opened != opens) fail(opens ? e.message : path);
}

/* g as a seed; frees it. */
static void put_model(const char *name, tiny_gguf *g, bool opens) {
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(g, &len);
    put_bytes(name, bytes, len, opens);
    free(bytes);
    tiny_gguf_free(g);
}

static tiny_opts small(const char *arch, ftki_type type) {
    bool wide = type == FTKI_Q4_K || type == FTKI_Q5_K || type == FTKI_Q6_K;
    return (tiny_opts){.arch = arch, .type = type, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = wide ? 128 : 16,
                       .hidden = wide ? 256 : 32, .ffn = wide ? 256 : 32};
}

static void whole_models(void) {
    static const ftki_type types[] = {FTKI_F32,  FTKI_F16,  FTKI_BF16, FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_1,
                                      FTKI_Q5_0, FTKI_Q5_1, FTKI_Q4_K, FTKI_Q5_K, FTKI_Q6_K};
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tiny_opts o = small(archs[i % 4], types[i]);
        o.rope = (tiny_rope)(i % 4);
        o.untied = i % 2;
        o.spm = i % 3 == 0;
        tiny_gguf g;
        char name[64];
        tiny_model(&g, &o);
        snprintf(name, sizeof name, "%s-type%d", o.arch, (int)o.type);
        put_model(name, &g, true);
    }
}

/* One thing wrong in each. */
typedef void (*damage)(tiny_gguf *g);

static tiny_tensor *tensor(tiny_gguf *g, const char *name) {
    tiny_tensor *t = tiny_find_tensor(g, name);
    if (!t) fail(name);
    return t;
}

static void zero_dimension(tiny_gguf *g) { tensor(g, "token_embd.weight")->dims[1] = 0; }
static void vast_dimension(tiny_gguf *g) { tensor(g, "token_embd.weight")->dims[1] = (uint64_t)1 << 62; }
static void fewer_rows(tiny_gguf *g) { tensor(g, "blk.0.attn_k.weight")->dims[1] -= 1; }
static void five_dimensions(tiny_gguf *g) { tensor(g, "token_embd.weight")->n_dims = 5; }
static void unknown_type(tiny_gguf *g) { tensor(g, "blk.0.attn_q.weight")->type = 31; }
static void missing_tensor(tiny_gguf *g) { tiny_drop_tensor(g, "blk.0.ffn_up.weight"); }
static void nameless_tensor(tiny_gguf *g) { tensor(g, "output_norm.weight")->name[0] = 0; }
static void data_cut(tiny_gguf *g) { g->tensors[g->n_tensors - 1].data.len /= 2; }
static void nameless_key(tiny_gguf *g) { g->keys[0].name[0] = 0; }
static void many_layers(tiny_gguf *g) { tiny_set_u32(g, "llama.block_count", 1u << 31); }
static void no_layers(tiny_gguf *g) { tiny_set_u32(g, "llama.block_count", 0); }
static void no_heads(tiny_gguf *g) { tiny_set_u32(g, "llama.attention.head_count", 0); }
static void long_array(tiny_gguf *g) {
    tiny_set_i32s(g, "long", (const int32_t[]){1, 2}, 2);
    uint64_t count = (uint64_t)1 << 40;
    memcpy(g->keys[g->n_keys - 1].value.data + 8, &count, sizeof count);
}
static void array_of_arrays(tiny_gguf *g) {
    tiny_set_i32s(g, "nested", (const int32_t[]){1, 2}, 2);
    g->keys[g->n_keys - 1].value.data[4] = 9;
}
static void marker_out_of_range(tiny_gguf *g) { tiny_set_u32(g, "tokenizer.ggml.bos_token_id", 1u << 30); }
static void odd_alignment(tiny_gguf *g) { tiny_set_u32(g, "general.alignment", 3); }

static void damaged_models(void) {
    static const struct {
        const char *name;
        damage apply;
    } kinds[] = {{"zero_dimension", zero_dimension},   {"vast_dimension", vast_dimension},
                 {"fewer_rows", fewer_rows},           {"five_dimensions", five_dimensions},
                 {"unknown_type", unknown_type},       {"missing_tensor", missing_tensor},
                 {"nameless_tensor", nameless_tensor}, {"data_cut", data_cut},
                 {"nameless_key", nameless_key},       {"many_layers", many_layers},
                 {"no_layers", no_layers},             {"no_heads", no_heads},
                 {"long_array", long_array},           {"array_of_arrays", array_of_arrays},
                 {"marker_out_of_range", marker_out_of_range}, {"odd_alignment", odd_alignment}};
    tiny_opts o = small("llama", FTKI_Q4_0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tiny_gguf g;
        tiny_model(&g, &o);
        kinds[i].apply(&g);
        put_model(kinds[i].name, &g, false);
    }
    tiny_gguf g;
    tiny_model(&g, &o);
    size_t len;
    unsigned char *bytes = tiny_gguf_bytes(&g, &len);
    tiny_gguf_free(&g);
    const size_t cuts[] = {0, 4, 8, 23, 24, 100, len / 2};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char name[32];
        snprintf(name, sizeof name, "cut-%zu", cuts[i]);
        put_bytes(name, bytes, cuts[i], false);
    }
    free(bytes);
}

/* --------------------------------------------------------------- snapshots */

/* A session of `tokens` tokens, saved with its logits or without. */
static void save(ftk_kv_type type, size_t tokens, bool logits) {
    static const ftk_token prompt[SUBJECT_CONTEXT] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233};
    char path[512];
    ftk_error e = {0};
    snprintf(path, sizeof path, "%s/snapshot/kv%d-%zu%s", directory, (int)type, tokens, logits ? "" : "-no-logits");
    ftk_session *s = subject_session(type), *again = subject_session(type);
    if (tokens && ftk_prefill(s, prompt, tokens + !logits, &e) != FTK_OK) fail(e.message);
    if (!logits && ftk_session_rewind(s, tokens, &e) != FTK_OK) fail(e.message);
    if (ftk_session_save(s, path, &e) != FTK_OK || ftk_session_restore(again, path, &e) != FTK_OK) fail(e.message);
    if (ftk_session_length(again) != tokens) fail(path);
    ftk_session_close(s);
    ftk_session_close(again);
}

static void snapshots(void) {
    for (int type = 0; type < 3; type++) {
        save((ftk_kv_type)type, 0, true);
        save((ftk_kv_type)type, 3, true);
        save((ftk_kv_type)type, 40, false); /* a full page and the next */
    }
}

int main(int argc, char **argv) {
    char path[512];
    if (argc != 2) fail("usage: fuzz_seeds DIR");
    directory = argv[1];
    make_directory("", path, sizeof path);
    make_directory("gguf", path, sizeof path);
    make_directory("snapshot", path, sizeof path);
    whole_models();
    damaged_models();
    snapshots();
    return 0;
}

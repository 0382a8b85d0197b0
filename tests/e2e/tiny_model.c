// SPDX-License-Identifier: Apache-2.0
/* Tiny random models: keys, vocabulary and tensors as each family's converter names them. */
#include "e2e/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, UNUSED = 5, BYTE = 6 }; /* token types of GGUF */
enum { MAX_VOCAB = 1 << 16, TOKEN_BYTES = 720, PART_BYTES = 16 };

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}";

typedef struct vocabulary {
    char (*text)[TOKEN_BYTES];
    int32_t *type;
    float *score;
    size_t n;
} vocabulary;

static void add_token(vocabulary *v, const char *text, int32_t type, float score) {
    if (v->n == MAX_VOCAB) return;
    snprintf(v->text[v->n], TOKEN_BYTES, "%s", text);
    v->type[v->n] = type;
    v->score[v->n++] = score;
}

/* The printable character that stands for `byte` in a byte-level vocabulary (GPT-2's table):
 * bytes that print stand for themselves, the others follow from U+0100 on. */
static void byte_character(int byte, char *text) {
    int code = 256;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && prints) code = byte;
        if (b < byte && !prints) code++;
    }
    if (code < 128) {
        text[0] = (char)code;
        text[1] = 0;
    } else {
        text[0] = (char)(0xC0 | code >> 6);
        text[1] = (char)(0x80 | (code & 63));
        text[2] = 0;
    }
}

/* Left and right parts, in merge order; "_" is a space. Parts are bytes or earlier results. */
static const char *const merges[][2] = {
    {"t", "h"},   {"i", "n"},   {"th", "e"},   {"_", "the"}, {"a", "n"},  {"o", "n"},  {"e", "r"},
    {"r", "e"},   {"_", "a"},   {"an", "d"},   {"_", "and"}, {"in", "g"}, {"o", "u"},  {"_", "o"},
    {"_o", "f"},  {"e", "n"},   {"_", "t"},    {"_t", "o"},  {"_", "in"}, {"e", "s"},  {"l", "l"},
    {"h", "e"},   {"he", "ll"}, {"hell", "o"}, {"e", "ll"}, {"H", "ell"}, {"o", "r"},  {"_", "w"},  {"or", "l"},
    {"_w", "orl"},{"_worl", "d"},{"s", "t"},   {"i", "s"},   {"_", "is"}, {"_", "_"},  {"__", "__"}};
enum { N_MERGES = sizeof merges / sizeof *merges };

/* The part with "_" replaced by what the vocabulary writes for a space. */
static void spell(const char *part, const char *space, char *out) {
    out[0] = 0;
    for (; *part; part++) {
        char one[2] = {*part, 0};
        strcat(out, *part == '_' ? space : one);
    }
}

static void vocabulary_bytes(tiny_gguf *g, vocabulary *v, const tiny_opts *o) {
    const char *names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    int32_t special = o->no_end ? NORMAL : CONTROL;
    add_token(v, o->no_end ? "<a>" : names[0], special, 0);
    add_token(v, names[1], CONTROL, 0);
    add_token(v, o->no_end ? "<b>" : names[2], special, 0);
    for (int b = 0; b < 256; b++) {
        char text[4];
        byte_character(b, text);
        add_token(v, text, NORMAL, 0);
    }
    char pairs[N_MERGES][2 * PART_BYTES];
    const char *list[N_MERGES];
    for (size_t i = 0; i < N_MERGES; i++) {
        char left[PART_BYTES], right[PART_BYTES], both[2 * PART_BYTES];
        spell(merges[i][0], "\xC4\xA0", left);
        spell(merges[i][1], "\xC4\xA0", right);
        snprintf(pairs[i], sizeof pairs[i], "%s %s", left, right);
        snprintf(both, sizeof both, "%s%s", left, right);
        add_token(v, both, NORMAL, 0);
        list[i] = pairs[i];
    }
    for (size_t i = 0; i < o->n_pieces; i++) {
        char text[TOKEN_BYTES];
        size_t at = 0;
        for (const unsigned char *p = (const unsigned char *)o->pieces[i]; *p && at + 4 < TOKEN_BYTES; p++) {
            byte_character(*p, text + at);
            at += strlen(text + at);
        }
        add_token(v, text, NORMAL, 0);
    }
    tiny_set_text(g, "tokenizer.ggml.model", "gpt2");
    tiny_set_text(g, "tokenizer.ggml.pre", strncmp(o->arch, "qwen", 4) == 0 ? "qwen2" : "smollm");
    tiny_set_texts(g, "tokenizer.ggml.merges", list, N_MERGES);
    tiny_set_u32(g, "tokenizer.ggml.bos_token_id", 1);
    if (!o->no_end) tiny_set_u32(g, "tokenizer.ggml.eos_token_id", 2);
    tiny_set_bool(g, "tokenizer.ggml.add_bos_token", false);
    if (!o->no_template) tiny_set_text(g, "tokenizer.chat_template", chatml);
}

static void vocabulary_pieces(tiny_gguf *g, vocabulary *v, const tiny_opts *o) {
    bool gemma = strcmp(o->arch, "gemma3") == 0;
    int32_t special = o->no_end ? NORMAL : CONTROL;
    uint32_t bos, eos, unk;
    if (gemma) {
        add_token(v, "<pad>", CONTROL, 0);
        add_token(v, o->no_end ? "<a>" : "<eos>", special, 0);
        add_token(v, "<bos>", CONTROL, 0);
        add_token(v, "<unk>", UNKNOWN, 0);
        add_token(v, "<start_of_turn>", CONTROL, 0);
        add_token(v, o->no_end ? "<b>" : "<end_of_turn>", special, 0);
        eos = 1, bos = 2, unk = 3;
    } else {
        add_token(v, "<unk>", UNKNOWN, 0);
        add_token(v, "<s>", CONTROL, 0);
        add_token(v, o->no_end ? "<a>" : "</s>", special, 0);
        unk = 0, bos = 1, eos = 2;
    }
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        add_token(v, text, BYTE, 0);
    }
    for (size_t i = 0; i < N_MERGES; i++) {
        char left[PART_BYTES], right[PART_BYTES], both[2 * PART_BYTES];
        spell(merges[i][0], "\xE2\x96\x81", left);
        spell(merges[i][1], "\xE2\x96\x81", right);
        snprintf(both, sizeof both, "%s%s", left, right);
        add_token(v, both, NORMAL, -(float)i);
    }
    for (int c = 32; c < 127; c++) {
        char one[2] = {(char)c, 0};
        add_token(v, c == 32 ? "\xE2\x96\x81" : one, NORMAL, -1000.0f - (float)c);
    }
    tiny_set_text(g, "tokenizer.ggml.model", "llama");
    if (gemma) tiny_set_bool(g, "tokenizer.ggml.add_space_prefix", false);
    tiny_set_u32(g, "tokenizer.ggml.bos_token_id", bos);
    if (!o->no_end) tiny_set_u32(g, "tokenizer.ggml.eos_token_id", eos);
    tiny_set_u32(g, "tokenizer.ggml.unknown_token_id", unk);
    tiny_set_bool(g, "tokenizer.ggml.add_bos_token", true);
    tiny_set_bool(g, "tokenizer.ggml.add_eos_token", false);
}

/* Sets the tokenizer keys and returns the number of tokens. */
static int32_t add_vocabulary(tiny_gguf *g, const tiny_opts *o) {
    vocabulary v = {.text = calloc(MAX_VOCAB, TOKEN_BYTES), .type = calloc(MAX_VOCAB, sizeof *v.type),
                    .score = calloc(MAX_VOCAB, sizeof *v.score)};
    const char **list = calloc(MAX_VOCAB, sizeof *list);
    if (!v.text || !v.type || !v.score || !list) exit(3);
    if (o->spm) vocabulary_pieces(g, &v, o);
    else vocabulary_bytes(g, &v, o);
    while (v.n < (size_t)o->vocab && v.n < MAX_VOCAB) {
        char text[TOKEN_BYTES];
        snprintf(text, sizeof text, "[PAD%zu]", v.n);
        add_token(&v, text, UNUSED, -10000.0f);
    }
    for (size_t i = 0; i < v.n; i++) list[i] = v.text[i];
    tiny_set_texts(g, "tokenizer.ggml.tokens", list, v.n);
    tiny_set_i32s(g, "tokenizer.ggml.token_type", v.type, v.n);
    if (o->spm) tiny_set_f32s(g, "tokenizer.ggml.scores", v.score, v.n);
    int32_t n = (int32_t)v.n;
    free(v.text);
    free(v.type);
    free(v.score);
    free(list);
    return n;
}

static void set_defaults(tiny_opts *o) {
    if (!o->arch) o->arch = "llama";
    bool gemma = strcmp(o->arch, "gemma3") == 0;
    bool wide = o->type == FTKI_Q4_K || o->type == FTKI_Q5_K || o->type == FTKI_Q6_K;
    if (!o->layers) o->layers = gemma ? 7 : 2;
    if (!o->heads) o->heads = 4;
    if (!o->kv_heads) o->kv_heads = 2;
    if (!o->head_dim) o->head_dim = 16;
    if (!o->hidden) o->hidden = wide ? 256 : 64;
    if (!o->ffn) o->ffn = wide ? 256 : 96;
    if (!o->context) o->context = 4096;
    if (!o->window) o->window = 16;
    if (gemma) o->spm = true;
}

static void add_keys(tiny_gguf *g, const tiny_opts *o) {
    bool gemma = strcmp(o->arch, "gemma3") == 0;
    char name[96];
#define KEY(suffix) (snprintf(name, sizeof name, "%s." suffix, o->arch), name)
    tiny_set_text(g, "general.architecture", o->arch);
    tiny_set_text(g, "general.name", "tiny random model");
    tiny_set_u32(g, KEY("block_count"), (uint32_t)o->layers);
    tiny_set_u32(g, KEY("context_length"), (uint32_t)o->context);
    tiny_set_u32(g, KEY("embedding_length"), (uint32_t)o->hidden);
    tiny_set_u32(g, KEY("feed_forward_length"), (uint32_t)o->ffn);
    tiny_set_u32(g, KEY("attention.head_count"), (uint32_t)o->heads);
    tiny_set_u32(g, KEY("attention.head_count_kv"), (uint32_t)o->kv_heads);
    tiny_set_u32(g, KEY("attention.key_length"), (uint32_t)o->head_dim);
    tiny_set_u32(g, KEY("attention.value_length"), (uint32_t)o->head_dim);
    tiny_set_f32(g, KEY("attention.layer_norm_rms_epsilon"), 1e-5f);
    tiny_set_u32(g, KEY("rope.dimension_count"), (uint32_t)o->head_dim);
    tiny_set_f32(g, KEY("rope.freq_base"), gemma ? 1e6f : 1e4f);
    if (gemma) tiny_set_u32(g, KEY("attention.sliding_window"), (uint32_t)o->window);
    if (o->rope == TINY_ROPE_LINEAR || o->rope == TINY_ROPE_YARN) {
        tiny_set_text(g, KEY("rope.scaling.type"), o->rope == TINY_ROPE_YARN ? "yarn" : "linear");
        tiny_set_f32(g, KEY("rope.scaling.factor"), 4.0f);
        tiny_set_u32(g, KEY("rope.scaling.original_context_length"), (uint32_t)o->context / 4);
    }
#undef KEY
}

/* A matrix of the wished type, or the nearest that its rows fit. */
static void add_matrix(tiny_gguf *g, ftki_rng *rng, const tiny_opts *o, const char *name,
                       int32_t cols, int32_t rows, float deviation) {
    uint32_t type = o->type, block = 1, bytes = 4;
    if (!tiny_type(type, &block, &bytes) || (uint32_t)cols % block != 0)
        type = cols % 32 == 0 ? FTKI_Q8_0 : FTKI_F32;
    tiny_add_tensor(g, rng, name, type, (uint64_t)cols, (uint64_t)rows, 0.0f, deviation);
}

static void add_layer(tiny_gguf *g, ftki_rng *rng, const tiny_opts *o, int32_t layer) {
    int32_t q_rows = o->heads * o->head_dim, kv_rows = o->kv_heads * o->head_dim;
    float to_hidden = 1.0f / sqrtf((float)o->hidden);
    char name[96];
#define NAME(suffix) (snprintf(name, sizeof name, "blk.%d." suffix, (int)layer), name)
#define VECTOR(suffix, n, mean) \
    tiny_add_tensor(g, rng, NAME(suffix), FTKI_F32, (uint64_t)(n), 1, mean, 0.1f)
#define MATRIX(suffix, cols, rows, deviation) add_matrix(g, rng, o, NAME(suffix), cols, rows, deviation)
    VECTOR("attn_norm.weight", o->hidden, 1.0f);
    /* Queries and keys twice as large as balance asks, so that attention is not flat. */
    MATRIX("attn_q.weight", o->hidden, q_rows, 2.0f * to_hidden);
    MATRIX("attn_k.weight", o->hidden, kv_rows, 2.0f * to_hidden);
    MATRIX("attn_v.weight", o->hidden, kv_rows, to_hidden);
    if (strcmp(o->arch, "qwen2") == 0) {
        VECTOR("attn_q.bias", q_rows, 0.0f);
        VECTOR("attn_k.bias", kv_rows, 0.0f);
        VECTOR("attn_v.bias", kv_rows, 0.0f);
    }
    if (strcmp(o->arch, "qwen3") == 0 || strcmp(o->arch, "gemma3") == 0) {
        VECTOR("attn_q_norm.weight", o->head_dim, 1.5f);
        VECTOR("attn_k_norm.weight", o->head_dim, 1.5f);
    }
    MATRIX("attn_output.weight", q_rows, o->hidden, 1.0f / sqrtf((float)q_rows));
    if (strcmp(o->arch, "gemma3") == 0) VECTOR("post_attention_norm.weight", o->hidden, 1.0f);
    VECTOR("ffn_norm.weight", o->hidden, 1.0f);
    MATRIX("ffn_gate.weight", o->hidden, o->ffn, to_hidden);
    MATRIX("ffn_up.weight", o->hidden, o->ffn, to_hidden);
    MATRIX("ffn_down.weight", o->ffn, o->hidden, 1.0f / sqrtf((float)o->ffn));
    if (strcmp(o->arch, "gemma3") == 0) VECTOR("post_ffw_norm.weight", o->hidden, 1.0f);
#undef NAME
#undef VECTOR
#undef MATRIX
}

void tiny_model(tiny_gguf *g, const tiny_opts *opts) {
    tiny_opts o = opts ? *opts : (tiny_opts){0};
    set_defaults(&o);
    memset(g, 0, sizeof *g);
    add_keys(g, &o);
    int32_t n_vocab = add_vocabulary(g, &o);
    ftki_rng rng;
    ftki_rng_seed(&rng, o.seed);
    bool gemma = strcmp(o.arch, "gemma3") == 0;
    /* Gemma multiplies embeddings by sqrt(hidden). */
    float deviation = gemma ? 1.0f / sqrtf((float)o.hidden) : 0.3f;
    add_matrix(g, &rng, &o, "token_embd.weight", o.hidden, n_vocab, deviation);
    if (o.rope == TINY_ROPE_LLAMA3) {
        tiny_tensor *t = tiny_add_tensor(g, &rng, "rope_freqs.weight", FTKI_F32,
                                         (uint64_t)o.head_dim / 2, 1, 1.0f, 0.0f);
        for (int32_t i = o.head_dim / 4; i < o.head_dim / 2; i++) {
            float slower = i < o.head_dim * 3 / 8 ? 3.0f : 8.0f;
            memcpy(t->data.data + 4 * (size_t)i, &slower, 4);
        }
    }
    for (int32_t l = 0; l < o.layers; l++) add_layer(g, &rng, &o, l);
    tiny_add_tensor(g, &rng, "output_norm.weight", FTKI_F32, (uint64_t)o.hidden, 1, 1.0f, 0.1f);
    if (o.untied)
        add_matrix(g, &rng, &o, "output.weight", o.hidden, n_vocab, 3.0f / sqrtf((float)o.hidden));
}

/* ---- the reciter */

enum { RECITER_FIRST = 3 + 256 + N_MERGES, RECITER_END = 2 };

int32_t tiny_reciter_token(size_t i) { return RECITER_FIRST + (int32_t)i; }

/* Embeddings are the axes of the space, the layers add nothing, and row t + 1 of the output looks
 * along axis t. */
void tiny_reciter(tiny_gguf *g, const char *const *pieces, size_t n, bool loop) {
    int32_t n_vocab = RECITER_FIRST + (int32_t)n, hidden = (n_vocab + 31) / 32 * 32;
    tiny_model(g, &(tiny_opts){.layers = 1, .heads = 1, .kv_heads = 1, .head_dim = 32, .hidden = hidden,
                               .ffn = 32, .untied = true, .pieces = pieces, .n_pieces = n});
    const char *const zeroed[] = {"blk.0.attn_output.weight", "blk.0.ffn_down.weight", "token_embd.weight",
                                  "output.weight"};
    float *values[4];
    for (int i = 0; i < 4; i++) {
        tiny_tensor *t = tiny_find_tensor(g, zeroed[i]);
        values[i] = (float *)(void *)t->data.data;
        memset(values[i], 0, t->data.len);
    }
    for (int32_t t = 0; t < n_vocab; t++) {
        int32_t next = t < RECITER_FIRST ? RECITER_FIRST : t + 1;
        if (next == n_vocab) next = loop ? RECITER_FIRST : RECITER_END;
        values[2][t * hidden + t] = 1.0f;
        values[3][next * hidden + t] = 1.0f;
    }
    float *norm = (float *)(void *)tiny_find_tensor(g, "output_norm.weight")->data.data;
    for (int32_t i = 0; i < hidden; i++) norm[i] = 1.0f;
}

bool tiny_model_write(const tiny_opts *o, const char *path) {
    tiny_gguf g;
    tiny_model(&g, o);
    bool ok = tiny_gguf_write(&g, path);
    tiny_gguf_free(&g);
    return ok;
}

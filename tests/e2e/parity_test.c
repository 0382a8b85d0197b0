// SPDX-License-Identifier: Apache-2.0
/* An INT8 cache says nearly what an F32 cache says, and this test would notice if it did not: with
 * any of its scales dropped or exchanged the bound is broken. */
#include "e2e/support.h"

#include <math.h>

#include "engine/model.h"
#include "kernels/kv_layout.h"

enum { N = 100 };

static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma3"};

/* || a - b || / || b || over logits less their mean, which softmax does not see. */
static double distance(const float *a, const float *b, size_t n) {
    double mean_a = 0.0, mean_b = 0.0, off = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        mean_a += (double)a[i] / (double)n;
        mean_b += (double)b[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i] - mean_a, y = (double)b[i] - mean_b;
        off += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(off / size);
}

/* Heads of one size and widely different keys and values, so that each entry's scale matters. */
static ftk_model *model_of(const char *arch) {
    tiny_gguf g;
    tiny_model(&g, &(tiny_opts){.arch = arch, .untied = true, .heads = 8, .kv_heads = 2, .head_dim = 32});
    tiny_tensor *embedding = tiny_find_tensor(&g, "token_embd.weight");
    float *row = (float *)(void *)embedding->data.data;
    for (uint64_t t = 0; t < embedding->dims[1]; t++)
        for (uint64_t i = 0; i < embedding->dims[0]; i++, row++) *row *= t % 3 == 0 ? 3.0f : 1.0f;
    return support_open_gguf(&g, &(ftk_model_opts){.n_threads = 1});
}

/* Mean distance to the F32 cache over `steps` decoded tokens. */
static double mean_distance(ftk_session *s, const float *want, const ftk_token *next, int steps, size_t width) {
    double sum = 0.0;
    for (int i = 0; i < steps; i++) {
        support_decode(s, next[i]);
        size_t n;
        sum += distance(ftk_logits(s, &n), want + (size_t)i * width, width) / steps;
    }
    return sum;
}

typedef enum damage { NONE, NO_K_SCALE, NO_V_SCALE, NEIGHBOURS_K, NEIGHBOURS_V, N_DAMAGES } damage;

static void hurt(ftk_session *s, damage d) {
    for (int32_t i = 0; i < s->kv.n_layers * s->kv.n_kv_heads; i++) {
        const ftki_kv_list *l = &s->kv.lists[i];
        for (int32_t page = 0; page < l->n_pages; page++) {
            float *k = ftki_page_k_scale(l->pages[page]), *v = ftki_page_v_log(l->pages[page]), first_k = k[0],
                  first_v = v[0];
            for (int32_t slot = 0; slot < FTKI_PAGE; slot++) {
                bool last = slot + 1 == FTKI_PAGE;
                if (d == NO_K_SCALE) k[slot] = 1.0f;
                if (d == NO_V_SCALE) v[slot] = 0.0f; /* kept as a logarithm */
                if (d == NEIGHBOURS_K) k[slot] = last ? first_k : k[slot + 1];
                if (d == NEIGHBOURS_V) v[slot] = last ? first_v : v[slot + 1];
            }
        }
    }
}

static void int8_is_close_to_f32(void **state) {
    (void)state;
    static const double bound = 0.05;
    for (int a = 0; a < 4; a++) {
        ftk_model *m = model_of(archs[a]);
        ftk_token tokens[N + 8];
        support_tokens(m, tokens, N + 8, 5);
        ftk_model_info info;
        ftk_model_get_info(m, &info);
        size_t width = (size_t)info.n_vocab;
        float *want = malloc(8 * width * sizeof *want);
        assert_non_null(want);
        ftk_error e = {0};
        ftk_session *exact = support_session(m, &(ftk_session_opts){.context = 128, .kv_type = FTK_KV_F32, .n_threads = 1});
        support_prefill(exact, tokens, N);
        assert_ok(ftk_score(exact, tokens + N, 8, want, &e), &e);
        ftk_session *half = support_session(m, &(ftk_session_opts){.context = 128, .kv_type = FTK_KV_F16, .n_threads = 1});
        support_prefill(half, tokens, N);
        double of_half = mean_distance(half, want, tokens + N, 8, width);
        assert_true(of_half > 0.0 && of_half < 0.002);
        for (damage d = NONE; d < N_DAMAGES; d++) {
            ftk_session *s = support_session(m, &(ftk_session_opts){.context = 128, .n_threads = 1});
            support_prefill(s, tokens, N);
            hurt(s, d);
            double far = mean_distance(s, want, tokens + N, 8, width);
            if (getenv("FTK_TEST_VERBOSE"))
                print_message("%s, damage %d: INT8 %.4f, F16 %.6f\n", archs[a], (int)d, far, of_half);
            if (d == NONE) assert_true(far > 0.0 && far < bound);
            else if (!(far > bound)) fail_msg("%s: damage %d goes unnoticed, distance %.4f", archs[a], (int)d, far);
            ftk_session_close(s);
        }
        free(want);
        ftk_session_close(exact);
        ftk_session_close(half);
        ftk_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(int8_is_close_to_f32)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

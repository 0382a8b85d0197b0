// SPDX-License-Identifier: Apache-2.0
/* Numbers to blocks: error bounds of each type, the quality of Q4_K, and odd inputs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "format/quants.h"

enum { N = 256 };

/* About normal: the sum of twelve uniform numbers; one in 97 is an outlier. */
static void random_weights(ftki_rng *rng, float *w, float sigma) {
    for (int i = 0; i < N; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) sum += ftki_rng_float(rng);
        w[i] = sum * sigma * (i % 97 == 5 ? 4.0f : 1.0f);
    }
}

static void round_trip(ftki_type type, const float *w, float *back) {
    unsigned char blocks[4 * N];
    memset(blocks, 0xA5, sizeof blocks);
    ftki_quantize_row(type, w, blocks, N);
    const ftki_type_info *info = ftki_type_find((uint32_t)type);
    size_t used = N / info->block * info->block_bytes;
    for (size_t i = used; i < sizeof blocks; i++) assert_int_equal(blocks[i], 0xA5);
    ftki_dequantize_row(type, blocks, back, N);
}

static void what_can_be_quantized(void **state) {
    (void)state;
    static const ftki_type can[] = {FTKI_F32, FTKI_F16, FTKI_BF16, FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_K};
    int n = 0;
    for (uint32_t t = 0; t < 64; t++) n += ftki_can_quantize((ftki_type)t);
    assert_int_equal(n, 6);
    for (int i = 0; i < 6; i++) assert_true(ftki_can_quantize(can[i]));
}

static void floats_round_to_nearest(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 1);
    float w[N], back[N];
    for (int trial = 0; trial < 100; trial++) {
        random_weights(&rng, w, 0.05f);
        round_trip(FTKI_F32, w, back);
        assert_memory_equal(w, back, sizeof w);
        round_trip(FTKI_F16, w, back);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(back[i] - w[i]) <= fmaxf(fabsf(w[i]) * 0x1p-11f, 0x1p-25f));
        round_trip(FTKI_BF16, w, back);
        for (int i = 0; i < N; i++) assert_true(fabsf(back[i] - w[i]) <= fabsf(w[i]) * 0x1p-8f);
    }
    const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.00390625f, 1.01171875f, 3.4e38f};
    float row[N] = {0};
    memcpy(row, special, sizeof special);
    round_trip(FTKI_BF16, row, back);
    assert_true(back[0] == 0 && !signbit(back[0]) && signbit(back[1]));
    assert_true(back[2] == INFINITY && back[3] == -INFINITY && isnan(back[4]));
    assert_true(back[5] == 1.0f && back[6] == 1.015625f); /* ties to even */
    assert_true(back[7] == INFINITY || back[7] > 3.38e38f);
}

static void q8_0_errs_by_half_a_step(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 2);
    float w[N], back[N];
    for (int trial = 0; trial < 300; trial++) {
        random_weights(&rng, w, trial % 3 == 0 ? 1e-4f : trial % 3 == 1 ? 0.05f : 300.0f);
        round_trip(FTKI_Q8_0, w, back);
        for (int b = 0; b < N; b += 32) {
            float most = 0;
            for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(w[b + i]));
            /* Half a step, plus what rounding the scale to 11 bits (denormal: less) loses. */
            float step = most / 127, bound = 0.5f * step * 1.001f + most * 0x1p-11f + 127 * 0x1p-25f;
            for (int i = 0; i < 32; i++) assert_true(fabsf(back[b + i] - w[b + i]) <= bound);
        }
    }
}

static void q4_0_errs_by_half_a_step_or_clips_one(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 3);
    float w[N], back[N];
    for (int trial = 0; trial < 300; trial++) {
        random_weights(&rng, w, trial % 2 == 0 ? 0.05f : 300.0f);
        round_trip(FTKI_Q4_0, w, back);
        for (int b = 0; b < N; b += 32) {
            float extreme = 0;
            for (int i = 0; i < 32; i++)
                if (fabsf(w[b + i]) > fabsf(extreme)) extreme = w[b + i];
            float step = fabsf(extreme) / 8;
            for (int i = 0; i < 32; i++) {
                /* +8 steps on the other side than the extreme one do not exist: 7 is the most. */
                bool clipped = w[b + i] * (extreme < 0 ? 1.0f : -1.0f) > 7.5f * step;
                float bound = (clipped ? 1.0f : 0.5f) * step * 1.001f + fabsf(extreme) * 0x1p-10f;
                assert_true(fabsf(back[b + i] - w[b + i]) <= bound);
            }
        }
    }
}

static double squared_error(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < N; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

/* The plain way: each sub-block's range cut into fifteen, scales and mins rounded to 6 bits. */
static double error_of_plain_range(const float *w) {
    float scale[8], min[8], most_scale = 0, most_min = 0, back[N];
    for (int j = 0; j < 8; j++) {
        float low = 0, high = 0;
        for (int l = 0; l < 32; l++) {
            low = fminf(low, w[32 * j + l]);
            high = fmaxf(high, w[32 * j + l]);
        }
        scale[j] = (high - low) / 15;
        min[j] = -low;
        most_scale = fmaxf(most_scale, scale[j]);
        most_min = fmaxf(most_min, min[j]);
    }
    float d = ftki_f16_to_f32(ftki_f32_to_f16(most_scale / 63));
    float dmin = ftki_f16_to_f32(ftki_f32_to_f16(most_min / 63));
    for (int i = 0; i < N; i++) {
        float s = d * fminf(63, rintf(scale[i / 32] / d)), m = dmin * fminf(63, rintf(min[i / 32] / dmin));
        back[i] = s * fminf(15, fmaxf(0, rintf((w[i] + m) / s))) - m;
    }
    return squared_error(w, back);
}

static void q4_k_is_better_than_the_plain_range(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 4);
    double ours = 0, plain = 0, power = 0;
    const float zeros[N] = {0};
    float w[N], back[N];
    for (int trial = 0; trial < 500; trial++) {
        random_weights(&rng, w, 0.05f);
        round_trip(FTKI_Q4_K, w, back);
        ours += squared_error(w, back);
        plain += error_of_plain_range(w);
        power += squared_error(w, zeros);
    }
    double ratio = sqrt(ours / plain), relative = sqrt(ours / power);
    print_message("root mean square error: %.4f of the plain range's, %.4f of the weights\n", ratio,
                  relative);
    assert_true(ratio < 0.95);
    assert_true(relative < 0.09);
}

static void q4_k_bounds_each_error(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 5);
    float w[N], back[N];
    for (int trial = 0; trial < 200; trial++) {
        random_weights(&rng, w, 1.0f);
        round_trip(FTKI_Q4_K, w, back);
        for (int b = 0; b < N; b += 32) {
            float low = 0, high = 0;
            for (int i = 0; i < 32; i++) low = fminf(low, w[b + i]), high = fmaxf(high, w[b + i]);
            for (int i = 0; i < 32; i++)
                assert_true(fabsf(back[b + i] - w[b + i]) < (high - low) / 15 * 2.5f);
        }
    }
}

/* A second trip changes nothing, or nearly so for Q4_K, whose scales are fitted anew. */
static void a_second_trip_is_stable(void **state) {
    (void)state;
    ftki_rng rng;
    ftki_rng_seed(&rng, 6);
    float w[N], once[N], twice[N];
    random_weights(&rng, w, 0.05f);
    round_trip(FTKI_Q8_0, w, once);
    round_trip(FTKI_Q8_0, once, twice);
    assert_memory_equal(once, twice, sizeof once);
    round_trip(FTKI_Q4_0, w, once);
    round_trip(FTKI_Q4_0, once, twice);
    assert_memory_equal(once, twice, sizeof once);
    round_trip(FTKI_Q4_K, w, once);
    round_trip(FTKI_Q4_K, once, twice);
    assert_true(squared_error(once, twice) < 0.02 * squared_error(w, once));
}

static void odd_inputs_give_finite_blocks(void **state) {
    (void)state;
    static const ftki_type types[] = {FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_K};
    const float odd[] = {0.0f,    -0.0f,   NAN,     -NAN,   INFINITY, -INFINITY, 1e-45f, -1e-45f,
                         1e-30f,  -1e-30f, 3.4e38f, -3.4e38f, 1e6f,   -1e6f,     65504.0f, 5e-8f};
    const size_t n_odd = sizeof odd / sizeof odd[0];
    float w[N], back[N];
    for (size_t t = 0; t < 3; t++) {
        for (size_t a = 0; a < n_odd; a++)
            for (size_t b = 0; b < n_odd; b++)
                for (size_t every = 1; every <= 32; every += 31) {
                    for (size_t i = 0; i < N; i++) w[i] = i % 64 == 0 ? odd[a] : i % every == 0 ? odd[b] : 0;
                    round_trip(types[t], w, back);
                    for (int i = 0; i < N; i++) assert_true(isfinite(back[i]));
                }
        memset(w, 0, sizeof w);
        round_trip(types[t], w, back);
        for (int i = 0; i < N; i++) assert_true(back[i] == 0);
    }
}

static void constants_survive(void **state) {
    (void)state;
    static const ftki_type types[] = {FTKI_Q8_0, FTKI_Q4_0, FTKI_Q4_K};
    static const float constants[] = {1.0f, -1.0f, 0.02f, -0.02f, 1000.0f};
    float w[N], back[N];
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < 5; c++) {
            for (int i = 0; i < N; i++) w[i] = constants[c];
            round_trip(types[t], w, back);
            for (int i = 0; i < N; i++)
                assert_true(fabsf(back[i] - w[i]) <= 0.002f * fabsf(w[i]));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_quantized),
        cmocka_unit_test(floats_round_to_nearest),
        cmocka_unit_test(q8_0_errs_by_half_a_step),
        cmocka_unit_test(q4_0_errs_by_half_a_step_or_clips_one),
        cmocka_unit_test(q4_k_is_better_than_the_plain_range),
        cmocka_unit_test(q4_k_bounds_each_error),
        cmocka_unit_test(a_second_trip_is_stable),
        cmocka_unit_test(odd_inputs_give_finite_blocks),
        cmocka_unit_test(constants_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

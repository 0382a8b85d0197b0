// SPDX-License-Identifier: Apache-2.0
/* Selection, adaptive budgets, matching and the survivors map on random input, against naive
 * references. FTK_SEED repeats a run. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "reduce/match.h"
#include "reduce/score.h"
#include "reduce/select.h"
#include "reduce/survivors.h"

enum { CASES = 2000, MOST = 200 };

static ftki_rng rng;
static int32_t below(int32_t n) { return n > 0 ? (int32_t)(ftki_rng_u32(&rng) % (uint32_t)n) : 0; }

static int seed(void **state) {
    (void)state;
    const char *text = getenv("FTK_SEED");
    uint64_t s = text != NULL ? strtoull(text, NULL, 10) : 20;
    printf("seed %llu\n", (unsigned long long)s);
    ftki_rng_seed(&rng, s);
    return 0;
}

/* Few distinct values, so that ties are common; NaN, infinities and both zeros among them. */
static float some_score(void) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f};
    int32_t kind = below(20);
    return kind < 6 ? odd[kind] : (float)(below(15) - 7) * 0.5f;
}

static bool better(float a, float b) { return isnan(b) ? !isnan(a) : a > b; }

static void selection_equals_counting(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        float scores[MOST];
        bool flags[MOST];
        int32_t n = 1 + below(MOST), n_flags = 0, chosen[MOST], scratch[MOST], at = 0;
        for (int32_t i = 0; i < n; i++) {
            scores[i] = some_score();
            n_flags += flags[i] = below(10) == 0;
        }
        int32_t keep = n_flags + below(n - n_flags + 1);
        ftki_select_top(scores, flags, n, keep, chosen, scratch);
        for (int32_t i = 0; i < n; i++) {
            int32_t before = 0; /* unprotected ones that come before i */
            for (int32_t j = 0; j < n; j++)
                before += !flags[j] && (better(scores[j], scores[i]) || (j < i && !better(scores[i], scores[j])));
            if (flags[i] || before < keep - n_flags) assert_int_equal(chosen[at++], i);
        }
        assert_int_equal(at, keep);
        float t = ftki_select_threshold(scores, n, keep, scratch);
        int32_t above = 0, not_below = 0;
        for (int32_t i = 0; keep > 0 && i < n; i++) above += better(scores[i], t), not_below += !better(t, scores[i]);
        if (keep > 0) assert_true(above < keep && not_below >= keep);
    }
}

static void adapted_budgets_add_up(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        float scores[4 * 50];
        int32_t heads = 1 + below(4), n = 1 + below(50), kept[4], scratch[4 * 50], total = 0, after = 0;
        for (int32_t i = 0; i < heads * n; i++) scores[i] = ftki_rng_float(&rng) * (i < n ? 5.0f : 1.0f);
        for (int32_t h = 0; h < heads; h++) total += kept[h] = below(n + 1);
        int32_t at_least = below(n + 1), floor = at_least * heads > total ? total / heads : at_least;
        ftki_budget_adapt(scores, heads, n, at_least, kept, scratch);
        float worst_in = INFINITY, best_out = -INFINITY;
        for (int32_t h = 0; h < heads; h++) {
            int32_t chosen[50], work[50];
            assert_true(kept[h] >= floor && kept[h] <= n);
            after += kept[h];
            ftki_select_top(scores + h * n, NULL, n, kept[h], chosen, work);
            float last = kept[h] > 0 ? ftki_select_threshold(scores + h * n, n, kept[h], work) : INFINITY;
            float next = kept[h] < n ? ftki_select_threshold(scores + h * n, n, kept[h] + 1, work) : -INFINITY;
            if (kept[h] > floor && last < worst_in) worst_in = last;
            if (next > best_out) best_out = next;
        }
        assert_int_equal(after, total);
        assert_true(worst_in >= best_out);
    }
}

static void matching_keeps_its_promises(void **state) {
    (void)state;
    enum { DIM = 13 };
    for (int c = 0; c < CASES; c++) {
        float rows[MOST * DIM], importance[MOST];
        bool flags[MOST];
        int32_t n = 1 + below(MOST), into[MOST], again[MOST], size[MOST] = {0}, n_flags = 0, gone = 0, sum = 0;
        for (int32_t i = 0; i < n * DIM; i++) rows[i] = below(50) == 0 ? 0.0f : ftki_rng_float(&rng) - 0.5f;
        if (n > 2) memcpy(rows + DIM, rows, DIM * sizeof(float));
        for (int32_t i = 0; i < n; i++) {
            importance[i] = ftki_rng_float(&rng);
            n_flags += flags[i] = below(6) == 0;
        }
        ftki_match m = {.rows = rows, .stride = DIM, .n = n, .dim = DIM, .similarity = (ftk_similarity)below(2),
                        .pairing = (ftk_pairing)below(2), .block = 2 + below(63),
                        .importance = below(2) ? importance : NULL, .protected_flags = flags};
        void *scratch = aligned_alloc(64, (ftki_match_scratch_bytes(n, m.block) + 63) / 64 * 64);
        int32_t remove = below(n + 2), most = n - n_flags > 0 ? n - n_flags - 1 : 0;
        ftki_match_costs(&m, 0, n, scratch);
        int32_t removed = ftki_match_pairs(&m, remove, into, scratch);
        assert_int_equal(removed, remove < most ? remove : most);
        for (int32_t i = 0; i < n; i++) {
            assert_in_range(into[i], 0, i);
            assert_int_equal(into[into[i]], into[i]);
            gone += into[i] != i;
            size[into[i]]++;
            if (flags[i]) assert_int_equal(into[i], i);
        }
        for (int32_t i = 0; i < n; i++) {
            sum += size[i];
            if (flags[i]) assert_int_equal(size[i], 1);
        }
        assert_int_equal(gone, removed);
        assert_int_equal(sum, n);
        /* Shared out block by block, from the last, over scratch that says nothing: the same. */
        memset(scratch, 0xff, ftki_match_scratch_bytes(n, m.block));
        for (int32_t b = (n - 1) / m.block * m.block; b >= 0; b -= m.block) ftki_match_costs(&m, b, b + m.block, scratch);
        ftki_match_pairs(&m, remove, again, scratch);
        assert_memory_equal(into, again, (size_t)n * sizeof into[0]);
        free(scratch);
    }
}

/* Adjacent, one join: the pair of least 1 - cosine. */
static void the_cheapest_neighbours_go_first(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        float rows[20 * 4];
        int32_t n = 2 + below(19), into[20], best = 1;
        double least = 9;
        for (int32_t i = 0; i < n * 4; i++) rows[i] = ftki_rng_float(&rng) - 0.5f;
        for (int32_t i = 1; i < n; i++) {
            double ab = 0, aa = 0, bb = 0;
            for (int d = 0; d < 4; d++) {
                double a = (double)rows[(i - 1) * 4 + d], b = (double)rows[i * 4 + d];
                ab += a * b, aa += a * a, bb += b * b;
            }
            if (1 - ab / sqrt(aa * bb) < least) least = 1 - ab / sqrt(aa * bb), best = i;
        }
        ftki_match m = {.rows = rows, .stride = 4, .n = n, .dim = 4};
        void *scratch = aligned_alloc(64, (ftki_match_scratch_bytes(n, 32) + 63) / 64 * 64);
        ftki_match_costs(&m, 0, n, scratch);
        assert_int_equal(ftki_match_pairs(&m, 1, into, scratch), 1);
        for (int32_t i = 0; i < n; i++) assert_int_equal(into[i], i == best ? i - 1 : i);
        free(scratch);
    }
}

static void scores_are_their_formulas(void **state) {
    (void)state;
    const float columns[] = {4, 1, 0, 2, 9}, seen[] = {4, 2, 0, 1, 3}, values[] = {1, 2, 3, 4, 0.5f}, keys[] = {5, 4, 3, 2, 1};
    static const float want[][5] = {{4, 2, 0, 8, 4.5f}, {4, 4, 2, 9, 9}, {4, 1, 0, 2, 9}, {0, 1, 2, 3, 4}, {-5, -4, -3, -2, -1},
                                    {0}, {1, 1, 0, 8, 1.5f}};
    for (int k = FTK_SCORER_VALUE; k <= FTK_SCORER_MEAN; k++) {
        ftki_score_input in = {5, columns, seen, values, keys, 7, k == FTK_SCORER_SNAPKV ? 3 : 1};
        float scores[5], again[5], scratch[5];
        ftki_score((ftk_scorer)k, &in, scores, scratch);
        for (int i = 0; i < 5 && k != FTK_SCORER_RANDOM; i++) assert_true(scores[i] == want[k][i]);
        ftki_score((ftk_scorer)k, &in, again, scratch);
        assert_memory_equal(scores, again, sizeof scores);
        in.seed++;
        ftki_score((ftk_scorer)k, &in, again, scratch);
        assert_int_equal(memcmp(scores, again, sizeof scores) != 0, k == FTK_SCORER_RANDOM);
    }
}

static void survivors_follow_every_event(void **state) {
    (void)state;
    for (int c = 0; c < CASES / 10; c++) {
        ftki_survivors s = {0};
        int32_t owner[6][MOST], n = 0; /* naive: owner in layer l + 1 */
        assert_int_equal(ftki_survivors_open(&s, MOST, 6, 6, NULL), FTK_OK);
        while (n < MOST - 40) {
            int32_t first = n, add = 1 + below(40), alive[MOST], n_alive = add;
            ftki_survivors_append(&s, add);
            n += add;
            for (int32_t i = 0; i < add; i++) alive[i] = first + i;
            for (int32_t l = 0; l < 6; l++) {
                int32_t into[MOST], left = 0;
                for (int32_t t = first; t < n; t++) owner[l][t] = l > 0 ? owner[l - 1][t] : t;
                if (below(2) || n_alive == 0) continue;
                for (int32_t i = 0; i < n_alive; i++) {
                    int32_t j = below(i + 1), kind = below(4);
                    into[i] = kind == 0 ? -1 : kind == 1 && into[j < i ? j : 0] == j && j < i ? j : i;
                }
                for (int32_t t = first; t < n; t++)
                    for (int32_t i = 0; i < n_alive; i++)
                        if ((l > 0 ? owner[l - 1][t] : t) == alive[i]) owner[l][t] = into[i] < 0 ? -1 : alive[into[i]];
                assert_true(ftki_survivors_event(&s, l, alive, n_alive, into));
                for (int32_t i = 0; i < n_alive; i++)
                    if (into[i] == i) alive[left++] = alive[i];
                n_alive = left;
            }
            for (int32_t t = 0; t < n; t++)
                for (int32_t l = 0; l < 6; l++)
                    assert_int_equal(ftki_survivors_owner(&s, l, t), l == 0 ? t : owner[l - 1][t]);
            if (below(4) == 0) ftki_survivors_rewind(&s, n = below(n));
            assert_int_equal(ftki_survivors_owner(&s, 0, n), -1);
        }
        ftki_survivors_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_equals_counting),      cmocka_unit_test(adapted_budgets_add_up),
        cmocka_unit_test(matching_keeps_its_promises),    cmocka_unit_test(the_cheapest_neighbours_go_first),
        cmocka_unit_test(survivors_follow_every_event),   cmocka_unit_test(scores_are_their_formulas),
    };
    return cmocka_run_group_tests(tests, seed, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* Scorers. Pooling is a maximum over `pool` neighbours, so that an entry survives with what
 * surrounds it (SnapKV). */
#include "reduce/score.h"

bool ftki_scorer_needs_columns(ftk_scorer s) {
    return s == FTK_SCORER_VALUE || s == FTK_SCORER_SNAPKV || s == FTK_SCORER_H2O || s == FTK_SCORER_MEAN;
}
bool ftki_scorer_needs_all_queries(ftk_scorer s) { return s == FTK_SCORER_H2O || s == FTK_SCORER_MEAN; }
bool ftki_scorer_needs_value_norms(ftk_scorer s) { return s == FTK_SCORER_VALUE || s == FTK_SCORER_MEAN; }
bool ftki_scorer_needs_key_norms(ftk_scorer s) { return s == FTK_SCORER_KEY_NORM; }
/* SnapKV's long-document setting: window 32, kernel 7. */
int32_t ftki_scorer_default_pool(ftk_scorer s) { return s == FTK_SCORER_SNAPKV ? 7 : 1; }
int32_t ftki_scorer_default_observe(ftk_scorer s) { return s == FTK_SCORER_SNAPKV ? 32 : 16; }

/* SplitMix64's finaliser: a number in [0, 1) from seed and index, the same on every machine. */
static float random_score(uint64_t seed, int32_t i) {
    uint64_t z = seed + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40) * (1.0f / 16777216.0f);
}

static float score_one(ftk_scorer s, const ftki_score_input *in, int32_t i) {
    switch (s) {
    case FTK_SCORER_VALUE: return in->columns[i] * in->value_norms[i];
    case FTK_SCORER_MEAN: {
        float seen = in->seen_by == NULL ? 1.0f : in->seen_by[i];
        return seen > 0.0f ? in->columns[i] / seen * in->value_norms[i] : 0.0f;
    }
    case FTK_SCORER_SNAPKV:
    case FTK_SCORER_H2O: return in->columns[i];
    case FTK_SCORER_RECENT: return (float)i;
    case FTK_SCORER_KEY_NORM: return -in->key_norms[i];
    case FTK_SCORER_RANDOM: return random_score(in->seed, i);
    }
    return 0.0f;
}

static void pool_max(const float *x, int32_t n, int32_t half, float *y) {
    for (int32_t i = 0; i < n; i++) {
        int32_t end = i + half < n - 1 ? i + half : n - 1;
        y[i] = x[i];
        for (int32_t j = i > half ? i - half : 0; j <= end; j++)
            if (x[j] > y[i]) y[i] = x[j];
    }
}

void ftki_score(ftk_scorer s, const ftki_score_input *in, float *scores, float *scratch) {
    bool pooled = in->pool > 1;
    float *raw = pooled ? scratch : scores;
    for (int32_t i = 0; i < in->n; i++) raw[i] = score_one(s, in, i);
    if (pooled) pool_max(raw, in->n, in->pool / 2, scores);
}

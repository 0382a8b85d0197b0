// SPDX-License-Identifier: Apache-2.0
/* Named starting points. The field's methods are set up as their papers describe them, as far as a
 * cache compressed once after prefill allows; the tasks' names carry how much each is said to bear. */
#include <string.h>

#include "base/status.h"

static const struct {
    const char *name;
    ftk_reduction r;
} presets[] = {
    {"streamingllm", {.kv_keep = 0.5f, .scorer = FTK_SCORER_RECENT}},
    {"h2o", {.kv_keep = 0.5f, .scorer = FTK_SCORER_H2O}},
    {"snapkv", {.kv_keep = 0.5f, .scorer = FTK_SCORER_SNAPKV}},
    {"pyramid", {.kv_keep = 0.5f, .scorer = FTK_SCORER_SNAPKV, .budget = FTK_BUDGET_PYRAMID}},
    {"keynorm", {.kv_keep = 0.5f, .scorer = FTK_SCORER_KEY_NORM}},
    {"random", {.kv_keep = 0.5f, .scorer = FTK_SCORER_RANDOM}},
    {"plain-merge", {.keep = 0.8f, .how = FTK_REDUCE_MERGE, .similarity = FTK_SIMILARITY_COSINE,
                     .pairing = FTK_PAIRING_ADJACENT, .weight = FTK_WEIGHT_MEAN, .no_size_bias = true,
                     .ignore_importance = true}},
    {"summary", {.kv_keep = 0.7f, .budget = FTK_BUDGET_ADAPTIVE}},
    {"chat", {.kv_keep = 0.8f, .budget = FTK_BUDGET_ADAPTIVE}},
    {"code", {.kv_keep = 0.9f, .budget = FTK_BUDGET_ADAPTIVE, .protect_digits = true}},
    {"math", {.kv_keep = 0.9f, .budget = FTK_BUDGET_ADAPTIVE, .protect_digits = true}},
};

ftk_status ftk_reduction_preset(ftk_reduction *out, const char *name, ftk_error *e) {
    if (out == NULL || name == NULL) return ftki_fail(e, FTK_INVALID_ARGUMENT, "out and name must not be NULL");
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) != 0) continue;
        *out = presets[i].r;
        out->size = sizeof *out;
        return FTK_OK;
    }
    return ftki_fail(e, FTK_INVALID_ARGUMENT, "preset '%s' is unknown; there are streamingllm, h2o, snapkv, pyramid, keynorm, "
                     "random, plain-merge, summary, chat, code, math", ftki_quote(name, strlen(name)).text);
}

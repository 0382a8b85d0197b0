// SPDX-License-Identifier: Apache-2.0
/* Profiles: what `tune` found for a model, as JSON beside it, `model.gguf` -> `model.profile.json`. One file
 * holds several by name, and the model they belong to:
 *   {"freetoken_profile": 1,
 *    "model": {"architecture", "parameters", "layers", "kv_heads", "vocabulary"},
 *    "profiles": {"tuned": {"goal", "bound", "measured": {...}, "reduction": {field of ftk_reduction: value}}}}
 * budgets and windows are lists [n_layers] of lists [n_kv_heads]. */
#ifndef FREETOKEN_TOOLS_PROFILE_H
#define FREETOKEN_TOOLS_PROFILE_H

#include "freetoken/freetoken.h"
#include "tune.h"

typedef struct profile_facts {
    const char *goal, *bound, *text;
    tune_figures figures; /* on text not tuned on */
    size_t context, windows;
} profile_facts;

/* The file beside a model. */
void profile_path(char *out, size_t cap, const char *model_path);
/* Adds a profile to the file, which is made when absent, or replaces the one of that name. Reports and returns an
 * exit status, STATUS_GO_ON when done. */
int profile_write(const char *path, const char *name, const ftk_model *m, const ftk_reduction *r, const profile_facts *facts);
/* The profile's reduction as the text of a setting, to be freed. `name` is that of a profile beside the model, of a
 * file (its only or its "tuned" profile), or FILE:NAME. A profile made for another model is refused. Reports and
 * returns an exit status. */
int profile_read(char **setting, const char *name, const char *model_path, const ftk_model *m);

#endif

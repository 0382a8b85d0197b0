// SPDX-License-Identifier: Apache-2.0
/* Token reduction on the command line: flags and settings that become an ftk_reduction.
 *
 * A SETTING is written `item,item,...`; an item is the name of a policy, `dense`, or `field=value` with the
 * fields of ftk_reduction under their own names, and `profile=NAME|FILE`. Order does not matter between the
 * policy or profile, which is the start, and the fields, which are put on top. Lists are separated by `/`:
 *   layers=10/14/18   protect=0-120/400-500   budgets=0-4:0.1/25-29:0.1   windows=0-7:128/12.1:64
 * where budgets and windows name layers (12, 0-7), and after a dot KV heads (12.1, 0-7.0-1).
 *
 * A SWEEP is several settings, separated by `;`. Alternatives are separated by `|` and multiply:
 *   "snapkv|h2o,kv_keep=0.8|0.5; profile=chat" are five settings. */
#ifndef FREETOKEN_TOOLS_REDUCE_FLAGS_H
#define FREETOKEN_TOOLS_REDUCE_FLAGS_H

#include "args.h"
#include "freetoken/freetoken.h"

typedef struct reduce_flags {
    double keep, kv_keep;      /* 0: not given */
    const char *kv_budget;     /* bytes with a suffix, "64M" */
    const char *policy, *profile;
    text_list more;            /* of --reduce, each a setting */
} reduce_flags;

/* The rows of a command's flag table; f is a reduce_flags. */
#define REDUCE_FLAG_ROWS(f)                                                                                                             \
    {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "Token reduction"},                                                                          \
    {ARG_REAL, "keep", 0, &(f).keep, 0, 1, "SHARE", "share of the prompt's tokens that goes through all layers; the others are merged on the way"}, \
    {ARG_REAL, "kv-keep", 0, &(f).kv_keep, 0, 1, "SHARE", "share of the prompt's keys and values that stays in the cache"},               \
    {ARG_TEXT, "kv-budget", 0, &(f).kv_budget, 0, 0, "BYTES", "or bytes they may take, for example 64M"},                                  \
    {ARG_TEXT, "policy", 0, &(f).policy, 0, 0, "NAME", "a known way to choose: snapkv, h2o, streamingllm, pyramid, keynorm, random, plain-merge, ..."}, \
    {ARG_TEXT, "profile", 0, &(f).profile, 0, 0, "NAME|FILE", "what `freetoken tune` found for this model"},                             \
    {ARG_TEXTS, "reduce", 0, &(f).more, 0, 0, "KEY=VALUE,...", "single fields of the policy, and names of policies; `--reduce help` lists them"}

bool reduce_flags_given(const reduce_flags *f);
void reduce_flags_free(reduce_flags *f);

typedef struct reduce_setting {
    char *name;       /* as it was written */
    bool dense;       /* nothing is reduced */
    ftk_reduction r;  /* its lists belong to the setting */
    int32_t *layers, *windows;
    float *budgets;
    ftk_range *protect;
} reduce_setting;
void reduce_setting_close(reduce_setting *s); /* zeroed or closed: fine */

/* The model a setting is for. */
typedef struct reduce_target {
    const char *command; /* whose help a message points at */
    const char *word;    /* the model as the user named it: profiles lie beside it */
    const ftk_model *m;  /* NULL: only the syntax is read, no lists are made and no profiles opened */
} reduce_target;

/* One setting from the flags; without any it is dense. All report what is wrong and return an exit status,
 * STATUS_GO_ON when fine. `--reduce help` prints the fields and returns STATUS_OK. */
int reduce_setting_of_flags(reduce_setting *out, const reduce_target *to, const reduce_flags *f);
/* One setting from its text. */
int reduce_setting_of_text(reduce_setting *out, const reduce_target *to, const char *text);
/* What a model is run with when nobody says anything: its profile "tuned" if it has one, else dense. */
int reduce_setting_usual(reduce_setting *out, const reduce_target *to);
/* All settings of a sweep, each on top of the flags; *out [*n] is freed with reduce_sweep_free. */
int reduce_sweep(reduce_setting **out, size_t *n, const reduce_target *to, const reduce_flags *f, const char *sweep);
void reduce_sweep_free(reduce_setting *settings, size_t n);

/* "64M", "2G", "1000": bytes with a suffix of 1024s. False: it is none. */
bool reduce_read_bytes(const char *text, uint64_t *out);

/* The syntax alone, before a model is opened: names of fields and values. */
int reduce_flags_check(const char *command, const reduce_flags *f, const char *sweep);

#endif

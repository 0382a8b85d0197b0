// SPDX-License-Identifier: Apache-2.0
/* What classify and embed share: flags of the policy, inputs from files, texts and standard input, each made into
 * what the model takes, one after another; one that cannot be read is reported and the rest goes on. */
#ifndef FREETOKEN_TOOLS_ENCODE_H
#define FREETOKEN_TOOLS_ENCODE_H

#include "args.h"
#include "freetoken/freetoken.h"
#include "text.h"

typedef struct encode_request {
    const char *command;    /* for messages */
    text_list texts;        /* --text */
    bool lines, truncate, json;
    int64_t threads;
    int64_t max_pixels;     /* 0: default */
    /* The policy, as ftk_encoder_reduction names it. */
    double keep, fine_keep, threshold, merge_similarity, exit_tau;
    int64_t first_layer, interval, merge, patience, min_layers, attend, min_tokens;
    int select_by, exit_by;
    bool fuse, merge_local;
} encode_request;

/* Rows of an arg_flag table over an encode_request r. */
#define ENCODE_FLAGS(r)                                                                                                          \
    {ARG_TEXTS, "text", 0, &(r).texts, 0, 0, "TEXT", "a text as input; may be given several times"},                             \
    {ARG_BOOL, "lines", 0, &(r).lines, 0, 0, NULL, "each line of a text file is an input of its own"},                           \
    {ARG_BOOL, "truncate", 0, &(r).truncate, 0, 0, NULL, "cut texts over the model's limit instead of refusing them"},           \
    {ARG_COUNT, "max-pixels", 0, &(r).max_pixels, 1, 1e9, "N", "largest picture that is decoded; default 64 million"},           \
    {ARG_COUNT, "threads", 't', &(r).threads, 1, 1024, "N", "default: online cores"},                                            \
    {ARG_BOOL, "json", 0, &(r).json, 0, 0, NULL, "one JSON object a line for each input"},                                       \
    {ARG_GROUP, "", 0, NULL, 0, 0, NULL, "Compute on demand (nothing given: everything is computed)"},                           \
    {ARG_REAL, "keep", 0, &(r).keep, 0.01, 1, "SHARE", "tokens that stay at each selecting layer"},                              \
    {ARG_REAL, "fine-keep", 0, &(r).fine_keep, 0.01, 1, "SHARE", "of these, those that go on to the feed-forward"},              \
    {ARG_REAL, "threshold", 0, &(r).threshold, 0, 1000, "X", "those stay that score X times the mean, --keep being the least"},   \
    {ARG_CHOICE, "by", 0, &(r).select_by, 0, 0, "attention|key-norm|distinct|learned", "what a token is judged by"},             \
    {ARG_COUNT, "first-layer", 0, &(r).first_layer, 1, 1000, "N", "first selecting layer, from 0; default a quarter of them"},   \
    {ARG_COUNT, "interval", 0, &(r).interval, 1, 1000, "N", "layers between selecting ones; default a quarter of them"},         \
    {ARG_BOOL, "fuse", 0, &(r).fuse, 0, 0, NULL, "what is dropped becomes one token"},                                           \
    {ARG_COUNT, "merge", 0, &(r).merge, 1, 100000, "R", "pairs of like tokens merged in each layer"},                            \
    {ARG_BOOL, "merge-local", 0, &(r).merge_local, 0, 0, NULL, "only neighbours merge: for sounds"},                             \
    {ARG_REAL, "merge-similarity", 0, &(r).merge_similarity, -1, 1, "COS", "pairs less alike stay apart"},                       \
    {ARG_REAL, "exit", 0, &(r).exit_tau, 0.001, 1, "TAU", "leave at an exit head that is this sure"},                            \
    {ARG_CHOICE, "exit-by", 0, &(r).exit_by, 0, 0, "confidence|margin|entropy", "how sure is measured"},                         \
    {ARG_COUNT, "patience", 0, &(r).patience, 1, 1000, "N", "heads in a row that must agree"},                                   \
    {ARG_COUNT, "min-layers", 0, &(r).min_layers, 1, 1000, "N", "layers computed before the first exit"},                        \
    {ARG_COUNT, "attend", 0, &(r).attend, 1, 1e6, "N", "keys each query reads"},                                                 \
    {ARG_COUNT, "min-tokens", 0, &(r).min_tokens, 1, 1e6, "N", "shorter inputs are computed whole"}

/* One input as the model takes it. */
typedef struct encode_item {
    const char *name;      /* file, "text", or "FILE:12" for a line */
    ftk_input input;
    token_list tokens;     /* of a text */
    bool truncated;
    float *values;         /* of a picture or a sound */
    uint8_t *shown;        /* [image_size][image_size][3] of a picture */
    double from;           /* of a sound: second at which the window starts */
} encode_item;

typedef struct encode_job {
    const encode_request *request;
    ftk_model *model;
    ftk_encoder *encoder;
    ftk_encoder_info info;
    size_t done, failed;
    bool keep_pictures;    /* fill encode_item.shown */
    /* Runs the model over one item and prints; STATUS_GO_ON, or a status that ends the job. An input that fails
     * is reported and counted by the callee through encode_failed. */
    int (*visit)(struct encode_job *job, const encode_item *item);
    void *ctx;
} encode_job;

int encode_failed(encode_job *job, const char *name, const ftk_error *e); /* reports; STATUS_GO_ON, or interrupted */
/* Opens words[0] as an encoder with the policy and visits --text, then words[1..]: exit status. */
int encode_run(encode_job *job, const char *const *words, size_t n_words);

#endif

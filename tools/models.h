// SPDX-License-Identifier: Apache-2.0
/* The models known by name, where they lie on this machine, and opening one for a command. */
#ifndef FREETOKEN_TOOLS_MODELS_H
#define FREETOKEN_TOOLS_MODELS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "freetoken/freetoken.h"

/* A piece of a model: a file inside a wheel of the Python package index. */
typedef struct model_part {
    const char *package; /* "name==version" */
    const char *member;  /* path inside the wheel */
    uint64_t bytes;
    const char *sha256;
} model_part;

typedef struct known_model {
    const char *name;    /* what the user types */
    const char *file;    /* file name in the models folder */
    const char *about;
    uint64_t bytes;
    const char *sha256;  /* of the joined file */
    const model_part *parts;
    size_t n_parts;
} known_model;

extern const known_model known_models[];
extern const size_t n_known_models;
#define DEFAULT_MODEL "smollm2-135m"

/* NULL: not known. */
const known_model *models_find(const char *name);
/* $FREETOKEN_HOME, else the user's cache folder: holds models/ and the chat's history. Reports
 * and returns false when there is no home at all. */
bool models_home(char path[PATH_MAX]);
/* The file meant by a path or a name: the path itself, or the pulled file of that name. Reports
 * and returns an exit status. */
int models_locate(const char *word, char path[PATH_MAX]);

typedef struct model_request {
    const char *word;  /* path or name */
    int64_t threads;   /* 0: default */
    const char *isa;   /* NULL: default */
    bool vocab_only;
} model_request;
/* Opens with a progress line; reports and returns an exit status. */
int models_open(ftk_model **out, const model_request *r);

#endif

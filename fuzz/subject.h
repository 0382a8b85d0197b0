// SPDX-License-Identifier: Apache-2.0
/* What the targets and the maker of seeds share: files in memory, one small model, the check that
 * ends the program. */
#ifndef FUZZ_SUBJECT_H
#define FUZZ_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "freetoken/freetoken.h"

/* Ends the program by abort, which fuzzers and replay report, when something does not hold. */
void subject_must(bool holds);

/* A file in memory, and the path under which it can be opened. */
typedef struct subject_file {
    int fd;
    char path[32];
} subject_file;
subject_file subject_file_of(const void *data, size_t size);
void subject_file_close(subject_file *f);

/* The model snapshots belong to, opened once: one layer, one KV head. */
ftk_model *subject_model(void);
enum { SUBJECT_CONTEXT = 64, SUBJECT_CHUNK = 16 };
/* A session over it, to be closed by the caller. */
ftk_session *subject_session(ftk_kv_type type);

#endif

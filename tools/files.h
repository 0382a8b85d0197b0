// SPDX-License-Identifier: Apache-2.0
/* Files of a model store: folders made, checksums taken, pieces appended, with progress and
 * clean failure. */
#ifndef FREETOKEN_TOOLS_FILES_H
#define FREETOKEN_TOOLS_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "sha256.h"

/* Makes a folder and those above it. Reports and returns an exit status. */
int files_make_folder(const char *path);
/* Bytes of a regular file, -1: there is none. */
int64_t files_size(const char *path);
/* SHA-256 of a file. Reports and returns an exit status. */
int files_sum(const char *path, char hex[SHA256_HEX]);
/* Appends `from` to `to`, which is made when absent, or with `fresh` emptied first. Reports. */
int files_append(const char *to, const char *from, bool fresh);
/* STATUS_GO_ON when the file has that sum; else says both sums, removes the file and fails. */
int files_check(const char *path, const char *wanted);
/* Removes a folder and the files and folders in it. Silent. */
void files_remove_tree(const char *path);
/* Runs a program found on PATH with its output on stderr (or nowhere when `silent`). Returns its
 * exit status, 127 when it cannot be started, STATUS_INTERRUPTED after Ctrl-C. */
int files_run(const char *const argv[], bool silent);

#endif

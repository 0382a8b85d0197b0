// SPDX-License-Identifier: Apache-2.0
/* A temporary directory for a test program, and small helpers around files in it. */
#ifndef TESTS_UNIT_SCRATCH_DIR_H
#define TESTS_UNIT_SCRATCH_DIR_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char scratch_dir[200];

static int scratch_open(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%.150s/freetoken-test-XXXXXX",
             base != NULL ? base : "/tmp");
    return mkdtemp(scratch_dir) == NULL ? -1 : 0;
}

static inline const char *scratch_path(const char *name) {
    static char paths[4][512]; /* the last four stay valid */
    static unsigned turn;
    char *p = paths[turn++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", scratch_dir, name);
    return p;
}

/* Number of entries, "." and ".." not counted. */
static inline int scratch_count(void) {
    DIR *d = opendir(scratch_dir);
    if (d == NULL) return -1;
    int n = -2;
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

static inline void scratch_write(const char *path, const void *data, size_t len) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, len, f) != len || fclose(f) != 0) abort();
}

/* The whole file, NUL-terminated; the caller frees it. */
static inline char *scratch_read(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*len + 1);
    if (data == NULL || fread(data, 1, *len, f) != *len) abort();
    data[*len] = '\0';
    fclose(f);
    return data;
}

static int scratch_close(void **state) {
    (void)state;
    DIR *d = opendir(scratch_dir);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        const char *path = scratch_path(entry->d_name);
        if (unlink(path) != 0) rmdir(path);
    }
    if (d != NULL) closedir(d);
    return rmdir(scratch_dir);
}

/* Writes past `bytes` fail with EFBIG until the limit is given back (RLIM_INFINITY); stands in
 * for a full disk. SIGXFSZ must be ignored. */
static inline void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/* A whole file, mapped read-only. Directories, empty and unreadable files are errors that name
 * the path and the reason. Also the writer that replaces a file only when it is complete. */
#ifndef FTKI_BASE_MAPFILE_H
#define FTKI_BASE_MAPFILE_H

#include "base/hash.h"
#include "base/status.h"

typedef struct ftki_mapfile {
    const unsigned char *data; /* [len] */
    size_t len;
} ftki_mapfile;

ftk_status ftki_mapfile_open(ftki_mapfile *out, const char *path, ftk_error *e);
/* Gives the resident pages of [offset, offset + len) back; they are read again when touched. */
void ftki_mapfile_drop(const ftki_mapfile *m, size_t offset, size_t len);
void ftki_mapfile_close(ftki_mapfile *m); /* zeroed or closed: fine */

/* Writes to a new file beside `path`; ftki_writer_commit syncs and renames it over path.
 * The first failed write is kept and reported by every later call. close without commit removes
 * the new file, so the old one stays whole whatever happens. */
typedef struct ftki_writer ftki_writer;
ftk_status ftki_writer_open(ftki_writer **out, const char *path, ftk_error *e);
ftk_status ftki_writer_write(ftki_writer *w, const void *data, size_t len, ftk_error *e);
uint64_t ftki_writer_position(const ftki_writer *w);
/* From now on *h takes in everything written; borrowed until replaced, NULL: none. */
void ftki_writer_checksum(ftki_writer *w, ftki_hash *h);
ftk_status ftki_writer_commit(ftki_writer *w, ftk_error *e);
void ftki_writer_close(ftki_writer *w);

#endif

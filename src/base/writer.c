// SPDX-License-Identifier: Apache-2.0
/* Replaces a file only when the new one is complete: written beside it under a temporary name,
 * synced, renamed. Owns the temporary file until commit or close. */
#include "base/mapfile.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16 };

struct ftki_writer {
    int fd;
    char *path;      /* what is replaced, symbolic links followed */
    char *temporary; /* beside it; NULL once renamed */
    uint64_t position;
    ftki_hash *hash; /* of what is written, NULL: not wanted */
    size_t buffered;
    ftk_error failed; /* the first failure; code FTK_OK: none */
    unsigned char buffer[BUFFER_BYTES];
};

static char *copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = ftki_alloc(bytes, 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

/* The path behind symbolic links, so that a link is not replaced by a file. */
static char *follow_links(const char *path) {
    char *real = realpath(path, NULL);
    if (real == NULL) return copy_text(path); /* does not exist yet */
    char *copy = copy_text(real);
    free(real);
    return copy;
}

/* Creates "<path>.<pid>-<count>.tmp" with the permissions the finished file is to have. */
static int create_beside(ftki_writer *w, mode_t mode) {
    static atomic_uint count;
    size_t cap = strlen(w->path) + 48;
    w->temporary = ftki_alloc(cap, 1);
    if (w->temporary == NULL) {
        errno = ENOMEM;
        return -1;
    }
    for (int attempt = 0; attempt < 100; attempt++) {
        snprintf(w->temporary, cap, "%s.%ld-%u.tmp", w->path, (long)getpid(),
                 atomic_fetch_add(&count, 1));
        int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

ftk_status ftki_writer_open(ftki_writer **out, const char *path, ftk_error *e) {
    ftk_status status;
    struct stat st;
    if (path[0] == '\0') return ftki_fail(e, FTK_IO, "cannot create a file: its path is empty");
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return ftki_fail(e, FTK_IO, "'%s' is a directory; name a file in it",
                         ftki_quote_path(path).text);
    if (exists && !S_ISREG(st.st_mode))
        return ftki_fail(e, FTK_IO, "'%s' is not a regular file and is not replaced",
                         ftki_quote_path(path).text);

    ftki_writer *w = ftki_alloc(1, sizeof *w);
    if (w == NULL) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a file writer");
    w->fd = -1;
    w->path = follow_links(path);
    if (w->path == NULL) {
        status = ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for a file writer");
        goto fail;
    }
    w->fd = create_beside(w, exists ? (st.st_mode & 0777) | 0200 : 0666);
    if (w->fd < 0) {
        int reason = errno;
        ftki_free(w->temporary); /* not ours to remove */
        w->temporary = NULL;
        status = ftki_fail(e, reason == ENOMEM ? FTK_OUT_OF_MEMORY : FTK_IO,
                           "cannot create a file beside '%s': %s", ftki_quote_path(path).text,
                           strerror(reason));
        goto fail;
    }
    *out = w;
    return FTK_OK;
fail:
    ftki_writer_close(w);
    return status;
}

static ftk_status report(const ftki_writer *w, ftk_error *e) {
    if (e != NULL) *e = w->failed;
    return w->failed.code;
}

static void fail_with_errno(ftki_writer *w, const char *doing) {
    ftki_fail(&w->failed, FTK_IO, "cannot %s '%s': %s; the old file, if any, is untouched", doing,
              ftki_quote_path(w->path).text, strerror(errno));
}

static void flush_bytes(ftki_writer *w, const unsigned char *data, size_t len) {
    while (len > 0 && w->failed.code == FTK_OK) {
        /* One call writes at most 1 GiB: larger ones are cut short by some systems. */
        ssize_t n = write(w->fd, data, len < (1u << 30) ? len : (1u << 30));
        if (n < 0) {
            if (errno != EINTR) fail_with_errno(w, "write");
        } else {
            data += n;
            len -= (size_t)n;
        }
    }
}

static void flush_buffer(ftki_writer *w) {
    flush_bytes(w, w->buffer, w->buffered);
    w->buffered = 0;
}

ftk_status ftki_writer_write(ftki_writer *w, const void *data, size_t len, ftk_error *e) {
    if (w->buffered + len > BUFFER_BYTES) flush_buffer(w);
    if (len > BUFFER_BYTES) {
        flush_bytes(w, data, len);
    } else if (len > 0) {
        memcpy(w->buffer + w->buffered, data, len);
        w->buffered += len;
    }
    w->position += len;
    if (w->hash != NULL) ftki_hash_add(w->hash, data, len);
    return report(w, e);
}

void ftki_writer_checksum(ftki_writer *w, ftki_hash *h) { w->hash = h; }

uint64_t ftki_writer_position(const ftki_writer *w) { return w->position; }

/* Makes the rename itself durable; file systems that cannot are no reason to fail. */
static void sync_directory(const char *path) {
    char *copy = copy_text(path);
    if (copy == NULL) return;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    ftki_free(copy);
}

ftk_status ftki_writer_commit(ftki_writer *w, ftk_error *e) {
    flush_buffer(w);
    if (w->failed.code == FTK_OK && fsync(w->fd) != 0) fail_with_errno(w, "sync");
    if (w->failed.code == FTK_OK) {
        int closed = close(w->fd);
        w->fd = -1;
        if (closed != 0) fail_with_errno(w, "close");
    }
    if (w->failed.code == FTK_OK && rename(w->temporary, w->path) != 0)
        fail_with_errno(w, "replace");
    if (w->failed.code == FTK_OK) {
        ftki_free(w->temporary);
        w->temporary = NULL;
        sync_directory(w->path);
    }
    return report(w, e);
}

void ftki_writer_close(ftki_writer *w) {
    if (w == NULL) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary != NULL) unlink(w->temporary);
    ftki_free(w->temporary);
    ftki_free(w->path);
    ftki_free(w);
}

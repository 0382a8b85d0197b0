// SPDX-License-Identifier: Apache-2.0
/* A file mapped read-only. Leaves writing to writer.c. A file that another process cuts short
 * while it is mapped kills the process when touched past its end (SIGBUS); replacing a file by
 * rename, as writer.c does, is safe. */
#include "base/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

ftk_status ftki_mapfile_open(ftki_mapfile *out, const char *path, ftk_error *e) {
    ftk_status status = FTK_OK;
    struct stat st;
    /* O_NONBLOCK: a named pipe is refused below instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ftki_fail(e, FTK_IO, "cannot open '%s': %s", ftki_quote_path(path).text,
                         strerror(errno));
    if (fstat(fd, &st) != 0) {
        status = ftki_fail(e, FTK_IO, "cannot look at '%s': %s", ftki_quote_path(path).text,
                           strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        status = ftki_fail(e, FTK_IO, "'%s' is a directory; name a file in it",
                           ftki_quote_path(path).text);
    } else if (!S_ISREG(st.st_mode)) {
        status = ftki_fail(e, FTK_IO, "'%s' is not a regular file", ftki_quote_path(path).text);
    } else if (st.st_size == 0) {
        status = ftki_fail_at(e, FTK_FORMAT, 0, "'%s' is empty", ftki_quote_path(path).text);
    } else if ((uint64_t)st.st_size > PTRDIFF_MAX) {
        status = ftki_fail(e, FTK_UNSUPPORTED, "'%s' is larger than this machine's address space",
                           ftki_quote_path(path).text);
    } else {
        size_t len = (size_t)st.st_size;
        void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = ftki_fail(e, errno == ENOMEM ? FTK_OUT_OF_MEMORY : FTK_IO,
                               "cannot map '%s': %s", ftki_quote_path(path).text, strerror(errno));
        else
            *out = (ftki_mapfile){.data = p, .len = len};
    }
    close(fd);
    return status;
}

void ftki_mapfile_drop(const ftki_mapfile *m, size_t offset, size_t len) {
    if (m->data == NULL || offset >= m->len) return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = len > m->len - offset ? m->len : offset + len;
    /* Whole pages inside the range; the file's last page counts as whole. */
    size_t first = (offset + page - 1) / page * page;
    size_t last = end == m->len ? (end + page - 1) / page * page : end / page * page;
    if (first < last)
        (void)madvise((void *)(uintptr_t)(m->data + first), last - first, MADV_DONTNEED);
}

void ftki_mapfile_close(ftki_mapfile *m) {
    if (m->data != NULL) munmap((void *)(uintptr_t)m->data, m->len);
    *m = (ftki_mapfile){0};
}

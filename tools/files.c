// SPDX-License-Identifier: Apache-2.0
/* Work on files and folders for `pull`. Every long loop shows progress and ends on Ctrl-C. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "args.h"
#include "interrupt.h"
#include "ui.h"

static int fail_on(const char *path)
{
    ui_error("%s: %s%s", path, strerror(errno), errno == ENOSPC ? ": make room or choose another folder with --to" : "");
    return STATUS_FAILURE;
}

int files_make_folder(const char *path)
{
    char part[PATH_MAX];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return fail_on(path);
    }
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/') continue;
        char held = *p;
        *p = 0;
        struct stat info;
        if (mkdir(part, 0777) != 0 && (errno != EEXIST || stat(part, &info) != 0 || !S_ISDIR(info.st_mode)))
            return fail_on(part);
        *p = held;
        if (!held) return STATUS_GO_ON;
    }
}

int64_t files_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

/* Feeds a file through `sum` (may be NULL) into descriptor `to` (-1: none). */
static int stream(const char *from, const char *phase, sha256 *sum, int to, const char *to_name)
{
    enum { PIECE = 1 << 20 };
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_on(from);
    unsigned char *buffer = malloc(PIECE);
    ui_progress progress = {.unit = "bytes"};
    int64_t total = files_size(from);
    uint64_t done = 0;
    int status = buffer ? STATUS_GO_ON : STATUS_FAILURE;
    while (status == STATUS_GO_ON) {
        ssize_t got = read(fd, buffer, PIECE);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) got = 0;
        if (got < 0) status = fail_on(from);
        for (ssize_t at = 0; status == STATUS_GO_ON && to >= 0 && at < got;) {
            ssize_t put = write(to, buffer + at, (size_t)(got - at));
            if (put < 0 && errno != EINTR) status = fail_on(to_name);
            else if (put > 0) at += put;
        }
        if (status != STATUS_GO_ON) break;
        if (sum) sha256_add(sum, buffer, (size_t)got);
        done += (uint64_t)got;
        if (!ui_on_progress(&progress, phase, done, total > 0 ? (uint64_t)total : 0)) status = STATUS_INTERRUPTED;
    }
    ui_progress_clear(&progress);
    free(buffer);
    close(fd);
    return status;
}

int files_sum(const char *path, char hex[SHA256_HEX])
{
    sha256 sum;
    sha256_start(&sum);
    int status = stream(path, "checking", &sum, -1, NULL);
    sha256_finish(&sum, hex);
    return status;
}

int files_append(const char *to, const char *from, bool fresh)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC | (fresh ? O_TRUNC : O_APPEND), 0666);
    if (fd < 0) return fail_on(to);
    int status = stream(from, "copying", NULL, fd, to);
    if (close(fd) != 0 && status == STATUS_GO_ON) status = fail_on(to);
    return status;
}

int files_check(const char *path, const char *wanted)
{
    char hex[SHA256_HEX];
    int status = files_sum(path, hex);
    if (status != STATUS_GO_ON || strcasecmp(hex, wanted) == 0) return status;
    unlink(path);
    ui_error("%s: wrong checksum, file removed\n  expected %s\n  found    %s", path, wanted, hex);
    return STATUS_FAILURE;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    remove(path);
    return 0;
}

void files_remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int files_run(const char *const argv[], bool silent)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) return 127;
    if (child == 0) {
        int to = silent ? open("/dev/null", O_WRONLY) : STDERR_FILENO;
        dup2(to, STDOUT_FILENO);
        if (silent) dup2(to, STDERR_FILENO);
        signal(SIGINT, SIG_DFL);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    if (interrupt_count()) return STATUS_INTERRUPTED;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

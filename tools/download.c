// SPDX-License-Identifier: Apache-2.0
/* Download through libcurl. The user's proxy and certificate settings apply, as curl reads them
 * from the environment. */
#include "download.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "args.h"
#include "files.h"
#include "freetoken/freetoken.h"
#include "interrupt.h"
#include "machine.h"
#include "ui.h"

typedef struct transfer {
    CURL *curl;
    FILE *file;
    const char *part;
    char tag[512];         /* of this answer, "" when it has none that can be trusted */
    curl_off_t offset;     /* where this answer's bytes start in the file */
    bool checked;          /* the answer's status has been looked at */
    bool disk_failed;
    int disk_errno;
    ui_progress progress;
} transfer;

/* Keeps the strong entity tag of the last answer in a chain of redirections. */
static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    transfer *t = ctx;
    size_t len = size * n;
    if (len > 5 && strncasecmp(line, "HTTP/", 5) == 0) t->tag[0] = 0;
    if (len > 5 && strncasecmp(line, "etag:", 5) == 0) {
        const char *p = line + 5, *end = line + len;
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        while (end > p && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) end--;
        if ((size_t)(end - p) < sizeof t->tag && *p == '"') snprintf(t->tag, sizeof t->tag, "%.*s", (int)(end - p), p);
    }
    return len;
}

/* First bytes of the body: does the answer go on where we are, or start afresh? */
static bool settle_start(transfer *t)
{
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (t->offset && code != 206) { /* the whole file, whatever we asked for */
        t->offset = 0;
        if (ftruncate(fileno(t->file), 0) != 0) return false;
        rewind(t->file);
    }
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s.tag", t->part);
    FILE *f = t->tag[0] ? fopen(name, "w") : NULL;
    if (!f) {
        unlink(name);
        return true;
    }
    fprintf(f, "%s\n", t->tag);
    return fclose(f) == 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    transfer *t = ctx;
    if (!t->checked) {
        t->checked = true;
        if (!settle_start(t)) goto disk;
    }
    if (fwrite(data, size, n, t->file) == n) return size * n;
disk:
    t->disk_failed = true;
    t->disk_errno = errno;
    return 0;
}

static int on_transfer(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    (void)up_total, (void)up_now;
    transfer *t = ctx;
    curl_off_t before = t->checked ? t->offset : 0;
    if (total > 0 && t->checked)
        ui_progress_draw(&t->progress, "downloading", (uint64_t)(before + now), (uint64_t)(before + total));
    return interrupt_count() != 0;
}

/* Why the transfer ended early, in words. */
static int report(const transfer *t, const char *url, CURLcode code, const char *details)
{
    long http = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http);
    if (interrupt_count()) {
        ui_note("interrupted: the same command goes on from here");
        return STATUS_INTERRUPTED;
    }
    if (t->disk_failed) ui_error("%s: %s", t->part, strerror(t->disk_errno));
    else if (code == CURLE_HTTP_RETURNED_ERROR) ui_error("%s: the server answered with status %ld", url, http);
    else
        ui_error("%s: %s%s", url, details[0] ? details : curl_easy_strerror(code),
                 files_size(t->part) > 0 ? " (the same command goes on from here)" : "");
    return STATUS_FAILURE;
}

static CURLcode attempt(transfer *t, const char *url, const char *old_tag, char details[CURL_ERROR_SIZE])
{
    CURL *c = t->curl;
    struct curl_slist *headers = NULL;
    char line[600], agent[64];
    snprintf(agent, sizeof agent, "freetoken/%s", ftk_version());
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, agent);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, details);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_transfer);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    if (t->offset) { /* by hand: curl's own resume takes a full answer for an error */
        snprintf(line, sizeof line, "%lld-", (long long)t->offset);
        curl_easy_setopt(c, CURLOPT_RANGE, line);
        char condition[600];
        snprintf(condition, sizeof condition, "If-Range: %s", old_tag);
        headers = curl_slist_append(headers, condition);
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    }
    CURLcode code = curl_easy_perform(c);
    curl_slist_free_all(headers);
    return code;
}

int download(const char *url, const char *path)
{
    char part[PATH_MAX], tag_file[PATH_MAX + 8], old_tag[512] = "", details[CURL_ERROR_SIZE] = "";
    if ((size_t)snprintf(part, sizeof part - 8, "%s.part", path) >= sizeof part - 8) {
        ui_error("%s: the path is too long", path);
        return STATUS_FAILURE;
    }
    snprintf(tag_file, sizeof tag_file, "%s.tag", part);
    transfer t = {.part = part, .progress = {.unit = "bytes"}};
    /* Bytes of an unknown version are worth nothing: only a tag makes them a beginning. */
    bool resume = files_size(part) > 0 && machine_line(tag_file, old_tag, sizeof old_tag) && old_tag[0] == '"';
    t.file = fopen(part, resume ? "r+b" : "wb");
    t.curl = curl_easy_init();
    int status = STATUS_FAILURE;
    if (!t.file) {
        ui_error("%s: %s", part, strerror(errno));
        goto end;
    }
    if (!t.curl) {
        ui_error("the download library could not be started");
        goto end;
    }
    if (resume && fseeko(t.file, 0, SEEK_END) == 0) t.offset = (curl_off_t)ftello(t.file);
    if (t.offset) ui_note("going on at byte %lld", (long long)t.offset);
    CURLcode code = attempt(&t, url, old_tag, details);
    long http = 0;
    curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &http);
    if (code == CURLE_HTTP_RETURNED_ERROR && http == 416 && t.offset) { /* no such range: the file changed */
        t.offset = 0;
        t.checked = false;
        rewind(t.file);
        if (ftruncate(fileno(t.file), 0) == 0) code = attempt(&t, url, old_tag, details);
    }
    ui_progress_clear(&t.progress);
    if (fflush(t.file) != 0 && !t.disk_failed) {
        t.disk_failed = true;
        t.disk_errno = errno;
    }
    if (code != CURLE_OK || t.disk_failed) status = report(&t, url, code, details);
    else if (!t.checked) ui_error("%s: the server sent an empty file", url);
    else if (rename(part, path) != 0) ui_error("%s: %s", path, strerror(errno));
    else status = STATUS_GO_ON;
end:
    if (t.file) fclose(t.file);
    if (files_size(part) == 0) unlink(part);
    if (files_size(part) < 0) unlink(tag_file);
    curl_easy_cleanup(t.curl);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* Counts, for each token, in how many layers and KV heads it has an entry of its own, is part of an
 * earlier token's, or is gone; then three ways to show that. */
#include "survivors.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "json_out.h"
#include "text.h"
#include "ui.h"

typedef struct fate {
    int32_t own, merged, gone; /* layers and heads */
    int32_t group;             /* at the last layer, KV head 0: tokens its entry stands for; 0: it has none of its own */
} fate;

typedef struct story {
    const ftk_session *s;
    const ftk_model *m;
    ftk_model_info info;
    size_t n;
    const ftk_token *ids; /* [n] */
    fate *fates;          /* [n] */
    size_t *entries;      /* [n_layers][n_kv_heads] */
    int32_t *owners;      /* [n] scratch */
    int32_t *first;       /* [n] scratch: the first token of an entry, -1: not seen */
} story;

static int owners_of(story *y, int32_t layer, int32_t head, size_t *n_entries)
{
    ftk_error e = {0};
    if (ftk_session_survivors(y->s, layer, head, y->owners, NULL, 0, n_entries, &e) != FTK_OK) return ui_fail("--explain", &e);
    return STATUS_GO_ON;
}

static void count_fates(story *y, bool last)
{
    for (size_t t = 0; t < y->n; t++) y->first[t] = -1;
    for (size_t t = 0; t < y->n; t++) {
        int32_t owner = y->owners[t];
        if (owner < 0 || (size_t)owner >= y->n) {
            y->fates[t].gone++;
            continue;
        }
        bool own = y->first[owner] < 0;
        if (own) y->first[owner] = (int32_t)t;
        y->fates[t].own += own;
        y->fates[t].merged += !own;
        if (last) y->fates[y->first[owner]].group++;
    }
}

static int tell(story *y)
{
    int status = STATUS_GO_ON;
    for (int32_t l = 0; l < y->info.n_layers; l++)
        for (int32_t h = 0; status == STATUS_GO_ON && h < y->info.n_kv_heads; h++) {
            status = owners_of(y, l, h, &y->entries[l * y->info.n_kv_heads + h]);
            if (status == STATUS_GO_ON) count_fates(y, l == y->info.n_layers - 1 && h == 0);
        }
    return status;
}

/* ---------------------------------------------------------------- terminal */

/* How a token looks: whole, partly merged or gone, gone everywhere. */
static const char *look_of(const fate *f)
{
    int32_t all = f->own + f->merged + f->gone;
    if (f->gone == all) return "\033[2;9;31m";
    if (f->own == all) return "";
    if (f->merged > f->gone) return "\033[36m";
    return f->gone * 2 > all ? "\033[2m" : "\033[32m";
}

static void print_terminal(const story *y)
{
    bool colours = *ui_style(stderr, UI_BOLD) != 0;
    const char *plain = colours ? "\033[0m" : "";
    for (size_t t = 0; t < y->n; t++) {
        const fate *f = &y->fates[t];
        size_t len;
        const char *bytes = ftk_token_bytes(y->m, y->ids[t], true, &len), *look = look_of(f);
        if (colours) fputs(look, stderr);
        else if (f->own == 0) fputc(f->merged ? '~' : '-', stderr);
        if (bytes) text_show(stderr, bytes, len);
        if (colours && *look) fputs(plain, stderr);
        if (f->group > 1) fprintf(stderr, "%s\302\267%d%s", colours ? "\033[36m" : "", f->group, plain);
    }
    if (colours)
        fprintf(stderr, "\n%swhole · \033[32mmissing in some layers or heads%s · \033[2mmissing in most%s · \033[36mmerged into an earlier one, ·n: stands for n at the last layer%s · \033[2;9;31mgone%s\n",
                plain, plain, plain, plain, plain);
    else fprintf(stderr, "\n~ merged into an earlier token everywhere, - gone everywhere, ·n stands for n tokens at the last layer\n");
}

/* ------------------------------------------------------------------- files */

static void put_html(FILE *f, const char *bytes, size_t len)
{
    text_buffer valid = {0};
    if (!text_add_valid(&valid, bytes, len)) return;
    for (size_t i = 0; i < valid.len; i++)
        switch (valid.data[i]) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '\n': fputs("<br>", f); break;
        default: fputc(valid.data[i], f);
        }
    text_free(&valid);
}

/* Entries of each layer, heads side by side. */
static void put_layers(const story *y, FILE *f)
{
    const int32_t heads = y->info.n_kv_heads;
    int width = 10 * heads + 6;
    fprintf(f, "<h2>Entries held, by layer and KV head</h2><svg viewBox='0 0 %d 130' width='100%%'>", y->info.n_layers * width + 10);
    for (int32_t l = 0; l < y->info.n_layers; l++) {
        for (int32_t h = 0; h < heads; h++) {
            double share = y->n ? (double)y->entries[l * heads + h] / (double)y->n : 0;
            fprintf(f, "<rect x='%d' y='%.1f' width='9' height='%.1f' fill='#0072b2'><title>layer %d, head %d: %zu of %zu</title></rect>",
                    l * width + 10 * h + 6, 110 - 100 * share, 100 * share + 0.5, l, h, y->entries[l * heads + h], y->n);
        }
        fprintf(f, "<text x='%d' y='126' font-size='11' fill='currentColor' text-anchor='middle'>%d</text>", l * width + 5 * heads + 6, l);
    }
    fprintf(f, "</svg>\n");
}

static bool write_html(const story *y, FILE *f)
{
    double all = (double)y->info.n_layers * y->info.n_kv_heads;
    fprintf(f, "<!doctype html><meta charset='utf-8'><title>What is left of the prompt</title>\n"
               "<style>:root{color-scheme:light dark}body{font:15px/1.6 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
               "span{border-radius:2px}.g{text-decoration:line-through;opacity:.45}sub{color:#0072b2}</style>\n"
               "<h1>What is left of the prompt</h1><p>The more an entry of its own is missing, the stronger the red; the more a token is "
               "part of an earlier one, the stronger the blue; the number behind a token says for how many it stands at the last "
               "layer. Struck through: gone everywhere. Rest the mouse on a token for its figures.</p>\n");
    put_layers(y, f);
    fprintf(f, "<h2>Text</h2><p>");
    for (size_t t = 0; t < y->n; t++) {
        const fate *s = &y->fates[t];
        size_t len;
        const char *bytes = ftk_token_bytes(y->m, y->ids[t], true, &len);
        fprintf(f, "<span%s style='background:linear-gradient(rgba(213,94,0,%.2f),rgba(213,94,0,%.2f)),rgba(0,114,178,%.2f)' "
                   "title='token %zu: own entry in %.0f %%, merged in %.0f %%, gone in %.0f %% of layers and heads'>",
                s->gone == (int32_t)all ? " class='g'" : "", 0.6 * s->gone / all, 0.6 * s->gone / all, 0.5 * s->merged / all, t,
                100 * s->own / all, 100 * s->merged / all, 100 * s->gone / all);
        if (bytes) put_html(f, bytes, len);
        fprintf(f, "</span>");
        if (s->group > 1) fprintf(f, "<sub>%d</sub>", s->group);
    }
    fprintf(f, "</p>\n");
    return true;
}

static bool write_json(story *y, FILE *f)
{
    json_t *j = json_object(), *tokens = json_array(), *layers = json_array();
    for (size_t t = 0; t < y->n; t++) {
        const fate *s = &y->fates[t];
        size_t len = 0;
        const char *bytes = ftk_token_bytes(y->m, y->ids[t], true, &len);
        json_t *one = json_object();
        json_object_set_new(one, "id", json_integer(y->ids[t]));
        json_object_set_new(one, "text", json_text_of(bytes ? bytes : "", len));
        json_object_set_new(one, "own", json_integer(s->own));
        json_object_set_new(one, "merged", json_integer(s->merged));
        json_object_set_new(one, "gone", json_integer(s->gone));
        json_array_append_new(tokens, one);
    }
    for (int32_t l = 0; l < y->info.n_layers; l++) {
        json_t *heads = json_array();
        for (int32_t h = 0; h < y->info.n_kv_heads; h++) {
            size_t n;
            json_t *owners = json_array();
            if (owners_of(y, l, h, &n) == STATUS_GO_ON)
                for (size_t t = 0; t < y->n; t++) json_array_append_new(owners, json_integer(y->owners[t]));
            json_t *one = json_object();
            json_object_set_new(one, "entries", json_integer((json_int_t)y->entries[l * y->info.n_kv_heads + h]));
            json_object_set_new(one, "owners", owners);
            json_array_append_new(heads, one);
        }
        json_array_append_new(layers, heads);
    }
    json_object_set_new(j, "tokens", tokens);
    json_object_set_new(j, "layers", layers);
    bool fine = json_dumpf(j, f, JSON_COMPACT) == 0;
    json_decref(j);
    fputc('\n', f);
    return fine;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), k = strlen(ending);
    return n > k && strcmp(path + n - k, ending) == 0;
}

bool survivors_is_file(const char *path)
{
    return ends_in(path, ".html") || ends_in(path, ".json");
}

static int write_file(story *y, const char *path)
{
    FILE *f = fopen(path, "w");
    bool fine = f && (ends_in(path, ".json") ? write_json(y, f) : write_html(y, f));
    if (f && fclose(f) != 0) fine = false;
    if (!fine) {
        ui_error("%s: %s", path, strerror(errno));
        return STATUS_FAILURE;
    }
    ui_note("%s: what is left of %zu tokens", path, y->n);
    return STATUS_GO_ON;
}

int survivors_show(const ftk_session *s, const ftk_model *m, const char *path)
{
    story y = {.s = s, .m = m, .n = ftk_session_length(s), .ids = ftk_session_tokens(s)};
    ftk_model_get_info(m, &y.info);
    size_t n = y.n ? y.n : 1;
    y.fates = calloc(n, sizeof *y.fates);
    y.entries = calloc((size_t)y.info.n_layers * (size_t)y.info.n_kv_heads, sizeof *y.entries);
    y.owners = malloc(n * sizeof *y.owners);
    y.first = malloc(n * sizeof *y.first);
    int status = STATUS_FAILURE;
    if (!y.fates || !y.entries || !y.owners || !y.first) ui_error("out of memory");
    else status = tell(&y);
    if (status == STATUS_GO_ON && path && *path) status = write_file(&y, path);
    else if (status == STATUS_GO_ON) print_terminal(&y);
    free(y.fates);
    free(y.entries);
    free(y.owners);
    free(y.first);
    return status;
}

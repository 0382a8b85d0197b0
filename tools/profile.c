// SPDX-License-Identifier: Apache-2.0
/* Reading and writing profiles. What a profile holds becomes the text of a setting, so that there is one place
 * where fields are checked. */
#include "profile.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "files.h"
#include "json_out.h"
#include "reduce_flags.h"
#include "text.h"
#include "ui.h"

enum { FORMAT = 1 };

void profile_path(char *out, size_t cap, const char *model_path)
{
    size_t len = strlen(model_path), ending = strlen(".gguf");
    if (len > ending && strcmp(model_path + len - ending, ".gguf") == 0) len -= ending;
    snprintf(out, cap, "%.*s.profile.json", (int)len, model_path);
}

/* ------------------------------------------------------------------- model */

static json_t *model_facts(const ftk_model *m)
{
    ftk_model_info info;
    ftk_model_get_info(m, &info);
    json_t *j = json_object();
    json_object_set_new(j, "architecture", json_text(info.architecture));
    json_object_set_new(j, "parameters", json_integer((json_int_t)info.n_params));
    json_object_set_new(j, "layers", json_integer(info.n_layers));
    json_object_set_new(j, "kv_heads", json_integer(info.n_kv_heads));
    json_object_set_new(j, "vocabulary", json_integer(info.n_vocab));
    return j;
}

/* The file's content when it is a profile of this model; NULL after a message. */
static json_t *load(const char *path, const ftk_model *m)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e), *own = model_facts(m);
    const char *key;
    json_t *value;
    bool fine = false;
    if (!j) ui_error("%s: line %d, column %d: %s", path, e.line, e.column, e.text);
    else if (!json_is_object(j) || json_integer_value(json_object_get(j, "freetoken_profile")) != FORMAT)
        ui_error("%s: is no profile of version %d: make one with freetoken tune", path, FORMAT);
    else {
        fine = true;
        json_object_foreach(own, key, value) {
            json_t *other = json_object_get(json_object_get(j, "model"), key);
            if (!fine || json_equal(value, other)) continue;
            char *here = json_dumps(value, JSON_ENCODE_ANY), *there = other ? json_dumps(other, JSON_ENCODE_ANY) : NULL;
            ui_error("%s: made for another model: its %s is %s, this model's %s: make one with freetoken tune", path, key,
                     there ? there : "missing", here ? here : "?");
            free(here);
            free(there);
            fine = false;
        }
    }
    json_decref(own);
    if (fine) return j;
    json_decref(j);
    return NULL;
}

/* ----------------------------------------------------------------- writing */

static json_t *measured(const profile_facts *f)
{
    json_t *j = json_object();
    json_object_set_new(j, "text", json_text(f->text));
    json_object_set_new(j, "context", json_integer((json_int_t)f->context));
    json_object_set_new(j, "windows", json_integer((json_int_t)f->windows));
    json_object_set_new(j, "ppl_loss", json_number(f->figures.loss));
    json_object_set_new(j, "ppl_loss_low", json_number(f->figures.low));
    json_object_set_new(j, "ppl_loss_high", json_number(f->figures.high));
    json_object_set_new(j, "kl", json_number(f->figures.kl));
    json_object_set_new(j, "top1", json_number(f->figures.top1));
    json_object_set_new(j, "kv_keep", json_number(f->figures.kv_keep));
    json_object_set_new(j, "work", json_number(f->figures.work));
    return j;
}

/* What tune sets; everything else is at its default. */
static json_t *reduction(const ftk_reduction *r, size_t n_layers, size_t heads)
{
    json_t *j = json_object();
    if (r->keep > 0) json_object_set_new(j, "keep", json_number((double)r->keep));
    if (r->let_go_layer) {
        json_object_set_new(j, "let_go_layer", json_integer(r->let_go_layer));
        json_object_set_new(j, "let_go_keep", json_number((double)r->let_go_keep));
    }
    if (r->min_length) json_object_set_new(j, "min_length", json_integer(r->min_length));
    json_t *budgets = json_array(), *windows = json_array();
    for (size_t l = 0; l < n_layers; l++) {
        json_t *shares = json_array(), *tokens = json_array();
        for (size_t h = 0; h < heads; h++) {
            if (r->budgets) json_array_append_new(shares, json_number((double)r->budgets[l * heads + h]));
            if (r->windows) json_array_append_new(tokens, json_integer(r->windows[l * heads + h]));
        }
        json_array_append_new(budgets, shares);
        json_array_append_new(windows, tokens);
    }
    if (r->budgets) json_object_set(j, "budgets", budgets);
    if (r->windows) json_object_set(j, "windows", windows);
    json_decref(budgets);
    json_decref(windows);
    return j;
}

int profile_write(const char *path, const char *name, const ftk_model *m, const ftk_reduction *r, const profile_facts *facts)
{
    ftk_model_info info;
    char beside[4096 + 32];
    ftk_model_get_info(m, &info);
    json_t *j = files_size(path) > 0 ? load(path, m) : json_object();
    if (!j) return STATUS_FAILURE;
    json_t *profiles = json_object_get(j, "profiles"), *one = json_object();
    if (!json_is_object(profiles)) {
        profiles = json_object();
        json_object_set_new(j, "profiles", profiles);
    }
    json_object_set_new(j, "freetoken_profile", json_integer(FORMAT));
    json_object_set_new(j, "model", model_facts(m));
    json_object_set_new(one, "goal", json_text(facts->goal));
    json_object_set_new(one, "bound", json_text(facts->bound));
    json_object_set_new(one, "measured", measured(facts));
    json_object_set_new(one, "reduction", reduction(r, (size_t)info.n_layers, (size_t)info.n_kv_heads));
    json_object_set_new(profiles, name, one);
    snprintf(beside, sizeof beside, "%s.part", path);
    bool fine = json_dump_file(j, beside, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0 && rename(beside, path) == 0;
    if (!fine) {
        ui_error("%s: %s", path, strerror(errno));
        unlink(beside);
    }
    json_decref(j);
    return fine ? STATUS_GO_ON : STATUS_FAILURE;
}

/* ----------------------------------------------------------------- reading */

static bool add(text_buffer *t, const char *key, const char *value)
{
    return (t->len == 0 || text_add(t, ",", 1)) && text_add(t, key, strlen(key)) && text_add(t, "=", 1) && text_add(t, value, strlen(value));
}

/* [[a, b], ...] as layer.head:value/..., values that mean "all" left out. */
static bool add_table(text_buffer *t, const char *key, const json_t *table, double whole)
{
    text_buffer list = {0};
    size_t l, h;
    json_t *row, *cell;
    bool fine = true;
    json_array_foreach(table, l, row) {
        json_array_foreach(row, h, cell) {
            char text[64];
            double value = json_number_value(cell);
            if (!json_is_number(cell)) fine = false;
            if (value == whole) continue;
            snprintf(text, sizeof text, "%s%zu.%zu:%.6g", list.len ? "/" : "", l, h, value);
            fine = fine && text_add(&list, text, strlen(text));
        }
        if (!json_is_array(row)) fine = false;
    }
    if (fine && list.len) fine = add(t, key, list.data);
    text_free(&list);
    return fine;
}

static bool setting_of(text_buffer *t, json_t *fields)
{
    const char *key;
    json_t *value;
    bool fine = json_is_object(fields);
    json_object_foreach(fields, key, value) {
        char text[64];
        if (strcmp(key, "budgets") == 0 || strcmp(key, "windows") == 0) fine = fine && add_table(t, key, value, key[0] == 'b');
        else if (json_is_integer(value)) {
            snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
            fine = fine && add(t, key, text);
        } else if (json_is_real(value)) {
            snprintf(text, sizeof text, "%.9g", json_real_value(value));
            fine = fine && add(t, key, text);
        } else if (json_is_boolean(value)) fine = fine && add(t, key, json_is_true(value) ? "yes" : "no");
        else if (json_is_string(value) && !strpbrk(json_string_value(value), ",=;")) fine = fine && add(t, key, json_string_value(value));
        else fine = false;
    }
    return fine;
}

/* Splits FILE:NAME, FILE, or NAME beside the model. */
static void find(char path[4096], const char **name, const char *word, const char *model_path)
{
    const char *json = strstr(word, ".json");
    if (json && (json[5] == 0 || json[5] == ':')) {
        snprintf(path, 4096, "%.*s", (int)(json + 5 - word), word);
        *name = json[5] ? json + 6 : "tuned";
    } else {
        profile_path(path, 4096, model_path);
        *name = word;
    }
}

static int refuse_name(const char *path, const char *name, json_t *profiles)
{
    char list[256] = "none";
    size_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach(profiles, key, value)
        if (n < sizeof list) n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", key);
    ui_error("%s: has no profile \"%s\"; there are: %s", path, name, list);
    return STATUS_FAILURE;
}

int profile_read(char **setting, const char *word, const char *model_path, const ftk_model *m)
{
    char path[4096];
    const char *name;
    text_buffer text = {0};
    find(path, &name, word, model_path);
    if (files_size(path) < 0) {
        ui_error("%s: there is no profile: make one with freetoken tune, or start from a policy with --policy", path);
        return STATUS_FAILURE;
    }
    json_t *j = load(path, m);
    if (!j) return STATUS_FAILURE;
    json_t *profiles = json_object_get(j, "profiles"), *one = json_object_get(profiles, name);
    if (!one && json_object_size(profiles) == 1 && strcmp(name, "tuned") == 0)
        one = json_object_iter_value(json_object_iter(profiles));
    int status = one ? STATUS_GO_ON : refuse_name(path, name, profiles);
    if (one && !setting_of(&text, json_object_get(one, "reduction"))) {
        ui_error("%s: the reduction of profile \"%s\" cannot be read", path, name);
        status = STATUS_FAILURE;
    }
    json_decref(j);
    if (status == STATUS_GO_ON) {
        *setting = text.data ? text.data : strdup("");
        return *setting ? STATUS_GO_ON : STATUS_FAILURE;
    }
    text_free(&text);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* freetoken inspect: what a GGUF file holds, and whether it would load as a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "json_out.h"
#include "models.h"
#include "text.h"
#include "ui.h"

typedef struct inspection {
    const char *path;
    bool keys, tensors, json;
    ftk_file *file;
    ftk_model *model;   /* NULL when the file would not load */
    ftk_error why;      /* then the reason */
    ftk_model_info info;
} inspection;

/* Bytes and count by tensor type, in order of appearance. */
typedef struct type_row {
    const char *type;
    uint64_t bytes, weights;
    size_t tensors;
} type_row;
enum { MAX_TYPES = 32 };

static size_t count_types(const ftk_file *f, type_row rows[MAX_TYPES])
{
    size_t n = 0;
    ftk_file_tensor t;
    for (size_t i = 0; ftk_file_get_tensor(f, i, &t); i++) {
        size_t r = 0;
        while (r < n && strcmp(rows[r].type, t.type) != 0) r++;
        if (r == MAX_TYPES) continue;
        if (r == n) rows[n++] = (type_row){.type = t.type};
        uint64_t weights = 1;
        for (int d = 0; d < t.n_dims; d++) weights *= t.dims[d];
        rows[r].bytes += t.bytes;
        rows[r].weights += weights;
        rows[r].tensors++;
    }
    return n;
}

static void print_shape(const ftk_file_tensor *t, char *shape, size_t cap)
{
    int n = 0;
    shape[0] = 0;
    for (int d = 0; d < t->n_dims && n < (int)cap; d++)
        n += snprintf(shape + n, cap - (size_t)n, "%s%llu", d ? " x " : "", (unsigned long long)t->dims[d]);
}

/* Contexts worth a line: powers of two from 512 up to the training context, and that itself. */
static size_t list_contexts(int32_t train, int32_t contexts[16])
{
    size_t n = 0;
    for (int64_t c = 512; c < train && n < 15; c *= c < 8192 ? 2 : 4)
        contexts[n++] = (int32_t)c;
    contexts[n++] = train > 0 ? train : 512;
    return n;
}

static bool estimate(const inspection *x, int32_t context, ftk_kv_type kv, ftk_memory *memory)
{
    ftk_session_opts o = {.size = sizeof o, .context = context, .kv_type = kv};
    return ftk_memory_estimate(x->model, &o, memory, NULL) == FTK_OK;
}

static void print_text(const inspection *x)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    char a[UI_WORD], b[UI_WORD], c[UI_WORD], value[512];
    type_row rows[MAX_TYPES];
    size_t n_types = count_types(x->file, rows);
    uint64_t total = 0, weights = 0;
    for (size_t i = 0; i < n_types; i++) total += rows[i].bytes, weights += rows[i].weights;
    printf("%s%s%s\n  GGUF version %u · %zu keys · %zu tensors · %s of tensors\n", bold, x->path, plain,
           ftk_file_version(x->file), ftk_file_n_keys(x->file), ftk_file_n_tensors(x->file),
           ui_bytes(a, (double)total));
    if (x->model) {
        const ftk_model_info *m = &x->info;
        printf("\n%sModel%s\n", bold, plain);
        if (m->name[0]) {
            printf("  name           ");
            text_show(stdout, m->name, strlen(m->name));
            putchar('\n');
        }
        printf("  architecture   %s · %.1f M parameters\n", m->architecture, (double)m->n_params / 1e6);
        printf("  layers         %d · hidden %d · feed-forward %d\n", m->n_layers, m->hidden, m->ffn);
        printf("  attention      %d heads on %d key/value heads of %d", m->n_heads, m->n_kv_heads, m->head_dim);
        if (m->sliding_window) printf(" · window %d", m->sliding_window);
        printf("\n  vocabulary     %d\n  context        %d tokens in training\n", m->n_vocab, m->train_context);
        printf("  chat template  %s\n", m->chat_template[0] ? m->chat_template : "none recognised");
    }
    printf("\n%sTensor types%s\n", bold, plain);
    for (size_t i = 0; i < n_types; i++)
        printf("  %-6s %5zu tensors %10s  %5.1f %%  %.2f bits a weight\n", rows[i].type, rows[i].tensors,
               ui_bytes(a, (double)rows[i].bytes), total ? 100.0 * (double)rows[i].bytes / (double)total : 0,
               rows[i].weights ? 8.0 * (double)rows[i].bytes / (double)rows[i].weights : 0);
    ftk_memory memory;
    if (x->model && estimate(x, 512, FTK_KV_INT8, &memory)) {
        int32_t contexts[16];
        size_t n = list_contexts(x->info.train_context, contexts);
        printf("\n%sMemory for a session, full%s\n  %8s %12s %12s %12s\n", bold, plain, "context", "--kv int8",
               "--kv f16", "--kv f32");
        for (size_t i = 0; i < n; i++) {
            ftk_memory by_kv[3] = {{0}};
            for (int kv = 0; kv < 3; kv++) estimate(x, contexts[i], (ftk_kv_type)kv, &by_kv[kv]);
            printf("  %8d %12s %12s %12s\n", contexts[i], ui_bytes(a, (double)by_kv[0].total),
                   ui_bytes(b, (double)by_kv[1].total), ui_bytes(c, (double)by_kv[2].total));
        }
        printf("  of which weights %s\n", ui_bytes(a, (double)memory.weights));
    }
    if (x->keys) {
        printf("\n%sKeys%s\n", bold, plain);
        const char *type, *name;
        for (size_t i = 0; (name = ftk_file_key(x->file, i, &type, value, sizeof value)) != NULL; i++) {
            printf("  ");
            text_show(stdout, name, strlen(name));
            printf(" (%s) = ", type);
            if (strcmp(type, "string") == 0) text_quote(stdout, value, strlen(value));
            else text_show(stdout, value, strlen(value));
            putchar('\n');
        }
    }
    if (x->tensors) {
        printf("\n%sTensors%s\n", bold, plain);
        ftk_file_tensor t;
        for (size_t i = 0; ftk_file_get_tensor(x->file, i, &t); i++) {
            print_shape(&t, value, sizeof value);
            printf("  %-32s %-5s %-22s %10s at byte %llu\n", t.name, t.type, value, ui_bytes(a, (double)t.bytes),
                   (unsigned long long)t.offset);
        }
    }
    if (x->model) printf("\n%sWould load.%s\n", ui_style(stdout, UI_GREEN), plain);
}

static json_t *json_of_model(const inspection *x)
{
    const ftk_model_info *m = &x->info;
    json_t *j = json_object();
    json_object_set_new(j, "architecture", json_text(m->architecture));
    json_object_set_new(j, "name", json_text(m->name));
    json_object_set_new(j, "weight_type", json_text(m->weight_type));
    json_object_set_new(j, "chat_template", json_text(m->chat_template));
    json_object_set_new(j, "parameters", json_integer((json_int_t)m->n_params));
    json_object_set_new(j, "layers", json_integer(m->n_layers));
    json_object_set_new(j, "heads", json_integer(m->n_heads));
    json_object_set_new(j, "kv_heads", json_integer(m->n_kv_heads));
    json_object_set_new(j, "head_dim", json_integer(m->head_dim));
    json_object_set_new(j, "hidden", json_integer(m->hidden));
    json_object_set_new(j, "ffn", json_integer(m->ffn));
    json_object_set_new(j, "vocabulary", json_integer(m->n_vocab));
    json_object_set_new(j, "train_context", json_integer(m->train_context));
    json_object_set_new(j, "sliding_window", json_integer(m->sliding_window));
    return j;
}

static json_t *json_of_memory(const inspection *x)
{
    static const char *const names[] = {"int8", "f16", "f32"};
    json_t *list = json_array();
    int32_t contexts[16];
    size_t n = list_contexts(x->info.train_context, contexts);
    for (size_t i = 0; i < n; i++)
        for (int kv = 0; kv < 3; kv++) {
            ftk_memory memory;
            if (!estimate(x, contexts[i], (ftk_kv_type)kv, &memory)) continue;
            json_t *row = json_object();
            json_object_set_new(row, "context", json_integer(contexts[i]));
            json_object_set_new(row, "kv", json_string(names[kv]));
            json_object_set_new(row, "weight_bytes", json_integer((json_int_t)memory.weights));
            json_object_set_new(row, "scratch_bytes", json_integer((json_int_t)memory.scratch));
            json_object_set_new(row, "kv_bytes", json_integer((json_int_t)memory.kv));
            json_object_set_new(row, "total_bytes", json_integer((json_int_t)memory.total));
            json_array_append_new(list, row);
        }
    return list;
}

static json_t *json_of_keys(const ftk_file *f)
{
    json_t *keys = json_object();
    const char *type, *name;
    char value[512];
    for (size_t i = 0; (name = ftk_file_key(f, i, &type, value, sizeof value)) != NULL; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "type", json_text(type));
        json_object_set_new(row, "value", json_text(value));
        text_buffer valid = {0};
        if (text_add_valid(&valid, name, strlen(name))) json_object_set_new(keys, valid.data, row);
        else json_decref(row);
        text_free(&valid);
    }
    return keys;
}

static json_t *json_of_tensors(const ftk_file *f)
{
    json_t *list = json_array();
    ftk_file_tensor t;
    for (size_t i = 0; ftk_file_get_tensor(f, i, &t); i++) {
        json_t *row = json_object(), *dims = json_array();
        for (int d = 0; d < t.n_dims; d++) json_array_append_new(dims, json_integer((json_int_t)t.dims[d]));
        json_object_set_new(row, "name", json_text(t.name));
        json_object_set_new(row, "type", json_text(t.type));
        json_object_set_new(row, "dims", dims);
        json_object_set_new(row, "offset", json_integer((json_int_t)t.offset));
        json_object_set_new(row, "bytes", json_integer((json_int_t)t.bytes));
        json_array_append_new(list, row);
    }
    return list;
}

static int print_json(const inspection *x)
{
    json_t *j = json_object(), *types = json_array();
    type_row rows[MAX_TYPES];
    size_t n_types = count_types(x->file, rows);
    for (size_t i = 0; i < n_types; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "type", json_text(rows[i].type));
        json_object_set_new(row, "tensors", json_integer((json_int_t)rows[i].tensors));
        json_object_set_new(row, "bytes", json_integer((json_int_t)rows[i].bytes));
        json_object_set_new(row, "weights", json_integer((json_int_t)rows[i].weights));
        json_array_append_new(types, row);
    }
    json_object_set_new(j, "path", json_text(x->path));
    json_object_set_new(j, "loads", json_boolean(x->model != NULL));
    if (!x->model) json_object_set_new(j, "reason", json_text(x->why.message));
    json_object_set_new(j, "gguf_version", json_integer(ftk_file_version(x->file)));
    json_object_set_new(j, "types", types);
    if (x->model) {
        json_object_set_new(j, "model", json_of_model(x));
        json_object_set_new(j, "memory", json_of_memory(x));
    }
    if (x->keys) json_object_set_new(j, "keys", json_of_keys(x->file));
    if (x->tensors) json_object_set_new(j, "tensors", json_of_tensors(x->file));
    return json_document(j);
}

int cmd_inspect(int argc, char **argv)
{
    inspection x = {0};
    const arg_flag flags[] = {
        {ARG_BOOL, "keys", 'k', &x.keys, 0, 0, NULL, "list the metadata keys; long arrays are shortened"},
        {ARG_BOOL, "tensors", 't', &x.tensors, 0, 0, NULL, "list the tensors: type, shape, size, place"},
        {ARG_BOOL, "json", 0, &x.json, 0, 0, NULL, "print one JSON document"},
    };
    const arg_spec spec = {
        "inspect", "MODEL [--keys] [--tensors] [--json]",
        "Shows what a GGUF file holds, how much memory a session over it takes by context length,\n"
        "and whether it would load: it is opened the way run does it, and the exit status is 0 only\n"
        "for a file that can be run.",
        "  freetoken inspect smollm2-135m\n"
        "  freetoken inspect model.gguf --keys | grep rope\n"
        "  freetoken inspect model.gguf --json --tensors | jq '.tensors[0]'\n",
        flags, sizeof flags / sizeof flags[0], 1, 1};
    const char *words[1];
    size_t n_words;
    char path[PATH_MAX];
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (x.json) json_report_errors();
    if (status == STATUS_GO_ON) status = models_locate(words[0], path);
    if (status != STATUS_GO_ON) return status;
    x.path = path;
    ftk_error e = {0};
    if (ftk_file_open(&x.file, path, &e) != FTK_OK) return ui_fail(path, &e);
    ui_progress progress = {0};
    ftk_model_opts o = {.size = sizeof o, .progress = ui_on_progress, .progress_ctx = &progress};
    if (ftk_model_open(&x.model, path, &o, &x.why) == FTK_OK) ftk_model_get_info(x.model, &x.info);
    ui_progress_clear(&progress);
    if (x.why.code == FTK_CANCELLED) {
        ftk_file_close(x.file);
        return STATUS_INTERRUPTED;
    }
    status = STATUS_OK;
    if (x.json) status = print_json(&x);
    else print_text(&x);
    if (!x.model) {
        ui_on_error(NULL); /* the document has the reason */
        ui_error("would not load: %s", x.why.message);
        status = STATUS_FAILURE;
    }
    ftk_model_close(x.model);
    ftk_file_close(x.file);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* The grammar of settings, and the flags that are short for it. */
#include "reduce_flags.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "models.h"
#include "profile.h"
#include "text.h"
#include "ui.h"

/* ------------------------------------------------------------------ fields */

typedef enum field_kind {
    FIELD_SHARE,  /* float in (0, 1] */
    FIELD_SCALE,  /* float, at least 0 */
    FIELD_COUNT,  /* int32_t, k and m suffixes, -1 where `words` says so */
    FIELD_BYTES,  /* uint64_t, K M G suffixes */
    FIELD_SEED,   /* uint64_t */
    FIELD_FLAG,   /* bool: yes, no, or nothing for yes */
    FIELD_CHOICE, /* an enum, in the order of `words` */
    FIELD_LAYERS, /* 10/14/18 */
    FIELD_RANGES, /* 0-120/400-500 */
    FIELD_SHARES, /* 0-4:0.1/25.1:0.5, others 1 */
    FIELD_WINDOWS /* 0-7:128/12.1:64, others all */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t at;
    const char *words; /* of a choice; otherwise what a value looks like */
} field;

static const field fields[] = {
#define FIELD(name, kind, words) {#name, FIELD_##kind, offsetof(ftk_reduction, name), words},
    FIELD(keep, SHARE, "0.7")
    FIELD(keep_tokens, COUNT, "1k")
    FIELD(how, CHOICE, "merge|drop|share")
    FIELD(first_layer, COUNT, "10")
    FIELD(interval, COUNT, "4")
    FIELD(layers, LAYERS, "10/14/18")
    FIELD(similarity, CHOICE, "cosine|euclidean")
    FIELD(similar_what, CHOICE, "hidden|keys")
    FIELD(pairing, CHOICE, "adjacent|block")
    FIELD(block, COUNT, "32")
    FIELD(weight, CHOICE, "size|mean|attention")
    FIELD(position, CHOICE, "earliest|mean|contiguous")
    FIELD(no_size_bias, FLAG, "yes|no")
    FIELD(ignore_importance, FLAG, "yes|no")
    FIELD(share_scale, SCALE, "0.5")
    FIELD(min_length, COUNT, "256")
    FIELD(full_length, COUNT, "2k")
    FIELD(let_go_layer, COUNT, "24")
    FIELD(let_go_keep, SHARE, "0.1")
    FIELD(kv_keep, SHARE, "0.5")
    FIELD(kv_bytes, BYTES, "64M")
    FIELD(scorer, CHOICE, "value|snapkv|h2o|recent|key_norm|random|mean")
    FIELD(budget, CHOICE, "uniform|pyramid|adaptive|weights")
    FIELD(budgets, SHARES, "0-4:0.1/25-29:0.1")
    FIELD(kv_merge, FLAG, "yes|no")
    FIELD(kv_shared, FLAG, "yes|no")
    FIELD(pool, COUNT, "7")
    FIELD(windows, WINDOWS, "0-7:128/12.1:64")
    FIELD(read_keep, SHARE, "0.25")
    FIELD(read_pages, COUNT, "16")
    FIELD(prefill_blocks, SHARE, "0.25")
    FIELD(sinks, COUNT, "4, -1: none")
    FIELD(recent, COUNT, "32, -1: none")
    FIELD(protect, RANGES, "0-120/400-500")
    FIELD(merge_special, FLAG, "yes|no")
    FIELD(protect_digits, FLAG, "yes|no")
    FIELD(observe, COUNT, "16")
    FIELD(seed, SEED, "1")
    FIELD(segment, COUNT, "8k")
#undef FIELD
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* Reading one setting. */
typedef struct reader {
    reduce_setting *out;
    const reduce_target *to;
    const char *command;
    ftk_model_info info;
    bool bound;      /* there is a model: lists can be made */
    bool in_profile; /* what is read comes from one: no more profiles */
} reader;

static int refuse(const reader *r, const char *item, const char *why, const char *like)
{
    return args_refuse(r->command, "reduction %s: %s%s%s", item, why, like ? ", for example " : "", like ? like : "");
}

static int no_memory(void)
{
    ui_error("out of memory");
    return STATUS_FAILURE;
}

/* ------------------------------------------------------------------- lists */

/* "3" or "3-7"; NULL or the text behind it. */
static const char *read_span(const char *text, long *first, long *last)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return NULL;
    *first = *last = strtol(text, &end, 10);
    if (*end != '-') return end;
    text = end + 1;
    if (!isdigit((unsigned char)*text)) return NULL;
    *last = strtol(text, &end, 10);
    return *last < *first ? NULL : end;
}

static size_t n_parts(const char *value)
{
    size_t n = 1;
    for (; *value; value++) n += *value == '/';
    return n;
}

static int read_layers(const reader *r, const field *f, const char *item, const char *value)
{
    int32_t *list = calloc(n_parts(value), sizeof *list);
    size_t n = 0;
    int status = list ? STATUS_GO_ON : no_memory();
    for (const char *p = value; status == STATUS_GO_ON; p++) {
        long first, last;
        const char *end = read_span(p, &first, &last);
        if (!end || last != first || (*end && *end != '/') || first > 100000)
            status = refuse(r, item, "must be layers separated by /", f->words);
        else list[n++] = (int32_t)first;
        if (!end || !*end) break;
        p = end;
    }
    free(r->out->layers);
    r->out->layers = list;
    r->out->r.layers = list;
    r->out->r.n_layers_listed = n;
    return status;
}

static int read_ranges(const reader *r, const field *f, const char *item, const char *value)
{
    ftk_range *list = calloc(n_parts(value), sizeof *list);
    size_t n = 0;
    int status = list ? STATUS_GO_ON : no_memory();
    for (const char *p = value; status == STATUS_GO_ON; p++) {
        long first, last;
        const char *end = read_span(p, &first, &last);
        if (!end || (*end && *end != '/') || last > INT32_MAX)
            status = refuse(r, item, "must be ranges of tokens separated by /", f->words);
        else list[n++] = (ftk_range){(int32_t)first, (int32_t)last};
        if (!end || !*end) break;
        p = end;
    }
    free(r->out->protect);
    r->out->protect = list;
    r->out->r.protect = list;
    r->out->r.n_protect = n;
    return status;
}

/* The table [n_layers][n_kv_heads] that spans are written into; starts from what the setting has already. */
static bool make_table(const reader *r, bool shares)
{
    reduce_setting *s = r->out;
    size_t n = (size_t)r->info.n_layers * (size_t)r->info.n_kv_heads;
    if (shares && !s->budgets) {
        s->budgets = malloc(n * sizeof *s->budgets);
        for (size_t i = 0; s->budgets && i < n; i++) s->budgets[i] = s->r.budgets ? s->r.budgets[i] : 1;
        s->r.budgets = s->budgets;
        s->r.budget = FTK_BUDGET_WEIGHTS;
        return s->budgets != NULL;
    }
    if (!shares && !s->windows) {
        s->windows = calloc(n, sizeof *s->windows);
        if (s->windows && s->r.windows) memcpy(s->windows, s->r.windows, n * sizeof *s->windows);
        s->r.windows = s->windows;
        return s->windows != NULL;
    }
    return true;
}

/* layers[.heads]:value separated by /. */
static int read_table(const reader *r, const field *f, const char *item, const char *value)
{
    bool shares = f->kind == FIELD_SHARES;
    const char *form = shares ? "must be layers[.heads]:share separated by /" : "must be layers[.heads]:tokens separated by /";
    if (r->bound && !make_table(r, shares)) return no_memory();
    for (const char *p = value;; p++) {
        long first, last, head = 0, last_head = r->info.n_kv_heads - 1;
        const char *end = read_span(p, &first, &last);
        if (end && *end == '.') end = read_span(end + 1, &head, &last_head);
        if (!end || *end != ':') return refuse(r, item, form, f->words);
        char *after;
        errno = 0;
        double number = strtod(end + 1, &after);
        if (after == end + 1 || (*after && *after != '/')) return refuse(r, item, form, f->words);
        if (shares ? !(number >= 0 && number <= 1) : !(number >= 0 && number <= 1e7 && number == floor(number)))
            return refuse(r, item, shares ? "a share lies between 0 and 1" : "a window is a whole number of tokens, 0: all", NULL);
        if (r->bound && (last >= r->info.n_layers || last_head >= r->info.n_kv_heads)) {
            char why[96];
            snprintf(why, sizeof why, "the model has layers 0 to %d with KV heads 0 to %d", r->info.n_layers - 1,
                     r->info.n_kv_heads - 1);
            return refuse(r, item, why, NULL);
        }
        for (long l = first; r->bound && l <= last; l++)
            for (long h = head; h <= last_head; h++) {
                if (shares) r->out->budgets[l * r->info.n_kv_heads + h] = (float)number;
                else r->out->windows[l * r->info.n_kv_heads + h] = (int32_t)number;
            }
        if (!*after) return STATUS_GO_ON;
        p = after;
    }
}

/* ------------------------------------------------------------------ values */

bool reduce_read_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value > 0)) return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        value *= pow(1024, (double)(unit - units + 1));
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (*end || value >= 9e18) return false;
    *out = (uint64_t)value;
    return true;
}

static int read_choice(const reader *r, const field *f, const char *item, const char *value, void *at)
{
    size_t len = strlen(value);
    unsigned index = 0;
    for (const char *p = f->words; p; index++) {
        size_t word = strcspn(p, "|");
        if (word == len && strncmp(p, value, len) == 0) {
            memcpy(at, &index, sizeof index);
            return STATUS_GO_ON;
        }
        p = p[word] ? p + word + 1 : NULL;
    }
    char why[160];
    snprintf(why, sizeof why, "must be one of %s", f->words);
    return refuse(r, item, why, NULL);
}

static int read_value(const reader *r, const field *f, const char *item, const char *value)
{
    void *at = (char *)&r->out->r + f->at;
    char *end;
    switch (f->kind) {
    case FIELD_SHARE:
    case FIELD_SCALE: {
        double number = strtod(value, &end);
        bool fine = end != value && !*end && number > 0 && (f->kind == FIELD_SCALE ? number <= 100 : number <= 1);
        if (!fine) return refuse(r, item, f->kind == FIELD_SHARE ? "must be above 0 and at most 1" : "must be above 0", f->words);
        *(float *)at = (float)number;
        return STATUS_GO_ON;
    }
    case FIELD_COUNT: {
        int64_t number;
        const char *why = args_count(value, strstr(f->words, "-1") ? -1 : 0, INT32_MAX, &number);
        if (why) return refuse(r, item, why, f->words);
        *(int32_t *)at = (int32_t)number;
        return STATUS_GO_ON;
    }
    case FIELD_BYTES:
        return reduce_read_bytes(value, at) ? STATUS_GO_ON : refuse(r, item, "must be a number of bytes", f->words);
    case FIELD_SEED:
        errno = 0;
        *(uint64_t *)at = strtoull(value, &end, 10);
        return isdigit((unsigned char)*value) && !*end && !errno ? STATUS_GO_ON : refuse(r, item, "must be a whole number", NULL);
    case FIELD_FLAG:
        if (strcmp(value, "yes") && strcmp(value, "no")) return refuse(r, item, "must be yes or no", NULL);
        *(bool *)at = value[0] == 'y';
        return STATUS_GO_ON;
    case FIELD_CHOICE:
        return read_choice(r, f, item, value, at);
    case FIELD_LAYERS:
        return read_layers(r, f, item, value);
    case FIELD_RANGES:
        return read_ranges(r, f, item, value);
    case FIELD_SHARES:
    case FIELD_WINDOWS:
        return read_table(r, f, item, value);
    }
    return STATUS_GO_ON;
}

/* A name's characters with - for _ read alike. */
static bool same_name(const char *name, const char *given, size_t len)
{
    if (strlen(name) != len) return false;
    for (size_t i = 0; i < len; i++)
        if (name[i] != given[i] && !(name[i] == '_' && given[i] == '-')) return false;
    return true;
}

static int refuse_field(const reader *r, const char *item, size_t len)
{
    const char *names[N_FIELDS];
    char given[64], list[1024];
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        names[i] = fields[i].name;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", names[i]);
    }
    snprintf(given, sizeof given, "%.*s", (int)(len < 60 ? len : 60), item);
    const char *near = args_nearest(given, names, N_FIELDS);
    if (near) return args_refuse(r->command, "reduction %s: no such field: did you mean %s?", given, near);
    ui_error("reduction %s: no such field; there are policy, profile, %s", given, list);
    return STATUS_USAGE;
}

static int read_field(const reader *r, char *item)
{
    size_t len = strcspn(item, "=");
    const char *value = item[len] ? item + len + 1 : "yes";
    for (size_t i = 0; i < N_FIELDS; i++)
        if (same_name(fields[i].name, item, len)) {
            if (!item[len] && fields[i].kind != FIELD_FLAG) return refuse(r, item, "needs a value", fields[i].words);
            return read_value(r, &fields[i], item, value);
        }
    return refuse_field(r, item, len);
}

/* ---------------------------------------------------------------- settings */

static bool is_field(const char *item)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (same_name(fields[i].name, item, strlen(item))) return true;
    return false;
}

/* Where the item names the start: its policy's name, else NULL. */
static const char *policy_of(const char *item)
{
    if (strncmp(item, "policy=", 7) == 0) return item + 7;
    return strchr(item, '=') || is_field(item) ? NULL : item;
}

static char *trim(char *item)
{
    item += strspn(item, " \t\n");
    size_t len = strlen(item);
    while (len && strchr(" \t\n", item[len - 1])) item[--len] = 0;
    return item;
}

static int take_policy(const reader *r, const char *name)
{
    ftk_error e = {0};
    if (strcmp(name, "dense") == 0) {
        r->out->dense = true;
        return STATUS_GO_ON;
    }
    if (ftk_reduction_preset(&r->out->r, name, &e) == FTK_OK) return STATUS_GO_ON;
    return args_refuse(r->command, "%s", e.message[0] ? e.message : "no such policy");
}

static int read_setting(const reader *r, const char *text);

/* A profile's fields, put in before those written beside it. */
static int take_profile(const reader *r, const char *name)
{
    char path[PATH_MAX], *text = NULL;
    reader inner = *r;
    inner.in_profile = true;
    if (r->in_profile) return args_refuse(r->command, "profile %s: a profile cannot name another", name);
    if (!r->bound) return STATUS_GO_ON;
    int status = models_locate(r->to->word, path);
    if (status == STATUS_GO_ON) status = profile_read(&text, name, path, r->to->m);
    if (status == STATUS_GO_ON) status = read_setting(&inner, text);
    free(text);
    return status;
}

static int read_setting(const reader *r, const char *text)
{
    char *copy = strdup(text);
    if (!copy) return no_memory();
    int status = STATUS_GO_ON;
    size_t starts = 0, items = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *rest = copy;
        if (pass) strcpy(copy, text);
        for (char *item; status == STATUS_GO_ON && (item = strsep(&rest, ",")) != NULL;) {
            item = trim(item);
            if (!*item) continue;
            const char *policy = policy_of(item), *profile = strncmp(item, "profile=", 8) == 0 ? item + 8 : NULL;
            if (pass == 0 && (policy || profile)) {
                if (starts++) status = args_refuse(r->command, "reduction %s: more than one policy or profile to start from", item);
                else status = policy ? take_policy(r, policy) : take_profile(r, profile);
            }
            if (pass == 1 && !policy && !profile) {
                status = read_field(r, item);
                items++;
            }
        }
    }
    if (status == STATUS_GO_ON && r->out->dense && items) status = args_refuse(r->command, "reduction %s: dense takes no fields", text);
    if (items + starts == 0) r->out->dense = true;
    free(copy);
    return status;
}

int reduce_setting_of_text(reduce_setting *out, const reduce_target *to, const char *text)
{
    reduce_setting s = {.r = {.size = sizeof(ftk_reduction)}};
    reader r = {.out = &s, .to = to, .command = to->command, .bound = to->m != NULL};
    if (to->m) ftk_model_get_info(to->m, &r.info);
    s.name = strdup(*text ? text : "dense");
    int status = s.name ? read_setting(&r, text) : no_memory();
    if (status == STATUS_GO_ON) *out = s;
    else reduce_setting_close(&s);
    return status;
}

int reduce_setting_usual(reduce_setting *out, const reduce_target *to)
{
    char model[PATH_MAX], path[PATH_MAX + 32];
    int status = models_locate(to->word, model);
    if (status != STATUS_GO_ON) return status;
    profile_path(path, sizeof path, model);
    return reduce_setting_of_text(out, to, files_size(path) > 0 ? "profile=tuned" : "");
}

void reduce_setting_close(reduce_setting *s)
{
    free(s->name);
    free(s->layers);
    free(s->windows);
    free(s->budgets);
    free(s->protect);
    *s = (reduce_setting){0};
}

/* ------------------------------------------------------------------- flags */

bool reduce_flags_given(const reduce_flags *f)
{
    return f->keep != 0 || f->kv_keep != 0 || f->kv_budget || f->policy || f->profile || f->more.n;
}

void reduce_flags_free(reduce_flags *f)
{
    text_list_free(&f->more);
}

static bool add_item(text_buffer *t, const char *key, const char *value)
{
    return (t->len == 0 || text_add(t, ",", 1)) && text_add(t, key, strlen(key)) && text_add(t, value, strlen(value));
}

/* The flags as the text of one setting. */
static bool text_of_flags(text_buffer *t, const reduce_flags *f)
{
    char number[32];
    bool fine = text_add(t, "", 0);
    if (f->policy) fine = fine && add_item(t, "policy=", f->policy);
    if (f->profile) fine = fine && add_item(t, "profile=", f->profile);
    snprintf(number, sizeof number, "%.9g", f->keep);
    if (f->keep != 0) fine = fine && add_item(t, "keep=", number);
    snprintf(number, sizeof number, "%.9g", f->kv_keep);
    if (f->kv_keep != 0) fine = fine && add_item(t, "kv_keep=", number);
    if (f->kv_budget) fine = fine && add_item(t, "kv_bytes=", f->kv_budget);
    for (size_t i = 0; i < f->more.n; i++) fine = fine && add_item(t, "", f->more.items[i]);
    return fine;
}

static int print_fields(void)
{
    printf("Policies to start from: a name given alone or as policy=NAME; profile=NAME|FILE; dense.\n\nFields, each with the values it takes or one for example:\n");
    for (size_t i = 0; i < N_FIELDS; i++) printf("  %-18s %s\n", fields[i].name, fields[i].words);
    printf("\nbudgets and windows name layers (12, 0-7) and after a dot KV heads (12.1). What each field means is in\n"
           "freetoken/freetoken.h under ftk_reduction.\n");
    return STATUS_OK;
}

int reduce_setting_of_flags(reduce_setting *out, const reduce_target *to, const reduce_flags *f)
{
    text_buffer text = {0};
    for (size_t i = 0; i < f->more.n; i++)
        if (strcmp(f->more.items[i], "help") == 0) return print_fields();
    int status = text_of_flags(&text, f) ? reduce_setting_of_text(out, to, text.data ? text.data : "") : no_memory();
    text_free(&text);
    return status;
}

/* ------------------------------------------------------------------- sweep */

void reduce_sweep_free(reduce_setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) reduce_setting_close(&settings[i]);
    free(settings);
}

typedef struct sweep {
    reduce_setting *settings;
    size_t n;
    const reduce_target *to;
    const char *base; /* text of the flags */
} sweep;

enum { MOST_SETTINGS = 1024 };

static int add_setting(sweep *s, const char *text)
{
    text_buffer whole = {0};
    if (s->n == MOST_SETTINGS) return args_refuse(s->to->command, "--sweep: more than %d settings", MOST_SETTINGS);
    reduce_setting *grown = realloc(s->settings, (s->n + 1) * sizeof *grown), one = {0};
    if (!grown) return no_memory();
    s->settings = grown;
    bool on_top = *s->base && strcmp(text, "dense") != 0; /* later fields replace earlier ones */
    bool fine = (!on_top || text_add(&whole, s->base, strlen(s->base))) && add_item(&whole, "", text);
    int status = fine ? reduce_setting_of_text(&one, s->to, whole.data) : no_memory();
    text_free(&whole);
    if (status != STATUS_GO_ON) return status;
    free(one.name);
    one.name = strdup(text);
    if (!one.name) {
        reduce_setting_close(&one);
        return no_memory();
    }
    s->settings[s->n++] = one;
    return STATUS_GO_ON;
}

/* Writes out the alternatives: the first group "a|b" of the text with each of its words in turn. An item
 * is key=value|value or word|word. */
static int add_alternatives(sweep *s, const char *text)
{
    const char *bar = strchr(text, '|');
    if (!bar) return add_setting(s, text);
    const char *from = bar, *to = bar + strcspn(bar, ",");
    while (from > text && from[-1] != ',') from--;
    const char *equals = memchr(from, '=', (size_t)(bar - from));
    if (equals) from = equals + 1;
    for (const char *word = from; word <= to;) {
        size_t len = strcspn(word, "|,");
        text_buffer one = {0};
        bool fine = text_add(&one, text, (size_t)(from - text)) && text_add(&one, word, len) && text_add(&one, to, strlen(to));
        int status = fine ? add_alternatives(s, one.data) : no_memory();
        text_free(&one);
        if (status != STATUS_GO_ON) return status;
        word += len + 1;
    }
    return STATUS_GO_ON;
}

int reduce_sweep(reduce_setting **out, size_t *n, const reduce_target *to, const reduce_flags *f, const char *text)
{
    text_buffer base = {0};
    char *copy = strdup(text), *rest = copy;
    int status = copy && text_of_flags(&base, f) ? STATUS_GO_ON : no_memory();
    sweep s = {.to = to, .base = base.data ? base.data : ""};
    for (char *one; status == STATUS_GO_ON && (one = strsep(&rest, ";")) != NULL;) {
        one = trim(one);
        if (*one) status = add_alternatives(&s, one);
    }
    if (status == STATUS_GO_ON && s.n == 0) status = args_refuse(to->command, "--sweep: no setting given");
    if (status == STATUS_GO_ON) {
        *out = s.settings;
        *n = s.n;
    } else reduce_sweep_free(s.settings, s.n);
    free(copy);
    text_free(&base);
    return status;
}

int reduce_flags_check(const char *command, const reduce_flags *f, const char *text)
{
    reduce_setting one = {0}, *all = NULL;
    size_t n = 0;
    const reduce_target to = {.command = command};
    int status = text ? reduce_sweep(&all, &n, &to, f, text) : reduce_setting_of_flags(&one, &to, f);
    reduce_setting_close(&one);
    reduce_sweep_free(all, n);
    return status;
}

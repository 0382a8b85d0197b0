// SPDX-License-Identifier: Apache-2.0
/* Parsing of flags against a table and the help text made from the same table. */
#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ui.h"

int args_refuse(const char *command, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ui_error("%s", text);
    fprintf(stderr, "Try: freetoken help%s%s\n", command ? " " : "", command ? command : "");
    return STATUS_USAGE;
}

/* ------------------------------------------------------------ nearest name */

/* Edits (insert, drop, replace, swap of neighbours) from a to b; long words are far. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t row[3][LONGEST + 1];
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST) return LONGEST;
    for (size_t j = 0; j <= nb; j++) row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                earlier[j - 2] + 1 < best)
                best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *args_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1; /* one edit in three letters is a slip */
    for (size_t i = 0; i < n; i++) {
        size_t distance = edit_distance(word, names[i]);
        /* the beginning of one name only is as good as one slip */
        if (strlen(word) >= 3 && strncmp(word, names[i], strlen(word)) == 0) distance = 1;
        if (distance <= best_distance && (!best || distance < best_distance)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

static int refuse_unknown(const arg_spec *spec, const char *given, const char *name)
{
    const char **names = calloc(spec->n_flags + 1, sizeof *names);
    size_t n = 0;
    const char *near = NULL;
    if (names) {
        for (size_t i = 0; i < spec->n_flags; i++)
            if (spec->flags[i].kind != ARG_GROUP) names[n++] = spec->flags[i].name;
        names[n++] = "help";
        near = args_nearest(name, names, n);
    }
    int status = near ? args_refuse(spec->command, "%s: no such flag: did you mean --%s?", given, near)
                      : args_refuse(spec->command, "%s: no such flag", given);
    free(names);
    return status;
}

/* ------------------------------------------------------------------ values */

static const char out_of_range[] = "is out of range";

const char *args_count(const char *text, double low, double high, int64_t *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    bool digits = end != text && strspn(text, "+-0123456789.") == (size_t)(end - text);
    if (!digits) return "is not a number";
    if (*end == 'k' || *end == 'K') value *= 1024, end++;
    else if (*end == 'm' || *end == 'M') value *= 1048576, end++;
    if (*end) return "is not a number (suffixes: k = 1024, m = 1048576)";
    if (!(value >= low && value <= high)) return out_of_range;
    if (value != floor(value)) return "is not a whole number";
    *out = (int64_t)value;
    return NULL;
}

/* `given` is the flag as the user wrote it, "-n" or "--tokens". */
static int refuse_value(const arg_spec *spec, const arg_flag *f, const char *given, const char *text, const char *why)
{
    if (strcmp(why, out_of_range) == 0)
        return args_refuse(spec->command, "%s %s: must be from %.16g to %.16g", given, text, f->low, f->high);
    return args_refuse(spec->command, "%s %s: %s", given, text, why);
}

static int take_counts(const arg_spec *spec, const arg_flag *f, const char *given, const char *text)
{
    count_list *list = f->value;
    size_t n = 1;
    for (const char *p = text; *p; p++) n += *p == ',';
    count_list_free(list);
    list->items = calloc(n, sizeof *list->items);
    char *copy = strdup(text);
    int status = STATUS_GO_ON;
    if (!list->items || !copy) {
        ui_error("out of memory");
        status = STATUS_FAILURE;
    }
    for (char *p = copy, *comma; status == STATUS_GO_ON && p; p = comma) {
        comma = strchr(p, ',');
        if (comma) *comma++ = 0;
        const char *why = args_count(p, f->low, f->high, &list->items[list->n]);
        if (why) status = refuse_value(spec, f, given, *p ? p : "(empty)", why);
        else list->n++;
    }
    free(copy);
    return status;
}

static int take_choice(const arg_spec *spec, const arg_flag *f, const char *given, const char *text)
{
    size_t len = strlen(text);
    int index = 0;
    for (const char *p = f->shows; p; index++) {
        const char *bar = strchr(p, '|');
        size_t word = bar ? (size_t)(bar - p) : strlen(p);
        if (word == len && strncmp(p, text, len) == 0) {
            *(int *)f->value = index;
            return STATUS_GO_ON;
        }
        p = bar ? bar + 1 : NULL;
    }
    return args_refuse(spec->command, "%s %s: must be one of %s", given, text, f->shows);
}

/* Whether a word ends like one of the files in `shows`. */
static bool has_ending(const arg_flag *f, const char *word)
{
    for (const char *p = f->shows; p && (p = strchr(p, '.')) != NULL; p = strchr(p, '|')) {
        size_t ending = strcspn(p, "|"), len = strlen(word);
        if (len > ending && strncmp(word + len - ending, p, ending) == 0) return true;
    }
    return false;
}

static int take(const arg_spec *spec, const arg_flag *f, const char *given, const char *text)
{
    const char *why;
    switch (f->kind) {
    case ARG_GROUP:
        return STATUS_GO_ON;
    case ARG_BOOL:
        *(bool *)f->value = true;
        return STATUS_GO_ON;
    case ARG_TEXT:
    case ARG_FILE:
        *(const char **)f->value = text;
        return STATUS_GO_ON;
    case ARG_TEXTS: {
        text_list *list = f->value;
        const char **grown = realloc(list->items, (list->n + 1) * sizeof *grown);
        if (!grown) {
            ui_error("out of memory");
            return STATUS_FAILURE;
        }
        list->items = grown;
        list->items[list->n++] = text;
        return STATUS_GO_ON;
    }
    case ARG_COUNT:
        why = args_count(text, f->low, f->high, f->value);
        return why ? refuse_value(spec, f, given, text, why) : STATUS_GO_ON;
    case ARG_COUNTS:
        return take_counts(spec, f, given, text);
    case ARG_REAL: {
        char *end;
        double value = strtod(text, &end);
        if (end == text || *end) return refuse_value(spec, f, given, text, "is not a number");
        if (!(value >= f->low && value <= f->high))
            return refuse_value(spec, f, given, text, out_of_range);
        *(double *)f->value = value;
        return STATUS_GO_ON;
    }
    case ARG_CHOICE:
        return take_choice(spec, f, given, text);
    }
    return STATUS_GO_ON;
}

/* -------------------------------------------------------------------- help */

/* Prints text from column `at`, wrapped at 92 columns with an indent. */
static void print_wrapped(const char *text, int at, int indent)
{
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > indent && at + (int)word + 1 > 92) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        fwrite(text, 1, word, stdout);
        at += (int)word;
        text += word + strspn(text + word, " ");
    }
    putchar('\n');
}

static void print_help(const arg_spec *spec)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    printf("%sUsage:%s\n", bold, plain);
    for (const char *p = spec->usage; *p;) {
        size_t line = strcspn(p, "\n");
        printf("  freetoken %s %.*s\n", spec->command, (int)line, p);
        p += line + (p[line] == '\n');
    }
    printf("\n%s\n", spec->about);
    for (size_t i = 0; i < spec->n_flags; i++) {
        const arg_flag *f = &spec->flags[i];
        if (f->kind == ARG_GROUP) {
            printf("\n%s%s%s\n", bold, f->help, plain);
            continue;
        }
        char left[96];
        int n = f->letter ? snprintf(left, sizeof left, "  -%c, --%s", f->letter, f->name)
                          : snprintf(left, sizeof left, "      --%s", f->name);
        if (f->kind != ARG_BOOL) n += snprintf(left + n, sizeof left - (size_t)n, f->kind == ARG_FILE ? " [%s]" : " %s", f->shows);
        enum { COLUMN = 29 };
        printf("%s", left);
        if (n > COLUMN - 2) printf("\n%*s", COLUMN, "");
        else printf("%*s", COLUMN - n, "");
        print_wrapped(f->help, COLUMN, COLUMN);
    }
    printf("  -h, --help                 this text\n");
    printf("\n%sExamples:%s\n%s", bold, plain, spec->examples);
    printf("\nExit status: 0 done, 1 failed, 2 wrong use, 130 interrupted.\n");
}

/* ----------------------------------------------------------------- parsing */

static const arg_flag *find_long(const arg_spec *spec, const char *name, size_t len)
{
    for (size_t i = 0; i < spec->n_flags; i++) {
        const arg_flag *f = &spec->flags[i];
        if (f->kind != ARG_GROUP && strlen(f->name) == len && strncmp(f->name, name, len) == 0) return f;
    }
    return NULL;
}

static const arg_flag *find_letter(const arg_spec *spec, char letter)
{
    for (size_t i = 0; i < spec->n_flags; i++)
        if (spec->flags[i].kind != ARG_GROUP && spec->flags[i].letter == letter) return &spec->flags[i];
    return NULL;
}

/* Whether a word is a flag of this command rather than a value. */
static bool is_flag(const arg_spec *spec, const char *word)
{
    if (word[0] != '-' || !word[1]) return false;
    if (word[1] == '-') return find_long(spec, word + 2, strcspn(word + 2, "=")) != NULL;
    return !word[2] && find_letter(spec, word[1]) != NULL;
}

int args_parse(const arg_spec *spec, int argc, char **argv, const char **words, size_t *n_words)
{
    *n_words = 0;
    bool flags_over = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (flags_over || word[0] != '-' || !word[1]) {
            if (*n_words == spec->max_words)
                return args_refuse(spec->command, "\"%s\": too many words (a text with spaces needs quotes)", word);
            words[(*n_words)++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            flags_over = true;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(spec);
            return STATUS_OK;
        }
        bool is_long = word[1] == '-';
        size_t len = is_long ? strcspn(word + 2, "=") : 0;
        const arg_flag *f = is_long ? find_long(spec, word + 2, len) : find_letter(spec, word[1]);
        const char *value = NULL;
        if (is_long && word[2 + len] == '=') value = word + 3 + len;
        if (!is_long && word[2]) value = word + 2 + (word[2] == '=');
        char given[64];
        snprintf(given, sizeof given, "%.*s", is_long ? (int)len + 2 : f ? 2 : 60, word);
        if (!f) return refuse_unknown(spec, given, given + 1 + is_long);
        if (f->kind == ARG_BOOL) {
            if (value) return args_refuse(spec->command, "%s takes no value", given);
        } else if (!value && f->kind == ARG_FILE) {
            value = i + 1 < argc && has_ending(f, argv[i + 1]) ? argv[++i] : "";
        } else if (!value) {
            if (i + 1 == argc) return args_refuse(spec->command, "%s needs a value: %s", given, f->shows);
            value = argv[++i];
            if (is_flag(spec, value))
                return args_refuse(spec->command, "%s needs a value, and %s is a flag (--%s=%s if it is meant)", given,
                                   value, f->name, value);
        }
        int status = take(spec, f, given, value);
        if (status != STATUS_GO_ON) return status;
    }
    if (*n_words < spec->min_words) {
        size_t line = strcspn(spec->usage, "\n");
        return args_refuse(spec->command, "something is missing: freetoken %s %.*s", spec->command, (int)line,
                      spec->usage);
    }
    return STATUS_GO_ON;
}

void text_list_free(text_list *l)
{
    free(l->items);
    *l = (text_list){0};
}

void count_list_free(count_list *l)
{
    free(l->items);
    *l = (count_list){0};
}

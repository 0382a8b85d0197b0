// SPDX-License-Identifier: Apache-2.0
/* Command line flags from a table: parsing, range checks, help text. A flag that is not in the
 * table is refused with the nearest name; every message names the flag it speaks of.
 *
 * Written as --flag VALUE, --flag=VALUE, -f VALUE or -fVALUE. Counts take the suffixes k (1024)
 * and m (1048576). "--" ends the flags. A value that is itself a flag of the command is taken
 * for a forgotten value; --flag=VALUE passes it nevertheless. */
#ifndef FREETOKEN_TOOLS_ARGS_H
#define FREETOKEN_TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program exits with. */
enum { STATUS_OK = 0, STATUS_FAILURE = 1, STATUS_USAGE = 2, STATUS_INTERRUPTED = 130 };
/* Returned by args_parse and friends: nothing to exit for. */
enum { STATUS_GO_ON = -1 };

typedef enum arg_kind {
    ARG_GROUP,  /* a heading in the help text; only `help` is read */
    ARG_BOOL,   /* value: bool */
    ARG_TEXT,   /* value: const char * */
    ARG_TEXTS,  /* value: text_list; may be given several times */
    ARG_COUNT,  /* value: int64_t, low..high, k/m suffixes */
    ARG_COUNTS, /* value: count_list, comma-separated */
    ARG_REAL,   /* value: double, low..high */
    ARG_CHOICE, /* value: int, index into `shows`, "int8|f16|f32" */
    ARG_FILE    /* value: const char *, "" when none follows: only a word with one of the endings in `shows`,
                   "FILE.html|FILE.json", is taken as its value, or what is given with = */
} arg_kind;

typedef struct text_list {
    const char **items; /* [n], the strings belong to argv */
    size_t n;
} text_list;

typedef struct count_list {
    int64_t *items; /* [n] */
    size_t n;
} count_list;

typedef struct arg_flag {
    arg_kind kind;
    const char *name; /* "context", without dashes */
    char letter;      /* 'c', 0: none */
    void *value;      /* set when the flag is given, untouched otherwise */
    double low, high; /* range of counts and reals, both included */
    const char *shows; /* "TOKENS"; the words of a choice, separated by | */
    const char *help;
} arg_flag;

typedef struct arg_spec {
    const char *command;  /* "run" */
    const char *usage;    /* "[MODEL] [-p TEXT]", one line per form */
    const char *about;    /* sentences above the flags */
    const char *examples; /* lines below the flags */
    const arg_flag *flags;
    size_t n_flags;
    size_t min_words, max_words; /* words that are no flags */
} arg_spec;

/* Fills the flags' values and words [max_words] and *n_words. Returns STATUS_GO_ON, STATUS_OK
 * after --help, or STATUS_USAGE after a message. */
int args_parse(const arg_spec *spec, int argc, char **argv, const char **words, size_t *n_words);
/* Says what is wrong with the use of a command, and where help is: returns STATUS_USAGE. */
int args_refuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One count with its suffix in low..high; NULL or why not, static. */
const char *args_count(const char *text, double low, double high, int64_t *out);
/* The name of names [n] most like `word`, NULL if none is near. */
const char *args_nearest(const char *word, const char *const *names, size_t n);
void text_list_free(text_list *l);
void count_list_free(count_list *l);

#endif

// SPDX-License-Identifier: Apache-2.0
/* freetoken tokenize: text to ids and pieces, and ids back to text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "commands.h"
#include "json_out.h"
#include "models.h"
#include "text.h"
#include "ui.h"

typedef struct tokenize_request {
    const char *file, *decode;
    bool special, no_bos, count, ids_only, json;
} tokenize_request;

static json_t *json_of_token(const ftk_model *m, ftk_token id)
{
    size_t len = 0;
    const char *bytes = ftk_token_bytes(m, id, true, &len);
    json_t *row = json_object();
    json_object_set_new(row, "id", json_integer(id));
    json_object_set_new(row, "piece", json_text_of(bytes ? bytes : "", len));
    if (text_invalid(bytes, len) < len) { /* part of a character: the bytes tell which */
        text_buffer hex = {0};
        char two[3];
        for (size_t i = 0; i < len; i++) {
            snprintf(two, sizeof two, "%02x", (unsigned char)bytes[i]);
            text_add(&hex, two, 2);
        }
        json_object_set_new(row, "bytes", json_text(hex.data ? hex.data : ""));
        text_free(&hex);
    }
    return row;
}

static int print_tokens(const ftk_model *m, const token_list *t, const tokenize_request *r)
{
    if (r->json) {
        json_t *j = json_object(), *list = json_array();
        for (size_t i = 0; !r->count && i < t->n; i++) json_array_append_new(list, json_of_token(m, t->ids[i]));
        json_object_set_new(j, "count", json_integer((json_int_t)t->n));
        if (r->count) json_decref(list);
        else json_object_set_new(j, "tokens", list);
        return json_line(j);
    }
    if (r->count) {
        printf("%zu\n", t->n);
        return STATUS_OK;
    }
    if (r->ids_only) {
        for (size_t i = 0; i < t->n; i++) printf("%s%d", i ? "," : "", t->ids[i]);
        putchar('\n');
        return STATUS_OK;
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t len = 0;
        const char *bytes = ftk_token_bytes(m, t->ids[i], true, &len);
        printf("%7d  ", t->ids[i]);
        text_quote(stdout, bytes ? bytes : "", len);
        putchar('\n');
    }
    ui_note("%zu tokens", t->n);
    return STATUS_OK;
}

/* Ids separated by commas or blanks; brackets around them, as JSON has them, are fine. */
static int parse_ids(token_list *t, const char *s)
{
    const char *p = s;
    for (;;) {
        p += strspn(p, " ,\n\t\r[]");
        if (!*p) return STATUS_GO_ON;
        char *end;
        long id = strtol(p, &end, 10);
        if (end == p || (*end && !strchr(" ,\n\t\r[]", *end)))
            return args_refuse("tokenize", "--decode: \"%.20s\" at character %zu is no token id", p, (size_t)(p - s));
        ftk_token token = id < 0 || id > INT32_MAX ? -1 : (ftk_token)id;
        if (!tokens_add(t, &token, 1)) {
            ui_error("out of memory");
            return STATUS_FAILURE;
        }
        p = end;
    }
}

static int decode(const ftk_model *m, const tokenize_request *r)
{
    text_buffer input = {0}, out = {0};
    token_list t = {0};
    size_t len = 0;
    ftk_error e = {0};
    int status = strcmp(r->decode, "-") == 0 ? text_read(&input, "-") : STATUS_GO_ON;
    if (status == STATUS_GO_ON) status = parse_ids(&t, input.data ? input.data : r->decode);
    for (size_t i = 0; status == STATUS_GO_ON && i < t.n; i++)
        if (!ftk_token_bytes(m, t.ids[i], true, &len)) {
            ftk_model_info info;
            ftk_model_get_info(m, &info);
            ui_error("--decode: id number %zu is outside the vocabulary of %d", i + 1, info.n_vocab);
            status = STATUS_FAILURE;
        }
    if (status == STATUS_GO_ON) {
        ftk_status s = ftk_detokenize(m, t.ids, t.n, r->special, NULL, 0, &len, &e);
        if (s == FTK_OK && (out.data = malloc(len + 1)) == NULL) s = e.code = FTK_OUT_OF_MEMORY;
        if (s == FTK_OK) s = ftk_detokenize(m, t.ids, t.n, r->special, out.data, len, &len, &e);
        status = s == FTK_OK ? STATUS_OK : ui_fail("--decode", &e);
    }
    if (status == STATUS_OK && r->json) {
        json_t *j = json_object();
        json_object_set_new(j, "count", json_integer((json_int_t)t.n));
        json_object_set_new(j, "text", json_text_of(out.data, len));
        status = json_line(j);
    } else if (status == STATUS_OK) {
        text_show(stdout, out.data, len);
        putchar('\n');
    }
    text_free(&input);
    text_free(&out);
    tokens_free(&t);
    return status;
}

static int encode(const ftk_model *m, const tokenize_request *r, const char *word)
{
    text_buffer input = {0};
    token_list t = {0};
    const char *what = word ? "text" : r->file ? r->file : "standard input";
    int status = STATUS_GO_ON;
    if (!word) status = text_read(&input, r->file ? r->file : "-");
    else if (!text_add(&input, word, strlen(word))) status = STATUS_FAILURE;
    if (status == STATUS_GO_ON) status = text_check(what, input.data, input.len);
    int ask = (r->special ? FTK_TOKENIZE_SPECIAL : 0) | (r->no_bos ? 0 : FTK_TOKENIZE_BOS_EOS);
    if (status == STATUS_GO_ON) status = tokens_of(&t, m, what, input.data, input.len, ask);
    if (status == STATUS_GO_ON) status = print_tokens(m, &t, r);
    text_free(&input);
    tokens_free(&t);
    return status;
}

int cmd_tokenize(int argc, char **argv)
{
    tokenize_request r = {0};
    const arg_flag flags[] = {
        {ARG_TEXT, "file", 'f', &r.file, 0, 0, "FILE", "read the text from a file; - is standard input"},
        {ARG_BOOL, "special", 's', &r.special, 0, 0, NULL, "markers such as <|im_start|> in the text are one token; with --decode: show them"},
        {ARG_BOOL, "no-bos", 0, &r.no_bos, 0, 0, NULL, "do not add the begin and end tokens the model's file asks for"},
        {ARG_BOOL, "count", 'c', &r.count, 0, 0, NULL, "print the number of tokens only"},
        {ARG_BOOL, "ids", 'i', &r.ids_only, 0, 0, NULL, "print the ids in one line, as --decode reads them"},
        {ARG_TEXT, "decode", 'd', &r.decode, 0, 0, "IDS", "print the text of these ids; - reads them from standard input"},
        {ARG_BOOL, "json", 0, &r.json, 0, 0, NULL, "print one JSON object"},
    };
    const arg_spec spec = {
        "tokenize", "MODEL [TEXT | -f FILE] [--count | --ids]\nMODEL --decode IDS",
        "Shows the tokens of a text, or the text of tokens. Without TEXT or FILE the text is read\n"
        "from standard input.",
        "  freetoken tokenize smollm2-135m \"Hello world\"\n"
        "  freetoken tokenize smollm2-135m --count -f report.txt\n"
        "  freetoken tokenize smollm2-135m --decode 19556,905\n"
        "  freetoken tokenize smollm2-135m --special \"<|im_start|>user\" --json\n",
        flags, sizeof flags / sizeof flags[0], 1, 2};
    const char *words[2] = {0};
    size_t n_words;
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) return status;
    if (r.json) json_report_errors();
    if ((n_words == 2) + (r.file != NULL) + (r.decode != NULL) > 1)
        return args_refuse("tokenize", "give one of TEXT, --file and --decode");
    ftk_model *m = NULL;
    model_request open = {.word = words[0], .vocab_only = true};
    status = models_open(&m, &open);
    if (status != STATUS_GO_ON) return status;
    status = r.decode ? decode(m, &r) : encode(m, &r, n_words == 2 ? words[1] : NULL);
    ftk_model_close(m);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* freetoken run: completes a text, answers a question about a document, or chats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "chat.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "models.h"
#include "survivors.h"
#include "talk.h"
#include "ui.h"

typedef struct run_request {
    talk_options talk;
    const char *prompt, *session;
    text_list files, bias;
    bool go_on, quiet;
    /* sampling, as the flags have it */
    double temperature, top_p, min_p, repetition, frequency, presence;
    int64_t top_k, window, seed;
    ftk_logit_bias *biases; /* [bias.n] */
} run_request;

/* "ID=VALUE" of --bias; -inf bans the token. */
static int take_biases(run_request *r)
{
    r->biases = calloc(r->bias.n + 1, sizeof *r->biases);
    if (!r->biases) return STATUS_FAILURE;
    for (size_t i = 0; i < r->bias.n; i++) {
        const char *text = r->bias.items[i];
        char *end, *last;
        long id = strtol(text, &end, 10);
        double value = *end == '=' ? strtod(end + 1, &last) : NAN;
        if (end == text || *end != '=' || last == end + 1 || *last || isnan(value) || id < 0 || id > INT32_MAX)
            return args_refuse("run", "--bias %s: must be ID=VALUE, for example 198=-2.5 or 198=-inf", text);
        r->biases[i] = (ftk_logit_bias){(ftk_token)id, (float)value};
    }
    r->talk.sampling.bias = r->biases;
    r->talk.sampling.n_bias = r->bias.n;
    return STATUS_GO_ON;
}

/* Small models that always take the likeliest token end in loops; in a chat nobody wants that, of
 * a single answer the same text each time is expected. */
static void take_sampling(run_request *r, bool chatting)
{
    ftk_sampler_opts *s = &r->talk.sampling;
    if (r->top_p < 0) r->top_p = chatting && r->temperature < 0 ? 0.9 : 0;
    if (r->temperature < 0) r->temperature = chatting ? 0.7 : 0;
    s->size = sizeof *s;
    s->temperature = (float)r->temperature;
    s->top_k = (int32_t)r->top_k;
    s->top_p = (float)r->top_p;
    s->min_p = (float)r->min_p;
    s->repetition_penalty = (float)r->repetition;
    s->frequency_penalty = (float)r->frequency;
    s->presence_penalty = (float)r->presence;
    s->penalty_window = (int32_t)r->window;
    s->seed = (uint64_t)r->seed;
}

/* The text of the first turn: files, then an empty line, then the prompt; without either what
 * standard input holds, unless somebody sits there. */
static int gather(const run_request *r, text_buffer *text, bool *have)
{
    *have = r->prompt || r->files.n;
    int status = STATUS_GO_ON;
    for (size_t i = 0; status == STATUS_GO_ON && i < r->files.n; i++) {
        text_buffer file = {0};
        const char *name = strcmp(r->files.items[i], "-") ? r->files.items[i] : "standard input";
        status = text_read(&file, r->files.items[i]);
        if (status == STATUS_GO_ON) status = text_check(name, file.data, file.len);
        if (status == STATUS_GO_ON && file.len == 0) ui_warn("%s is empty", name);
        if (status == STATUS_GO_ON && !text_add(text, file.data, file.len)) status = STATUS_FAILURE;
        text_free(&file);
        bool more = i + 1 < r->files.n || r->prompt;
        if (status == STATUS_GO_ON && more && !r->talk.raw && !text_add(text, "\n\n", 2)) status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON && r->prompt) {
        status = text_check("--prompt", r->prompt, strlen(r->prompt));
        if (status == STATUS_GO_ON && !text_add(text, r->prompt, strlen(r->prompt))) status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON && !*have && !r->talk.chat && !isatty(STDIN_FILENO)) {
        *have = true;
        status = text_read(text, "-");
        if (status == STATUS_GO_ON) status = text_check("standard input", text->data, text->len);
    }
    return status;
}

static int answer_once(run_request *r, talk *t, const text_buffer *text)
{
    token_list prompt = {0};
    bool restore = r->session && files_size(r->session) >= 0;
    int status = STATUS_GO_ON;
    if (t->templated && strspn(text->data ? text->data : "", " \t\r\n") == text->len) {
        ui_error("the prompt is empty: give --prompt TEXT or --file FILE");
        status = STATUS_FAILURE;
    }
    /* The session's size depends on the prompt, and with --continue the prompt on what is restored. */
    if (status == STATUS_GO_ON) status = talk_prompt(t, text->data ? text->data : "", text->len, &prompt);
    if (status == STATUS_GO_ON) status = talk_open_session(t, prompt.n);
    if (status == STATUS_GO_ON && restore) status = talk_restore(t, r->session, r->go_on);
    if (status == STATUS_GO_ON && r->go_on) status = talk_prompt(t, text->data ? text->data : "", text->len, &prompt);
    if (status == STATUS_GO_ON) {
        size_t turns = t->turns;
        status = talk_answer(t, &prompt);
        if (t->turns > turns) {
            talk_report(t);
            int saved = r->session ? talk_save(t, r->session) : STATUS_GO_ON;
            if (status == STATUS_GO_ON) status = saved;
        }
    }
    tokens_free(&prompt);
    return status;
}

static int converse(run_request *r, talk *t, const text_buffer *text, bool have)
{
    if (!t->templated) {
        ui_error("this model has no chat template: give a text to complete with --prompt, or --template FAMILY");
        return STATUS_FAILURE;
    }
    token_list first = {0};
    int status = STATUS_GO_ON;
    if (have) status = talk_prompt(t, text->data ? text->data : "", text->len, &first);
    if (status == STATUS_GO_ON) status = talk_open_session(t, first.n);
    tokens_free(&first);
    if (status == STATUS_GO_ON && r->session && files_size(r->session) >= 0) status = talk_restore(t, r->session, true);
    if (status != STATUS_GO_ON) return status;
    status = chat(t, have ? text->data : NULL, r->session);
    if (r->session && t->turns) {
        int saved = talk_save(t, r->session);
        if (status == STATUS_OK && saved != STATUS_GO_ON) status = saved;
    }
    return status;
}

int cmd_run(int argc, char **argv)
{
    run_request r = {.talk = {.max_tokens = -1, .word = DEFAULT_MODEL}, .window = 64, .temperature = -1, .top_p = -1};
    talk_options *o = &r.talk;
    const arg_flag flags[] = {
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "What to answer"},
        {ARG_TEXT, "prompt", 'p', &r.prompt, 0, 0, "TEXT", "the text to answer or complete"},
        {ARG_TEXTS, "file", 'f', &r.files, 0, 0, "FILE", "a text file that goes before the prompt; - is standard input; may be given several times"},
        {ARG_BOOL, "chat", 0, &o->chat, 0, 0, NULL, "go on as a chat after the first answer; with a pipe each line is a turn"},
        {ARG_TEXT, "system", 0, &o->system, 0, 0, "TEXT", "the instruction in front of a chat"},
        {ARG_TEXT, "template", 0, &o->family, 0, 0, "FAMILY", "chat template instead of the model's own: chatml, llama3, gemma, ..."},
        {ARG_BOOL, "raw", 0, &o->raw, 0, 0, NULL, "complete the plain text, without a chat template"},
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "How long"},
        {ARG_COUNT, "tokens", 'n', &o->max_tokens, -2, 2e9, "N", "most tokens of the answer; 0 reads the prompt only; below 0, the default: until the model ends or the context is full"},
        {ARG_TEXTS, "stop", 's', &o->stop, 0, 0, "TEXT", "end the answer before this text; may be given several times"},
        {ARG_BOOL, "ignore-end", 0, &o->ignore_end, 0, 0, NULL, "go on after the model's end token"},
        {ARG_COUNT, "context", 'c', &o->context, 1, 1e7, "N", "most tokens of prompt and answers; default 4096, or what the prompt needs up to the model's training context"},
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "Sampling"},
        {ARG_REAL, "temp", 0, &r.temperature, 0, 100, "T", "temperature; 0 takes the likeliest token; default 0, in a chat 0.7"},
        {ARG_COUNT, "top-k", 0, &r.top_k, 0, 1e6, "K", "choose among the K likeliest; default 0: off"},
        {ARG_REAL, "top-p", 0, &r.top_p, 0, 1, "P", "choose among the likeliest that make up P; default off, in a chat 0.9"},
        {ARG_REAL, "min-p", 0, &r.min_p, 0, 1, "P", "choose among those at least P as likely as the likeliest; default off"},
        {ARG_REAL, "repeat-penalty", 0, &r.repetition, 0, 10, "X", "above 1: tokens seen lately become less likely; default off"},
        {ARG_REAL, "frequency-penalty", 0, &r.frequency, -2, 2, "X", "taken from the logit for each time a token came; default 0"},
        {ARG_REAL, "presence-penalty", 0, &r.presence, -2, 2, "X", "taken from the logit of tokens that came; default 0"},
        {ARG_COUNT, "penalty-window", 0, &r.window, -1, 1e7, "N", "last tokens the penalties look at; -1: all; default 64"},
        {ARG_TEXTS, "bias", 0, &r.bias, 0, 0, "ID=X", "added to the logit of a token, -inf bans it; may be given several times"},
        {ARG_COUNT, "seed", 0, &r.seed, 0, 9e15, "N", "same seed, threads and model: same text; default 0"},
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "Machine"},
        {ARG_COUNT, "threads", 't', &o->threads, 1, 256, "N", "default: online cores"},
        {ARG_CHOICE, "kv", 0, &o->kv, 0, 0, "int8|f16|f32", "how keys and values are stored; default int8"},
        {ARG_COUNT, "chunk", 0, &o->chunk, 1, 4096, "N", "prompt tokens computed at once; default 256"},
        {ARG_TEXT, "isa", 0, &o->isa, 0, 0, "LEVEL", "kernels: scalar, avx2, avx512, neon, i8mm; default the best"},
        {ARG_TEXT, "session", 0, &r.session, 0, 0, "FILE", "take over what FILE holds of the prompt, and save there afterwards: the next question about the same document starts at once"},
        {ARG_BOOL, "continue", 0, &r.go_on, 0, 0, NULL, "with --session: the prompt is the next turn of the saved conversation"},
        REDUCE_FLAG_ROWS(o->reduce),
        {ARG_FILE, "explain", 0, &o->explain, 0, 0, "FILE.html|FILE.json", "show what each kept token of the prompt stands for: coloured on stderr, or as a page or JSON in a file"},
        {ARG_GROUP, NULL, 0, NULL, 0, 0, NULL, "Output"},
        {ARG_BOOL, "json", 0, &o->json, 0, 0, NULL, "one JSON object a line: pieces of text, then a summary"},
        {ARG_BOOL, "special", 0, &o->special, 0, 0, NULL, "show special tokens; with --raw also read them in the prompt"},
        {ARG_BOOL, "quiet", 'q', &r.quiet, 0, 0, NULL, "no progress and no line of figures"},
    };
    const arg_spec spec = {
        "run", "[MODEL] [-p TEXT] [-f FILE]...\n[MODEL] < FILE\n[MODEL]",
        "Answers a prompt, with -f about a document; without any, and at a terminal, chats. MODEL is\n"
        "a .gguf file or a name known to pull; default " DEFAULT_MODEL ". A model with a chat template is\n"
        "addressed through it unless --raw is given. Ctrl-C stops the answer, twice quits.",
        "  freetoken run -p \"Name three rivers.\"\n"
        "  freetoken run smollm2-135m -f report.txt -p \"What was decided?\"\n"
        "  freetoken run qwen2.5-coder-0.5b --raw -n 64 -p \"def fibonacci(n):\"\n"
        "  git diff | freetoken run -f - -p \"Describe this change in one sentence.\"\n"
        "  freetoken run --session talk.ftk            chat, and go on another day\n"
        "  freetoken run -f report.txt -p \"What was decided?\" --kv-keep 0.5\n"
        "  freetoken run -f report.txt -p \"What was decided?\" --policy chat --explain left.html\n"
        "  freetoken run -p Hello --temp 0.8 --top-p 0.95 --seed 7 --json\n",
        flags, sizeof flags / sizeof flags[0], 0, 1};
    const char *words[1] = {NULL};
    size_t n_words;
    text_buffer text = {0};
    bool have = false;
    talk t = {0};
    int status = args_parse(&spec, argc, argv, words, &n_words);
    if (status != STATUS_GO_ON) goto end;
    if (o->json) json_report_errors();
    if (r.quiet) ui_quiet();
    if (words[0]) o->word = words[0];
    if (o->raw && (o->chat || o->system || o->family))
        status = args_refuse("run", "--raw excludes --%s", o->chat ? "chat" : o->system ? "system" : "template");
    else if (r.go_on && !r.session) status = args_refuse("run", "--continue needs --session FILE");
    else if (o->system) status = text_check("--system", o->system, strlen(o->system));
    for (size_t i = 0; status == STATUS_GO_ON && i < o->stop.n; i++)
        if (!*o->stop.items[i]) status = args_refuse("run", "--stop: the text is empty");
    if (status == STATUS_GO_ON && o->explain && *o->explain && !survivors_is_file(o->explain))
        status = args_refuse("run", "--explain %s: must end in .html or .json", o->explain);
    if (status == STATUS_GO_ON && reduce_flags_given(&o->reduce)) status = reduce_flags_check("run", &o->reduce, NULL);
    if (status == STATUS_GO_ON) status = take_biases(&r);
    if (status == STATUS_GO_ON) status = gather(&r, &text, &have);
    take_sampling(&r, o->chat || !have);
    if (status == STATUS_GO_ON) status = talk_open(&t, o);
    if (status == STATUS_GO_ON)
        status = o->chat || !have ? converse(&r, &t, &text, have) : answer_once(&r, &t, &text);
end:
    talk_close(&t);
    text_free(&text);
    free(r.biases);
    text_list_free(&r.files);
    text_list_free(&r.bias);
    text_list_free(&o->stop);
    reduce_flags_free(&o->reduce);
    return status == STATUS_GO_ON ? STATUS_OK : status;
}

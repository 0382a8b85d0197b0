// SPDX-License-Identifier: Apache-2.0
/* Turns of a conversation on one session. */
#include "talk.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "json_out.h"
#include "machine.h"
#include "models.h"
#include "survivors.h"
#include "ui.h"

enum { DEFAULT_CONTEXT = 4096, ANSWER_ROOM = 512, CONTEXT_STEP = 256 };

static ui_progress prefill_progress = {.unit = "tokens"};

/* ----------------------------------------------------------------- opening */

/* Whether the file carries a chat template, known to us or not. */
static bool file_has_template(const char *word)
{
    char path[PATH_MAX];
    ftk_file *f = NULL;
    bool found = false;
    const char *name, *type;
    char value[8];
    if (models_locate(word, path) != STATUS_GO_ON || ftk_file_open(&f, path, NULL) != FTK_OK) return false;
    for (size_t i = 0; !found && (name = ftk_file_key(f, i, &type, value, sizeof value)) != NULL; i++)
        found = strcmp(name, "tokenizer.chat_template") == 0;
    ftk_file_close(f);
    return found;
}

/* Decides between template and plain text, and refuses a template that cannot be rendered. */
static int choose_form(talk *t)
{
    const talk_options *o = t->o;
    t->templated = !o->raw && (o->chat || o->family || o->system || t->info.chat_template[0] || file_has_template(o->word));
    if (!t->templated) return STATUS_GO_ON;
    ftk_message probe = {"user", "x"};
    ftk_error e = {0};
    size_t len = 0;
    if (ftk_chat_render(t->model, o->family, &probe, 1, true, NULL, 0, &len, &e) == FTK_OK) return STATUS_GO_ON;
    ui_error("%s", e.message);
    ui_note("--template FAMILY chooses a chat template, --raw completes plain text without one");
    return STATUS_FAILURE;
}

int talk_open(talk *t, const talk_options *o)
{
    *t = (talk){.o = o};
    double start = ui_now();
    model_request open = {.word = o->word, .threads = o->threads, .isa = o->isa};
    int status = models_open(&t->model, &open);
    t->load_seconds = ui_now() - start;
    if (status == STATUS_GO_ON) {
        ftk_model_get_info(t->model, &t->info);
        status = choose_form(t);
    }
    const reduce_target to = {"run", o->word, t->model};
    if (status == STATUS_GO_ON)
        status = reduce_flags_given(&o->reduce) ? reduce_setting_of_flags(&t->reduction, &to, &o->reduce)
                                                : reduce_setting_usual(&t->reduction, &to);
    ftk_error e = {0};
    if (status == STATUS_GO_ON && ftk_sampler_open(&t->sampler, t->model, &o->sampling, &e) != FTK_OK)
        status = ui_fail(NULL, &e);
    return status;
}

void talk_close(talk *t)
{
    tokens_free(&t->held);
    ftk_sampler_close(t->sampler);
    ftk_session_close(t->session);
    reduce_setting_close(&t->reduction);
    ftk_model_close(t->model);
    *t = (talk){0};
}

/* What to do about a prompt of n tokens that a context of `context` cannot take. */
static int refuse_length(const talk *t, size_t n, size_t context)
{
    int32_t trained = t->info.train_context;
    size_t wanted = n + (t->o->max_tokens > 0 ? (size_t)t->o->max_tokens : t->o->max_tokens < 0 ? ANSWER_ROOM : 0);
    wanted = (wanted + CONTEXT_STEP - 1) / CONTEXT_STEP * CONTEXT_STEP;
    const char *again = t->turns ? "the conversation" : "the prompt";
    if (n < (size_t)trained)
        ui_error("%s has %zu tokens and the context holds %zu: give --context %zu (the model was trained for %d)%s",
                 again, n, context, wanted < (size_t)trained ? wanted : (size_t)trained, trained,
                 t->turns ? ", or /reset" : "");
    else
        ui_error("%s has %zu tokens and the context holds %zu; the model was trained for %d: shorten it%s "
                 "(--context %zu goes beyond, at a loss of quality)",
                 again, n, context, trained, t->turns ? " with /reset" : "", wanted);
    return STATUS_FAILURE;
}

static int open_session(talk *t, int64_t context)
{
    const talk_options *o = t->o;
    ftk_error e = {0};
    ftk_session_opts s = {.size = sizeof s, .context = (int32_t)context, .n_threads = (int32_t)o->threads,
                          .kv_type = (ftk_kv_type)o->kv, .chunk = (int32_t)o->chunk,
                          .progress = ui_on_progress, .progress_ctx = &prefill_progress};
    ftk_session_close(t->session);
    t->session = NULL;
    if (ftk_session_open(&t->session, t->model, &s, &e) != FTK_OK) return ui_fail("session", &e);
    if (t->reduction.dense || ftk_session_reduce(t->session, &t->reduction.r, &e) == FTK_OK) return STATUS_GO_ON;
    return ui_fail("reduction", &e);
}

int talk_open_session(talk *t, size_t n)
{
    const talk_options *o = t->o;
    int64_t trained = t->info.train_context, context = o->context;
    if (context > trained)
        ui_warn("--context %lld is more than the model was trained for (%lld)", (long long)context, (long long)trained);
    if (context == 0) {
        int64_t room = o->max_tokens > 0 ? o->max_tokens : o->max_tokens < 0 ? ANSWER_ROOM : 0;
        int64_t need = ((int64_t)n + room + CONTEXT_STEP - 1) / CONTEXT_STEP * CONTEXT_STEP;
        context = need > DEFAULT_CONTEXT ? need : DEFAULT_CONTEXT;
        if (context > trained) context = trained;
    }
    if (n + (o->max_tokens != 0) > (size_t)context) return refuse_length(t, n, (size_t)context);
    return open_session(t, context);
}

/* ----------------------------------------------------------------- prompts */

/* Appends the ids of a chat, the answer's turn opened. What a message says never becomes a marker. */
static int chat_tokens(const talk *t, const ftk_message *messages, size_t n, token_list *out)
{
    ftk_error e = {0};
    size_t cap = 1024, n_ids = 0;
    for (size_t i = 0; i < n; i++) cap += strlen(messages[i].content);
    for (;;) {
        ftk_token *ids = malloc(cap * sizeof *ids);
        if (!ids) {
            ui_error("out of memory for %zu tokens", cap);
            return STATUS_FAILURE;
        }
        ftk_status s = ftk_chat_tokens(t->model, t->o->family, messages, n, true, ids, cap, &n_ids, &e);
        bool fits = n_ids <= cap, added = s == FTK_OK && fits && tokens_add(out, ids, n_ids);
        free(ids);
        if (added) return STATUS_GO_ON;
        if (s != FTK_OK) return ui_fail("prompt", &e);
        cap = fits ? 2 * cap : n_ids;
    }
}

/* Index of the first token of ids after the text `mark`; n: it is not there. */
static size_t token_after(const ftk_model *m, const token_list *t, const char *mark)
{
    text_buffer text = {0};
    size_t len, at = 0, i = 0;
    for (i = 0; i < t->n; i++) {
        const char *bytes = ftk_token_bytes(m, t->ids[i], true, &len);
        if (bytes && !text_add(&text, bytes, len)) break;
    }
    const char *found = text.data ? memmem(text.data, text.len, mark, strlen(mark)) : NULL;
    size_t end = found ? (size_t)(found - text.data) + strlen(mark) : text.len + 1;
    for (i = 0; i < t->n && at < end; i++) {
        ftk_token_bytes(m, t->ids[i], true, &len);
        at += len;
    }
    text_free(&text);
    return i;
}

/* The first turn is tokenized whole. Of later ones only what the template puts after an answer is
 * wanted: a chat with a stand-in for the answer is tokenized, and what precedes is cut off. */
static int templated_turn(talk *t, const char *data, token_list *prompt)
{
    static const char stand_in[] = "@@answer@@";
    ftk_message messages[3];
    size_t n = 0;
    if (t->held.n == 0) {
        if (t->o->system) messages[n++] = (ftk_message){"system", t->o->system};
        messages[n++] = (ftk_message){"user", data};
        return chat_tokens(t, messages, n, prompt);
    }
    messages[n++] = (ftk_message){"user", "x"};
    messages[n++] = (ftk_message){"assistant", stand_in};
    messages[n++] = (ftk_message){"user", data};
    token_list whole = {0};
    int status = chat_tokens(t, messages, n, &whole);
    if (status == STATUS_GO_ON) {
        size_t from = token_after(t->model, &whole, stand_in);
        if (from == whole.n) {
            ui_error("this chat template does not show earlier answers: use /reset");
            status = STATUS_FAILURE;
        } else if (!tokens_add(prompt, whole.ids + from, whole.n - from)) status = STATUS_FAILURE;
    }
    tokens_free(&whole);
    return status;
}

int talk_prompt(talk *t, const char *data, size_t len, token_list *prompt)
{
    t->started = ui_now();
    tokens_free(prompt);
    if (!tokens_add(prompt, t->held.ids, t->held.n)) {
        ui_error("out of memory");
        return STATUS_FAILURE;
    }
    if (t->templated) return templated_turn(t, data, prompt);
    ftk_token bos = ftk_token_bos(t->model);
    if (t->held.n == 0 && tokens_want_bos(t->model) && !tokens_add(prompt, &bos, 1)) return STATUS_FAILURE;
    int status = STATUS_GO_ON;
    if (len) status = tokens_of(prompt, t->model, "prompt", data, len, t->o->special ? FTK_TOKENIZE_SPECIAL : 0);
    if (status == STATUS_GO_ON && prompt->n == 0) {
        ui_error("the prompt is empty and this model has no begin token: there is nothing to go on from");
        status = STATUS_FAILURE;
    }
    return status;
}

/* --------------------------------------------------------------- answering */

typedef struct sink {
    const talk_options *o;
    char last;
} sink;

static bool on_text(void *ctx, const char *data, size_t len)
{
    sink *s = ctx;
    if (s->o->json) {
        json_t *j = json_object();
        json_object_set_new(j, "type", json_string("text"));
        json_object_set_new(j, "text", json_text_of(data, len));
        json_line(j);
    } else {
        text_show(stdout, data, len);
        fflush(stdout);
    }
    if (len) s->last = data[len - 1];
    return interrupt_count() == 0 && !ferror(stdout);
}

static ftk_status read_prompt(talk *t, const token_list *prompt, ftk_error *e)
{
    ftk_status s = FTK_OK;
    /* A Ctrl-C that came between two calls is used up by the next one; nobody asked for that. */
    for (int attempt = 0; attempt < 2; attempt++) {
        interrupt_watch(t->session);
        s = ftk_prefill(t->session, prompt->ids, prompt->n, e);
        interrupt_watch(NULL);
        if (s != FTK_CANCELLED || interrupt_count()) break;
    }
    ui_progress_clear(&prefill_progress);
    return s;
}

/* What reduction made of the prompt. */
static void note_reduction(talk *t)
{
    ftk_reduced *r = &t->last.reduced;
    ftk_session_reduced(t->session, r);
    size_t cells = (size_t)t->info.n_layers * (size_t)t->info.n_kv_heads;
    double entries = 0, all = (double)cells * (double)ftk_session_length(t->session);
    for (size_t i = 0; r->kv_entries && i < cells; i++) entries += r->kv_entries[i];
    t->last.kv_share = r->kv_entries && all > 0 ? entries / all : 1;
    r->layer_tokens = r->kv_entries = NULL; /* borrowed until the next call */
}

int talk_answer(talk *t, const token_list *prompt)
{
    const talk_options *o = t->o;
    ftk_error e = {0};
    t->last = (talk_turn){.prompt_tokens = prompt->n, .generated = {.finish = FTK_FINISH_LENGTH}};
    size_t context = ftk_session_context(t->session);
    if (prompt->n + (o->max_tokens != 0) > context) return refuse_length(t, prompt->n, context);
    ftk_status s = read_prompt(t, prompt, &e);
    if (s != FTK_OK) return ui_fail(NULL, &e);
    note_reduction(t);
    if (o->explain) {
        int status = survivors_show(t->session, t->model, o->explain);
        if (status != STATUS_GO_ON) return status;
    }
    ftk_stats before;
    ftk_session_stats(t->session, &before);
    sink out = {.o = o, .last = '\n'};
    if (o->max_tokens != 0) {
        ftk_generate_opts g = {.size = sizeof g, .max_tokens = o->max_tokens > 0 ? (int32_t)o->max_tokens : 0,
                               .stop = o->stop.items, .n_stop = o->stop.n, .show_special = o->special,
                               .ignore_end = o->ignore_end, .on_text = on_text, .on_text_ctx = &out};
        double start = ui_now();
        interrupt_watch(t->session);
        s = ftk_generate(t->session, t->sampler, &g, &t->last.generated, &e);
        interrupt_watch(NULL);
        if (t->last.generated.n_tokens)
            t->last.first_token_seconds = start - t->started + t->last.generated.first_token_seconds;
    }
    if (!o->json && out.last != '\n') putchar('\n');
    fflush(stdout);
    if (s == FTK_CANCELLED) t->last.generated.finish = FTK_FINISH_CANCELLED;
    else if (s != FTK_OK) return ui_fail(NULL, &e);
    ftk_session_stats(t->session, &t->last.stats);
    t->last.decode_tokens = t->last.stats.decode_tokens - before.decode_tokens;
    t->last.decode_seconds = t->last.stats.decode_seconds - before.decode_seconds;
    t->turns++;
    size_t n = ftk_session_length(t->session);
    const ftk_token *ids = ftk_session_tokens(t->session);
    if (n && t->templated && ftk_token_is_end(t->model, ids[n - 1])) n--; /* the template writes it */
    tokens_free(&t->held);
    if (!tokens_add(&t->held, ids, n)) return STATUS_FAILURE;
    return t->last.generated.finish == FTK_FINISH_CANCELLED ? STATUS_INTERRUPTED : STATUS_GO_ON;
}

void talk_forget(talk *t)
{
    tokens_free(&t->held);
    t->turns = 0;
}

/* ------------------------------------------------------------------- files */

int talk_save(talk *t, const char *path)
{
    ftk_error e = {0};
    char size[UI_WORD];
    if (ftk_session_length(t->session) == 0) return STATUS_GO_ON;
    if (ftk_session_save(t->session, path, &e) != FTK_OK) return ui_fail(path, &e);
    ftk_stats stats;
    ftk_session_stats(t->session, &stats);
    ui_note("saved %zu tokens to %s (%s)", ftk_session_length(t->session), path, ui_bytes(size, (double)stats.kv_bytes));
    return STATUS_GO_ON;
}

int talk_restore(talk *t, const char *path, bool as_conversation)
{
    ftk_error e = {0};
    ftk_status s = ftk_session_restore(t->session, path, &e);
    size_t trained = (size_t)t->info.train_context;
    if (s == FTK_CONTEXT_FULL && t->o->context == 0 && ftk_session_context(t->session) < trained) {
        int status = open_session(t, (int64_t)trained); /* pages are taken as they fill */
        if (status != STATUS_GO_ON) return status;
        s = ftk_session_restore(t->session, path, &e);
    }
    if (s != FTK_OK) return ui_fail(path, &e);
    size_t n = ftk_session_length(t->session);
    ui_note("restored %zu tokens from %s", n, path);
    if (!as_conversation) return STATUS_GO_ON;
    const ftk_token *ids = ftk_session_tokens(t->session);
    if (n && t->templated && ftk_token_is_end(t->model, ids[n - 1])) n--;
    tokens_free(&t->held);
    t->turns = n > 0;
    return tokens_add(&t->held, ids, n) ? STATUS_GO_ON : STATUS_FAILURE;
}

/* ------------------------------------------------------------------ report */

static double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

/* Tokens of the prompt that went through all layers, earlier turns counted whole. */
static size_t kept_tokens(const talk_turn *l)
{
    return l->prompt_tokens - (size_t)(l->reduced.tokens_in - l->reduced.tokens_out);
}

static void report_json(const talk *t)
{
    static const char *const finish[] = {"end", "stop", "length", "context", "cancelled"};
    static const char *const kv[] = {"int8", "f16", "f32"};
    const talk_turn *l = &t->last;
    json_t *j = json_object();
    json_object_set_new(j, "type", json_string("summary"));
    json_object_set_new(j, "finish", json_string(finish[l->generated.finish]));
    json_object_set_new(j, "prompt_tokens", json_integer((json_int_t)l->prompt_tokens));
    json_object_set_new(j, "reused_tokens", json_integer((json_int_t)l->stats.reused_tokens));
    json_object_set_new(j, "generated_tokens", json_integer((json_int_t)l->generated.n_tokens));
    if (!t->reduction.dense) {
        json_object_set_new(j, "reduction", json_text(t->reduction.name));
        json_object_set_new(j, "kept_tokens", json_integer((json_int_t)kept_tokens(l)));
        json_object_set_new(j, "kv_share", json_number(l->kv_share));
        json_object_set_new(j, "reduce_ms", json_number(1e3 * l->reduced.seconds));
        json_object_set_new(j, "dense_because", l->reduced.dense_because ? json_text(l->reduced.dense_because) : json_null());
    }
    json_object_set_new(j, "ttft_ms", json_number(1e3 * l->first_token_seconds));
    json_object_set_new(j, "prefill_tok_s", json_number(per_second((double)l->stats.prefill_tokens, l->stats.prefill_seconds)));
    json_object_set_new(j, "decode_tok_s", json_number(per_second((double)l->decode_tokens, l->decode_seconds)));
    json_object_set_new(j, "load_ms", json_number(1e3 * t->load_seconds));
    json_object_set_new(j, "context", json_integer((json_int_t)ftk_session_context(t->session)));
    json_object_set_new(j, "context_used", json_integer((json_int_t)ftk_session_length(t->session)));
    json_object_set_new(j, "kv", json_string(kv[t->o->kv]));
    json_object_set_new(j, "kv_bytes", json_integer((json_int_t)l->stats.kv_bytes));
    json_object_set_new(j, "weight_bytes", json_integer((json_int_t)t->info.weight_bytes));
    json_object_set_new(j, "rss_bytes", json_integer((json_int_t)machine_rss()));
    json_object_set_new(j, "peak_rss_bytes", json_integer((json_int_t)machine_peak_rss()));
    json_object_set_new(j, "seed", json_integer((json_int_t)t->o->sampling.seed));
    json_object_set_new(j, "kernels", json_text(l->stats.isa ? l->stats.isa : ""));
    json_object_set_new(j, "model", json_text(t->o->word));
    json_object_set_new(j, "version", json_text(ftk_version()));
    json_line(j);
}

void talk_report(const talk *t)
{
    if (t->o->json) {
        report_json(t);
        return;
    }
    const talk_turn *l = &t->last;
    char a[UI_WORD], b[UI_WORD], line[512];
    bool merged = l->reduced.tokens_out < l->reduced.tokens_in;
    int n = merged ? snprintf(line, sizeof line, "prompt %zu → kept %zu (%.0f %%)", l->prompt_tokens, kept_tokens(l),
                              100 * (double)kept_tokens(l) / (double)l->prompt_tokens)
                   : snprintf(line, sizeof line, "prompt %zu tokens", l->prompt_tokens);
#define ADD(...) n += snprintf(line + n, sizeof line - (size_t)n, __VA_ARGS__)
    if (l->stats.reused_tokens) ADD(" (%llu reused)", (unsigned long long)l->stats.reused_tokens);
    if (l->first_token_seconds > 0) ADD(" · TTFT %s", ui_seconds(a, l->first_token_seconds));
    if (l->stats.prefill_seconds > 0 && l->stats.prefill_tokens > 8)
        ADD(" (%s tok/s)", ui_number(a, per_second((double)l->stats.prefill_tokens, l->stats.prefill_seconds)));
    if (l->decode_tokens) ADD(" · decode %s tok/s", ui_number(a, per_second((double)l->decode_tokens, l->decode_seconds)));
    ADD(" · KV %s", ui_bytes(a, (double)l->stats.kv_bytes));
    if (l->kv_share < 1) ADD(" (%.0f %% of entries)", 100 * l->kv_share);
    ADD(" · peak %s · kernels %s", ui_bytes(b, (double)machine_peak_rss()), l->stats.isa ? l->stats.isa : "");
    if (!t->reduction.dense && l->reduced.dense_because) ADD(" · read dense: %s", l->reduced.dense_because);
    switch (l->generated.finish) {
    case FTK_FINISH_END:
    case FTK_FINISH_STOP:
        break;
    case FTK_FINISH_LENGTH:
        if (t->o->max_tokens > 0) ADD(" · cut at -n %lld", (long long)t->o->max_tokens);
        break;
    case FTK_FINISH_CONTEXT:
        ADD(" · cut: the context of %zu is full (--context)", ftk_session_context(t->session));
        break;
    case FTK_FINISH_CANCELLED:
        ADD(" · stopped");
        break;
    }
#undef ADD
    ui_note("%s", line);
}

// SPDX-License-Identifier: Apache-2.0
/* One session a side, rewound to the end of the document for each question and to the end of the question
 * for each option. */
#include "documents.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "interrupt.h"
#include "json_out.h"
#include "ui.h"

enum { MOST_OPTIONS = 8, MOST_ANSWER = 256, QUESTION_ROOM = 2048 };

typedef struct side {
    const reduce_setting *setting;
    ftk_session *session;
    double *nll;      /* [n_documents] mean of a reference answer's tokens, a document's questions averaged */
    size_t n_docs, choices, right, same; /* same: the choice of dense */
    double kv_keep;
    uint64_t kv_bytes;
} side;

typedef struct interview {
    const documents_plan *p;
    ftk_model_info info;
    side *sides;      /* [n_sides], the first is dense */
    size_t n_sides, n_docs, n_questions, passed_over;
    size_t context;
    ftk_sampler *greedy;
    float *logits;    /* [MOST_ANSWER][n_vocab] */
    float *after;     /* [n_vocab] logits after the question */
    json_t *answers;  /* rows of the report */
} interview;

/* A question taken apart. */
typedef struct question {
    token_list text;
    token_list options[MOST_OPTIONS];
    size_t n_options, right; /* right: n_options when the reference names none */
    token_list reference;
} question;

static void question_free(question *q)
{
    tokens_free(&q->text);
    tokens_free(&q->reference);
    for (size_t i = 0; i < MOST_OPTIONS; i++) tokens_free(&q->options[i]);
}

/* ------------------------------------------------------------------ reading */

static int add_text(token_list *t, const ftk_model *m, const char *text, size_t len)
{
    return tokens_of(t, m, "document", text, len, 0);
}

/* " text", trimmed, at most MOST_ANSWER tokens. */
static int add_answer(token_list *t, const ftk_model *m, const char *text, size_t len)
{
    text_buffer b = {0};
    while (len && strchr(" \n\t", *text)) text++, len--;
    while (len && strchr(" \n\t", text[len - 1])) len--;
    int status = text_add(&b, " ", 1) && text_add(&b, text, len) ? add_text(t, m, b.data, b.len) : STATUS_FAILURE;
    if (t->n > MOST_ANSWER) t->n = MOST_ANSWER;
    text_free(&b);
    return status;
}

/* Where option `letter` begins, "(A)" at the start of a line or after a space. */
static const char *option_at(const char *text, char letter)
{
    const char mark[] = {'(', letter, ')', 0};
    const char *p = strstr(text, mark);
    while (p && p > text && p[-1] != ' ' && p[-1] != '\n') p = strstr(p + 1, mark);
    return p;
}

static int take_question(question *q, const ftk_model *m, const char *asked, const char *answer)
{
    static const char before[] = "\n\nQuestion: ", behind[] = "\nAnswer:";
    const char *at[MOST_OPTIONS + 1];
    size_t n = 0;
    for (const char *p = asked; n < MOST_OPTIONS && (p = option_at(p, (char)('A' + (int)n))) != NULL; p += 3) at[n++] = p;
    if (n < 2) n = 0;
    size_t len = n ? (size_t)(at[0] - asked) : strlen(asked);
    while (len && strchr(" \n\t", asked[len - 1])) len--;
    int status = add_text(&q->text, m, before, sizeof before - 1);
    if (status == STATUS_GO_ON) status = add_text(&q->text, m, asked, len);
    if (status == STATUS_GO_ON) status = add_text(&q->text, m, behind, sizeof behind - 1);
    q->n_options = q->right = n;
    for (size_t i = 0; status == STATUS_GO_ON && i < n; i++) {
        const char *end = i + 1 < n ? at[i + 1] : asked + strlen(asked);
        status = add_answer(&q->options[i], m, at[i] + 3, (size_t)(end - at[i] - 3));
        if (answer[0] == '(' && answer[1] == (char)('A' + (int)i)) q->right = i;
    }
    if (status == STATUS_GO_ON && n && q->right < n) answer += 3;
    if (status == STATUS_GO_ON) status = add_answer(&q->reference, m, answer, strlen(answer));
    return status;
}

/* ---------------------------------------------------------------- answering */

/* Mean log-probability of an answer's tokens after the question; the session is taken back to its end. */
static int judge(interview *v, side *s, const token_list *answer, size_t end, double *mean)
{
    ftk_error e = {0};
    size_t width = (size_t)v->info.n_vocab;
    double sum = 0;
    memcpy(v->logits, v->after, width * sizeof *v->logits);
    interrupt_watch(s->session);
    ftk_status status = answer->n > 1 ? ftk_score(s->session, answer->ids, answer->n - 1, v->logits + width, &e) : FTK_OK;
    interrupt_watch(NULL);
    if (status == FTK_OK) status = ftk_session_rewind(s->session, end, &e);
    if (status != FTK_OK) return ui_fail(NULL, &e);
    for (size_t i = 0; i < answer->n; i++) {
        const float *row = v->logits + i * width;
        sum += row[answer->ids[i]] - row_of(row, width).log_sum;
    }
    *mean = answer->n ? sum / (double)answer->n : 0;
    return interrupt_count() ? STATUS_INTERRUPTED : STATUS_GO_ON;
}

static int prefill(side *s, const token_list *t)
{
    ftk_error e = {0};
    interrupt_watch(s->session);
    ftk_status status = ftk_prefill(s->session, t->ids, t->n, &e);
    interrupt_watch(NULL);
    return status == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
}

static bool keep_text(void *ctx, const char *text, size_t len)
{
    return text_add(ctx, text, len);
}

static int generate(interview *v, side *s, text_buffer *out)
{
    static const char *const stop[] = {"\nQuestion:"};
    ftk_error e = {0};
    ftk_generated g;
    ftk_generate_opts o = {.size = sizeof o, .max_tokens = (int32_t)v->p->answer, .stop = stop, .n_stop = 1,
                           .on_text = keep_text, .on_text_ctx = out};
    interrupt_watch(s->session);
    ftk_status status = ftk_generate(s->session, v->greedy, &o, &g, &e);
    interrupt_watch(NULL);
    return status == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
}

/* What one side makes of a question. */
typedef struct reply {
    double nll;     /* of the reference */
    size_t choice;
    text_buffer text;
} reply;

static int ask(interview *v, side *s, const token_list *document, const question *q, reply *out)
{
    token_list whole = {0};
    double best = -INFINITY, mean;
    bool fine = tokens_add(&whole, document->ids, document->n) && tokens_add(&whole, q->text.ids, q->text.n);
    int status = fine ? prefill(s, &whole) : STATUS_FAILURE;
    if (status == STATUS_GO_ON) memcpy(v->after, ftk_logits(s->session, NULL), (size_t)v->info.n_vocab * sizeof *v->after);
    if (status == STATUS_GO_ON && v->p->answer) status = generate(v, s, &out->text);
    ftk_error e = {0};
    if (status == STATUS_GO_ON && ftk_session_rewind(s->session, whole.n, &e) != FTK_OK) status = ui_fail(NULL, &e);
    if (status == STATUS_GO_ON) status = judge(v, s, &q->reference, whole.n, &mean);
    if (status == STATUS_GO_ON) out->nll = -mean;
    for (size_t i = 0; status == STATUS_GO_ON && i < q->n_options; i++) {
        status = judge(v, s, &q->options[i], whole.n, &mean);
        if (mean > best) best = mean, out->choice = i;
    }
    if (status == STATUS_GO_ON && ftk_session_rewind(s->session, document->n, &e) != FTK_OK) status = ui_fail(NULL, &e);
    tokens_free(&whole);
    return status;
}

static json_t *row_of_reply(const interview *v, const question *q, const char *asked, const char *answer, const reply *replies)
{
    json_t *row = json_object(), *list = json_array();
    json_object_set_new(row, "question", json_text(asked));
    json_object_set_new(row, "reference", json_text(answer));
    for (size_t s = 0; s < v->n_sides; s++) {
        json_t *one = json_object();
        json_object_set_new(one, "setting", json_text(v->sides[s].setting->name));
        json_object_set_new(one, "nll", json_number(replies[s].nll));
        if (q->n_options) json_object_set_new(one, "choice", json_integer((json_int_t)replies[s].choice));
        if (v->p->answer) json_object_set_new(one, "text", json_text_of(replies[s].text.data ? replies[s].text.data : "", replies[s].text.len));
        json_array_append_new(list, one);
    }
    if (q->n_options) json_object_set_new(row, "right", q->right < q->n_options ? json_integer((json_int_t)q->right) : json_null());
    json_object_set_new(row, "replies", list);
    return row;
}

static int ask_all(interview *v, const token_list *document, const char *asked, const char *answer)
{
    question q = {.n_options = 0};
    reply *replies = calloc(v->n_sides, sizeof *replies);
    int status = replies ? take_question(&q, v->p->model, asked, answer) : STATUS_FAILURE;
    if (status == STATUS_GO_ON && q.text.n + MOST_ANSWER > QUESTION_ROOM) {
        ui_warn("%s: a question of %zu tokens is passed over", v->p->path, q.text.n);
        question_free(&q);
        free(replies);
        return STATUS_GO_ON;
    }
    for (size_t s = 0; status == STATUS_GO_ON && s < v->n_sides; s++) {
        side *one = &v->sides[s];
        status = ask(v, one, document, &q, &replies[s]);
        if (status != STATUS_GO_ON) break;
        one->nll[v->n_docs] += replies[s].nll;
        if (q.right < q.n_options) {
            one->choices++;
            one->right += replies[s].choice == q.right;
            one->same += replies[s].choice == replies[0].choice;
        }
    }
    if (status == STATUS_GO_ON) json_array_append_new(v->answers, row_of_reply(v, &q, asked, answer, replies));
    for (size_t s = 0; replies && s < v->n_sides; s++) text_free(&replies[s].text);
    free(replies);
    question_free(&q);
    return status;
}

static int take_document(interview *v, const json_t *line)
{
    const char *input = json_string_value(json_object_get(line, "input"));
    const json_t *asked = json_object_get(line, "instructions"), *answers = json_object_get(line, "outputs");
    token_list document = {0};
    ftk_token begin = ftk_token_bos(v->p->model);
    if (!input || !json_is_array(asked) || json_array_size(asked) != json_array_size(answers)) {
        ui_error("%s: a line needs `input`, and `instructions` and `outputs` of one length", v->p->path);
        return STATUS_FAILURE;
    }
    int status = !tokens_want_bos(v->p->model) || tokens_add(&document, &begin, 1) ? STATUS_GO_ON : STATUS_FAILURE;
    if (status == STATUS_GO_ON) status = add_text(&document, v->p->model, input, strlen(input));
    if (status == STATUS_GO_ON && document.n + QUESTION_ROOM > v->context) {
        v->passed_over++;
        tokens_free(&document);
        return STATUS_GO_ON;
    }
    for (size_t s = 0; status == STATUS_GO_ON && s < v->n_sides; s++) {
        ftk_error e = {0};
        ftk_reduced r = {0};
        ftk_stats stats;
        side *one = &v->sides[s];
        if (ftk_session_rewind(one->session, 0, &e) != FTK_OK) status = ui_fail(NULL, &e);
        if (status == STATUS_GO_ON) status = prefill(one, &document);
        if (status != STATUS_GO_ON) break;
        ftk_session_reduced(one->session, &r);
        ftk_session_stats(one->session, &stats);
        double sum = 0, all = (double)v->info.n_layers * v->info.n_kv_heads * (double)document.n;
        for (int32_t i = 0; r.kv_entries && i < v->info.n_layers * v->info.n_kv_heads; i++) sum += r.kv_entries[i];
        one->kv_keep += r.kv_entries ? sum / all : 1;
        if (stats.kv_bytes > one->kv_bytes) one->kv_bytes = stats.kv_bytes;
    }
    size_t n = json_array_size(asked);
    for (size_t i = 0; status == STATUS_GO_ON && i < n; i++) {
        const char *q = json_string_value(json_array_get(asked, i)), *a = json_string_value(json_array_get(answers, i));
        if (q && a) status = ask_all(v, &document, q, a);
        v->n_questions++;
    }
    for (size_t s = 0; n && s < v->n_sides; s++) v->sides[s].nll[v->n_docs] /= (double)n;
    v->n_docs++;
    tokens_free(&document);
    return status;
}

/* ------------------------------------------------------------------- report */

/* Difference to dense, over documents. */
static mean_error difference(const interview *v, const side *s)
{
    tally t = {0};
    for (size_t d = 0; d < v->n_docs; d++) {
        tally_add(&t, s->nll[d] - v->sides[0].nll[d]);
        tally_close_document(&t);
    }
    return tally_mean(&t);
}

static double mean_nll(const interview *v, const side *s)
{
    double sum = 0;
    for (size_t d = 0; d < v->n_docs; d++) sum += s->nll[d];
    return v->n_docs ? sum / (double)v->n_docs : 0;
}

static void print_answers(const interview *v)
{
    size_t i;
    json_t *row;
    json_array_foreach(v->answers, i, row) {
        printf("%s%s%s\n  reference: %.300s\n", ui_style(stdout, UI_BOLD), json_string_value(json_object_get(row, "question")),
               ui_style(stdout, UI_PLAIN), json_string_value(json_object_get(row, "reference")));
        size_t s;
        json_t *one;
        json_array_foreach(json_object_get(row, "replies"), s, one) {
            const char *text = json_string_value(json_object_get(one, "text"));
            printf("  %s: ", json_string_value(json_object_get(one, "setting")));
            if (text) text_show(stdout, text + strspn(text, " \n"), strlen(text) - strspn(text, " \n"));
            printf("\n");
        }
    }
}

static void print_text(const interview *v)
{
    char a[UI_WORD];
    if (v->p->answer) print_answers(v);
    printf("%s: %zu documents, %zu questions", v->p->path, v->n_docs, v->n_questions);
    if (v->passed_over) printf("; %zu documents do not fit %zu tokens", v->passed_over, v->context);
    printf("\n");
    for (size_t s = 0; s < v->n_sides; s++) {
        const side *one = &v->sides[s];
        mean_error d = difference(v, one);
        printf("  %-40s answers %.4f nats a token", one->setting->name, mean_nll(v, one));
        if (s) printf(" (%+.4f", d.mean);
        if (s && isfinite(d.error)) printf(" ± %.4f", 1.96 * d.error);
        if (s) printf(")");
        if (one->choices) printf(", choices right %zu of %zu", one->right, one->choices);
        if (one->choices && s) printf(", as dense %.1f %%", 100.0 * (double)one->same / (double)one->choices);
        printf(", entries kept %.3f, KV %s\n", one->kv_keep / (double)v->n_docs, ui_bytes(a, (double)one->kv_bytes));
    }
}

static int print_json(const interview *v)
{
    json_t *j = json_object(), *rows = json_array();
    json_object_set_new(j, "model", json_text(v->p->word));
    json_object_set_new(j, "documents_file", json_text(v->p->path));
    json_object_set_new(j, "documents", json_integer((json_int_t)v->n_docs));
    json_object_set_new(j, "questions", json_integer((json_int_t)v->n_questions));
    json_object_set_new(j, "passed_over", json_integer((json_int_t)v->passed_over));
    for (size_t s = 0; s < v->n_sides; s++) {
        const side *one = &v->sides[s];
        mean_error d = difference(v, one);
        json_t *row = json_object();
        json_object_set_new(row, "setting", json_text(one->setting->name));
        json_object_set_new(row, "nll", json_number(mean_nll(v, one)));
        json_object_set_new(row, "nll_difference", json_number(d.mean));
        json_object_set_new(row, "nll_difference_error", json_number(d.error));
        json_object_set_new(row, "choices", json_integer((json_int_t)one->choices));
        json_object_set_new(row, "right", json_integer((json_int_t)one->right));
        json_object_set_new(row, "same_as_dense", json_integer((json_int_t)one->same));
        json_object_set_new(row, "kv_keep", json_number(one->kv_keep / (double)v->n_docs));
        json_object_set_new(row, "kv_bytes", json_integer((json_int_t)one->kv_bytes));
        json_array_append_new(rows, row);
    }
    json_object_set_new(j, "rows", rows);
    json_object_set(j, "answers", v->answers);
    return json_line(j) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
}

/* ----------------------------------------------------------------- the loop */

static int open_sides(interview *v, size_t n_lines)
{
    static const reduce_setting dense = {.name = (char *)"dense", .dense = true};
    const documents_plan *p = v->p;
    ftk_error e = {0};
    ftk_sampler_opts greedy = {.size = sizeof greedy};
    size_t width = (size_t)v->info.n_vocab;
    v->context = (size_t)(p->max_tokens ? p->max_tokens : v->info.train_context - QUESTION_ROOM) + QUESTION_ROOM;
    v->answers = json_array();
    v->logits = malloc(MOST_ANSWER * width * sizeof *v->logits);
    v->after = malloc(width * sizeof *v->after);
    v->sides = calloc(p->n + 1, sizeof *v->sides);
    if (!v->answers || !v->logits || !v->after || !v->sides) return STATUS_FAILURE;
    if (ftk_sampler_open(&v->greedy, p->model, &greedy, &e) != FTK_OK) return ui_fail(NULL, &e);
    for (size_t s = 0; s <= p->n; s++) {
        side *one = &v->sides[v->n_sides++];
        ftk_session_opts o = p->session;
        o.size = sizeof o;
        o.context = (int32_t)v->context;
        one->setting = s ? &p->settings[s - 1] : &dense;
        one->nll = calloc(n_lines + 1, sizeof *one->nll);
        if (!one->nll) return STATUS_FAILURE;
        if (ftk_session_open(&one->session, p->model, &o, &e) != FTK_OK) return ui_fail(NULL, &e);
        if (!one->setting->dense && ftk_session_reduce(one->session, &one->setting->r, &e) != FTK_OK) return ui_fail("reduction", &e);
    }
    return STATUS_GO_ON;
}

static int interview_all(interview *v, char *text, size_t n_lines)
{
    ui_progress progress = {0};
    int status = STATUS_GO_ON;
    size_t number = 0;
    for (char *line; status == STATUS_GO_ON && (line = strsep(&text, "\n")) != NULL;) {
        json_error_t e;
        number++;
        if (!*line) continue;
        if (v->p->max_docs && v->n_docs == (size_t)v->p->max_docs) break;
        json_t *j = json_loads(line, 0, &e);
        if (!j) {
            ui_error("%s: line %zu, column %d: %s", v->p->path, number, e.column, e.text);
            status = STATUS_FAILURE;
        } else status = take_document(v, j);
        json_decref(j);
        if (status == STATUS_GO_ON && !ui_on_progress(&progress, "asking about documents", number, n_lines)) status = STATUS_INTERRUPTED;
    }
    ui_progress_clear(&progress);
    return status;
}

int documents_run(const documents_plan *p)
{
    interview v = {.p = p};
    text_buffer text = {0};
    size_t n_lines = 1;
    ftk_model_get_info(p->model, &v.info);
    int status = text_read(&text, p->path);
    if (status == STATUS_GO_ON) status = text_check(p->path, text.data, text.len);
    for (const char *c = text.data; c && *c; c++) n_lines += *c == '\n';
    if (status == STATUS_GO_ON) status = open_sides(&v, n_lines);
    if (status == STATUS_GO_ON && text.data) status = interview_all(&v, text.data, n_lines);
    if (status == STATUS_GO_ON && v.n_docs == 0) {
        ui_error("%s: no document fits %zu tokens", p->path, v.context);
        status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) {
        if (p->json) status = print_json(&v);
        else print_text(&v);
    }
    for (size_t s = 0; s < v.n_sides; s++) {
        ftk_session_close(v.sides[s].session);
        free(v.sides[s].nll);
    }
    json_decref(v.answers);
    ftk_sampler_close(v.greedy);
    free(v.sides);
    free(v.logits);
    free(v.after);
    text_free(&text);
    return status;
}

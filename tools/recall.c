// SPDX-License-Identifier: Apache-2.0
/* Facts are made by a small generator with a fixed start, so that every setting and every run sees the
 * same texts. */
#include "recall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "json_out.h"
#include "ui.h"

enum { N_DEPTHS = 5, MOST_FACTS = 8, N_TASKS = 5, ANSWER_ROOM = 256 };

typedef enum task { PASSKEY, PAIRS, NEEDLES, ARITHMETIC, CODE } task;
static const char *const task_names[N_TASKS] = {"passkey", "pairs", "needles", "arithmetic", "code"};

typedef struct fact {
    char statement[160], question[160], answer[64]; /* answer[] comes behind a question, as in the statement */
} fact;

/* ------------------------------------------------------------------- facts */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int number_of(uint64_t *state, int low, int high)
{
    return low + (int)(next_random(state) % (uint64_t)(high - low + 1));
}

static const char *const things[] = {"bridge", "garden", "library", "harbour", "tower", "station", "museum", "chapel",
                                     "market", "theatre", "bakery", "stable", "kitchen", "cellar", "school", "mill"};
enum { N_THINGS = sizeof things / sizeof things[0] };

static void make_fact(fact *f, task t, size_t i, size_t first_thing, uint64_t *state)
{
    const char *thing = things[(first_thing + i) % N_THINGS];
    int a = number_of(state, 3, 19), b = number_of(state, 11, 49), code = number_of(state, 1000, 9999);
    switch (t) {
    case PASSKEY:
        if (i == 0) {
            code = number_of(state, 10000, 99999);
            snprintf(f->statement, sizeof f->statement, " The pass key is %d. Remember it. %d is the pass key.", code, code);
            snprintf(f->question, sizeof f->question, "\n\nWhat is the pass key? The pass key is");
        } else {
            snprintf(f->statement, sizeof f->statement, " The best wine is kept in room %d.", code);
            snprintf(f->question, sizeof f->question, "\n\nWhere is the best wine kept? The best wine is kept in room");
        }
        snprintf(f->answer, sizeof f->answer, " %d", code);
        break;
    case PAIRS:
    case NEEDLES:
        snprintf(f->statement, sizeof f->statement, " The code of the %s is %d.", thing, code);
        snprintf(f->question, sizeof f->question, "\n\nWhat is the code of the %s? The code of the %s is", thing, thing);
        snprintf(f->answer, sizeof f->answer, " %d", code);
        break;
    case ARITHMETIC:
        snprintf(f->statement, sizeof f->statement, "Shelf %zu: %d boxes of %d make %d.\n", i + 1, a, b, a * b);
        snprintf(f->question, sizeof f->question, "\nOnce more.\nShelf %zu: %d boxes of %d make", i + 1, a, b);
        snprintf(f->answer, sizeof f->answer, " %d", a * b);
        break;
    case CODE:
        snprintf(f->statement, sizeof f->statement, "def %s_%zu(x):\n    return x * %d + %d\n\n", thing, i + 1, b, code);
        snprintf(f->question, sizeof f->question, "\n# the same function again\ndef %s_%zu(x):\n    return x *", thing, i + 1);
        snprintf(f->answer, sizeof f->answer, " %d + %d", b, code);
        break;
    }
}

/* ------------------------------------------------------------------- texts */

/* A text with its two questions. */
typedef struct exam {
    token_list text;             /* with the first question at its end */
    token_list question2;        /* what follows the first answer */
    token_list answers[2];
} exam;

static void exam_free(exam *x)
{
    tokens_free(&x->text);
    tokens_free(&x->question2);
    tokens_free(&x->answers[0]);
    tokens_free(&x->answers[1]);
}

static int add_text(token_list *t, const ftk_model *m, const char *text)
{
    return tokens_of(t, m, "recall", text, strlen(text), 0);
}

/* Whether a sentence may end after this token. */
static bool ends_sentence(const ftk_model *m, ftk_token id)
{
    size_t len;
    const char *bytes = ftk_token_bytes(m, id, false, &len);
    return bytes && len && (bytes[len - 1] == '.' || bytes[len - 1] == '\n');
}

/* Filler tokens [n] with the statements of facts [n_facts] put in at places [n_facts] (ascending shares of
 * it), after the end of a sentence near there. */
static int weave(token_list *out, const ftk_model *m, const ftk_token *filler, size_t n, const token_list *statements,
                 const double *places, size_t n_facts)
{
    size_t done = 0;
    for (size_t i = 0; i <= n_facts; i++) {
        size_t to = n;
        if (i < n_facts) {
            to = (size_t)(places[i] * (double)n);
            size_t limit = to + 60 < n ? to + 60 : n;
            for (size_t k = to; k < limit; k++)
                if (k > 0 && ends_sentence(m, filler[k - 1])) {
                    to = k;
                    break;
                }
            if (to < done) to = done;
        }
        if (!tokens_add(out, filler + done, to - done)) return STATUS_FAILURE;
        done = to;
        if (i < n_facts && !tokens_add(out, statements[i].ids, statements[i].n)) return STATUS_FAILURE;
    }
    return STATUS_GO_ON;
}

/* Where the facts lie (ascending shares of the text), how many, and which are asked for first and second:
 * the one at the depth wanted, and the one mirrored. */
static size_t lay_out(task t, size_t depth, double places[MOST_FACTS], size_t *asked, size_t *other)
{
    double at = (double)depth / (N_DEPTHS - 1), mirrored = fabs(at - 0.5) < 0.1 ? 0.9 : 1 - at;
    if (t == PASSKEY) {
        *asked = at > mirrored;
        *other = 1 - *asked;
        places[*asked] = at;
        places[*other] = mirrored;
        return 2;
    }
    for (size_t i = 0; i < MOST_FACTS; i++) places[i] = (double)i / (MOST_FACTS - 1);
    *asked = (size_t)lround(at * (MOST_FACTS - 1));
    *other = MOST_FACTS - 1 - *asked;
    return MOST_FACTS;
}

/* Facts put into filler. */
static int make_hidden(exam *x, task t, const recall_plan *p, const token_list *filler, size_t length, size_t depth,
                       uint64_t *state)
{
    fact facts[MOST_FACTS];
    token_list statements[MOST_FACTS] = {{0}}, question = {0};
    double places[MOST_FACTS];
    size_t asked, other, n = lay_out(t, depth, places, &asked, &other), first = next_random(state) % N_THINGS, taken = 0;
    bool bos = tokens_want_bos(p->model);
    int status = STATUS_GO_ON;
    for (size_t i = 0; status == STATUS_GO_ON && i < n; i++) {
        make_fact(&facts[i], t, t == PASSKEY ? i != asked : i, first, state);
        status = add_text(&statements[i], p->model, facts[i].statement);
        taken += statements[i].n;
    }
    char text[512], answer[256];
    snprintf(text, sizeof text, "%s", facts[asked].question);
    snprintf(answer, sizeof answer, "%s", facts[asked].answer);
    if (t == NEEDLES) { /* three at once: the asked one, and two more a third of the way on */
        size_t b = (asked + n / 3) % n, c = (asked + 2 * n / 3) % n;
        snprintf(text, sizeof text, "\n\nWhat are the codes of the %s, the %s and the %s? The code of the %s is", things[(first + asked) % N_THINGS],
                 things[(first + b) % N_THINGS], things[(first + c) % N_THINGS], things[(first + asked) % N_THINGS]);
        snprintf(answer, sizeof answer, "%s.%s%s", facts[asked].answer, facts[b].statement, facts[c].statement);
        answer[strlen(answer) - 1] = 0; /* the last full stop */
    }
    if (status == STATUS_GO_ON) status = add_text(&question, p->model, text);
    if (status == STATUS_GO_ON) status = add_text(&x->answers[0], p->model, answer);
    snprintf(text, sizeof text, ".%s", facts[other].question);
    if (status == STATUS_GO_ON) status = add_text(&x->question2, p->model, text);
    if (status == STATUS_GO_ON) status = add_text(&x->answers[1], p->model, facts[other].answer);
    size_t fixed = taken + question.n + bos;
    if (status == STATUS_GO_ON && (fixed + 16 > length || filler->n + fixed < length)) {
        ui_error(fixed + 16 > length ? "--lengths %zu: the facts and the question alone take %zu tokens" : "--lengths %zu: the text has too few tokens (%zu taken by facts)",
                 length, fixed);
        status = STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) {
        size_t room = length - fixed, start = next_random(state) % (filler->n - room + 1);
        while (start > 0 && !ends_sentence(p->model, filler->ids[start - 1])) start--;
        ftk_token begin = ftk_token_bos(p->model);
        if (bos && !tokens_add(&x->text, &begin, 1)) status = STATUS_FAILURE;
        if (status == STATUS_GO_ON) status = weave(&x->text, p->model, filler->ids + start, room, statements, places, n);
        if (status == STATUS_GO_ON && !tokens_add(&x->text, question.ids, question.n)) status = STATUS_FAILURE;
    }
    for (size_t i = 0; i < MOST_FACTS; i++) tokens_free(&statements[i]);
    tokens_free(&question);
    return status;
}

/* A text that is nothing but facts, as many as fit. */
static int make_list(exam *x, task t, const recall_plan *p, size_t length, size_t depth, uint64_t *state)
{
    token_list body = {0}, question = {0}, one = {0};
    fact *facts = NULL;
    size_t n = 0, room = length > 48 ? length - 48 : 0, first = next_random(state) % N_THINGS;
    int status = room ? STATUS_GO_ON : STATUS_FAILURE;
    ftk_token begin = ftk_token_bos(p->model);
    if (status == STATUS_GO_ON && tokens_want_bos(p->model) && !tokens_add(&body, &begin, 1)) status = STATUS_FAILURE;
    while (status == STATUS_GO_ON) {
        fact *grown = realloc(facts, (n + 1) * sizeof *grown);
        if (!grown) {
            status = STATUS_FAILURE;
            break;
        }
        facts = grown;
        make_fact(&facts[n], t, n, first, state);
        tokens_free(&one);
        status = add_text(&one, p->model, facts[n].statement);
        if (status != STATUS_GO_ON || body.n + one.n > room) break;
        if (!tokens_add(&body, one.ids, one.n)) status = STATUS_FAILURE;
        n++;
    }
    if (status == STATUS_GO_ON && n < 2) status = STATUS_FAILURE;
    if (status == STATUS_GO_ON) {
        size_t asked = (size_t)lround((double)depth / (N_DEPTHS - 1) * (double)(n - 1)), other = (asked + n / 2) % n;
        char text[200];
        snprintf(text, sizeof text, "\n%s", facts[other].question);
        status = add_text(&question, p->model, facts[asked].question);
        if (status == STATUS_GO_ON) status = add_text(&x->answers[0], p->model, facts[asked].answer);
        if (status == STATUS_GO_ON) status = add_text(&x->question2, p->model, text);
        if (status == STATUS_GO_ON) status = add_text(&x->answers[1], p->model, facts[other].answer);
        if (status == STATUS_GO_ON && (!tokens_add(&x->text, body.ids, body.n) || !tokens_add(&x->text, question.ids, question.n)))
            status = STATUS_FAILURE;
    } else ui_error("--lengths %zu: too short for a list of facts", length);
    free(facts);
    tokens_free(&one);
    tokens_free(&body);
    tokens_free(&question);
    return status;
}

/* --------------------------------------------------------------- answering */

typedef struct outcome {
    bool right;
    double log_probability; /* of the whole answer, nats */
    double right_tokens;    /* share */
} outcome;

typedef struct side {
    const reduce_setting *setting;
    ftk_session *session;
    double kv_keep;  /* after the first question, summed */
    size_t n;
} side;

/* Scores an answer after what the session holds; the answer becomes part of it. */
static int answer(ftk_session *s, const token_list *a, size_t n_vocab, float *logits, outcome *out)
{
    ftk_error e = {0};
    size_t hits = 0;
    *out = (outcome){.right = true};
    memcpy(logits, ftk_logits(s, NULL), n_vocab * sizeof *logits);
    interrupt_watch(s);
    ftk_status status = ftk_score(s, a->ids, a->n, logits + n_vocab, &e);
    interrupt_watch(NULL);
    if (status != FTK_OK) return ui_fail(NULL, &e);
    for (size_t i = 0; i < a->n; i++) {
        const float *row = logits + i * n_vocab;
        row_facts f = row_of(row, n_vocab);
        hits += f.top == (size_t)a->ids[i];
        out->log_probability += row[a->ids[i]] - f.log_sum;
    }
    out->right = hits == a->n;
    out->right_tokens = a->n ? (double)hits / (double)a->n : 0;
    return STATUS_GO_ON;
}

static int prefill(ftk_session *s, const token_list *t)
{
    ftk_error e = {0};
    interrupt_watch(s);
    ftk_status status = ftk_prefill(s, t->ids, t->n, &e);
    interrupt_watch(NULL);
    return status == FTK_OK ? STATUS_GO_ON : ui_fail(NULL, &e);
}

static void note_kept(side *s, const ftk_model_info *info)
{
    ftk_reduced r = {0};
    ftk_session_reduced(s->session, &r);
    double sum = 0, all = (double)info->n_layers * info->n_kv_heads * (double)ftk_session_length(s->session);
    for (int32_t i = 0; r.kv_entries && i < info->n_layers * info->n_kv_heads; i++) sum += r.kv_entries[i];
    s->kv_keep += r.kv_entries ? sum / all : 1;
    s->n++;
}

static int sit(side *s, const exam *x, const ftk_model_info *info, float *logits, outcome out[2])
{
    ftk_error e = {0};
    token_list held = {0};
    if (ftk_session_rewind(s->session, 0, &e) != FTK_OK) return ui_fail(NULL, &e);
    int status = prefill(s->session, &x->text);
    if (status == STATUS_GO_ON) {
        note_kept(s, info);
        status = answer(s->session, &x->answers[0], (size_t)info->n_vocab, logits, &out[0]);
    }
    if (status == STATUS_GO_ON) {
        bool fine = tokens_add(&held, x->text.ids, x->text.n) && tokens_add(&held, x->answers[0].ids, x->answers[0].n) &&
                    tokens_add(&held, x->question2.ids, x->question2.n);
        status = fine ? prefill(s->session, &held) : STATUS_FAILURE;
    }
    if (status == STATUS_GO_ON) status = answer(s->session, &x->answers[1], (size_t)info->n_vocab, logits, &out[1]);
    tokens_free(&held);
    return status;
}

/* ------------------------------------------------------------------ report */

typedef struct cell { /* one task, length, depth, question and side, summed over texts */
    size_t n, right, right_where_dense, dense;
    double log_probability, right_tokens;
} cell;

typedef struct recalling {
    const recall_plan *p;
    ftk_model_info info;
    side *sides;   /* [n_sides], the first is dense */
    size_t n_sides;
    cell *cells;   /* [lengths][N_TASKS][N_DEPTHS][2][n_sides] */
    float *logits; /* [ANSWER_ROOM][n_vocab] */
} recalling;

static cell *cell_at(const recalling *r, size_t length, size_t t, size_t depth, size_t question, size_t side_index)
{
    return &r->cells[(((length * N_TASKS + t) * N_DEPTHS + depth) * 2 + question) * r->n_sides + side_index];
}

static void note_outcomes(recalling *r, size_t length, size_t t, size_t depth, outcome (*out)[2])
{
    for (size_t q = 0; q < 2; q++)
        for (size_t s = 0; s < r->n_sides; s++) {
            cell *c = cell_at(r, length, t, depth, q, s);
            c->n++;
            c->right += out[s][q].right;
            c->dense += out[0][q].right;
            c->right_where_dense += out[s][q].right && out[0][q].right;
            c->log_probability += out[s][q].log_probability;
            c->right_tokens += out[s][q].right_tokens;
        }
}

static cell over_depths(const recalling *r, size_t length, size_t t, size_t question, size_t side_index)
{
    cell sum = {0};
    for (size_t d = 0; d < N_DEPTHS; d++) {
        const cell *c = cell_at(r, length, t, d, question, side_index);
        sum.n += c->n;
        sum.right += c->right;
        sum.dense += c->dense;
        sum.right_where_dense += c->right_where_dense;
        sum.log_probability += c->log_probability;
        sum.right_tokens += c->right_tokens;
    }
    return sum;
}

static double percent(size_t part, size_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static void print_text(const recalling *r)
{
    const char *bold = ui_style(stdout, UI_BOLD), *plain = ui_style(stdout, UI_PLAIN);
    for (size_t s = 1; s < r->n_sides; s++) {
        const side *one = &r->sides[s];
        printf("%s%s%s · KV entries kept %.3f\n", bold, one->setting->name, plain, one->n ? one->kv_keep / (double)one->n : 1);
        printf("right answers dense and reduced, of dense's still right; tokens of answers that are likeliest; change of log-probability\n");
        printf("  %-11s %7s  %-44s %s\n", "", "", "first question", "second question");
        for (size_t t = 0; t < N_TASKS; t++)
            for (size_t l = 0; l < r->p->lengths->n; l++) {
                printf("  %-11s %7lld", task_names[t], (long long)r->p->lengths->items[l]);
                for (size_t q = 0; q < 2; q++) {
                    cell dense = over_depths(r, l, t, q, 0), c = over_depths(r, l, t, q, s);
                    char still[16] = "-";
                    if (c.dense) snprintf(still, sizeof still, "%.0f %%", percent(c.right_where_dense, c.dense));
                    printf("  %4.0f %% %4.0f %% %6s  tokens %3.0f %% %3.0f %%  %+.2f", percent(dense.right, dense.n), percent(c.right, c.n), still,
                           100 * dense.right_tokens / (double)dense.n, 100 * c.right_tokens / (double)c.n,
                           c.n ? (c.log_probability - dense.log_probability) / (double)c.n : 0);
                }
                printf("\n");
            }
    }
}

static int print_json(const recalling *r)
{
    json_t *j = json_object(), *rows = json_array();
    json_object_set_new(j, "model", json_text(r->p->word));
    json_object_set_new(j, "text", json_text(r->p->path));
    json_object_set_new(j, "trials", json_integer(r->p->trials));
    for (size_t s = 1; s < r->n_sides; s++)
        for (size_t t = 0; t < N_TASKS; t++)
            for (size_t l = 0; l < r->p->lengths->n; l++)
                for (size_t q = 0; q < 2; q++)
                    for (size_t d = 0; d < N_DEPTHS; d++) {
                        const cell *dense = cell_at(r, l, t, d, q, 0), *c = cell_at(r, l, t, d, q, s);
                        json_t *row = json_object();
                        json_object_set_new(row, "setting", json_text(r->sides[s].setting->name));
                        json_object_set_new(row, "task", json_text(task_names[t]));
                        json_object_set_new(row, "length", json_integer(r->p->lengths->items[l]));
                        json_object_set_new(row, "depth", json_number((double)d / (N_DEPTHS - 1)));
                        json_object_set_new(row, "question", json_integer((json_int_t)q + 1));
                        json_object_set_new(row, "n", json_integer((json_int_t)c->n));
                        json_object_set_new(row, "right_dense", json_integer((json_int_t)dense->right));
                        json_object_set_new(row, "right", json_integer((json_int_t)c->right));
                        json_object_set_new(row, "right_where_dense", json_integer((json_int_t)c->right_where_dense));
                        json_object_set_new(row, "tokens_right_dense", json_number(dense->right_tokens / (double)dense->n));
                        json_object_set_new(row, "tokens_right", json_number(c->right_tokens / (double)c->n));
                        json_object_set_new(row, "log_probability_dense", json_number(dense->log_probability / (double)dense->n));
                        json_object_set_new(row, "log_probability", json_number(c->log_probability / (double)c->n));
                        json_object_set_new(row, "kv_keep", json_number(r->sides[s].kv_keep / (double)r->sides[s].n));
                        json_array_append_new(rows, row);
                    }
    json_object_set_new(j, "rows", rows);
    return json_line(j) == STATUS_OK ? STATUS_GO_ON : STATUS_FAILURE;
}

/* --------------------------------------------------------------- the loop */

static int open_sides(recalling *r)
{
    static const reduce_setting dense = {.dense = true};
    const recall_plan *p = r->p;
    int64_t longest = 0;
    for (size_t i = 0; i < p->lengths->n; i++)
        if (p->lengths->items[i] > longest) longest = p->lengths->items[i];
    if (longest > r->info.train_context)
        ui_warn("%lld tokens are more than the model was trained for (%d)", (long long)longest, r->info.train_context);
    r->sides = calloc(p->n + 1, sizeof *r->sides);
    r->cells = calloc(p->lengths->n * N_TASKS * N_DEPTHS * 2 * (p->n + 1), sizeof *r->cells);
    r->logits = malloc((size_t)ANSWER_ROOM * (size_t)r->info.n_vocab * sizeof *r->logits);
    if (!r->sides || !r->cells || !r->logits) {
        ui_error("out of memory");
        return STATUS_FAILURE;
    }
    for (size_t s = 0; s <= p->n; s++) {
        side *one = &r->sides[r->n_sides++];
        ftk_error e = {0};
        ftk_session_opts o = p->session;
        o.size = sizeof o;
        o.context = (int32_t)(longest + ANSWER_ROOM);
        one->setting = s ? &p->settings[s - 1] : &dense;
        if (ftk_session_open(&one->session, p->model, &o, &e) != FTK_OK) return ui_fail(NULL, &e);
        if (!one->setting->dense && ftk_session_reduce(one->session, &one->setting->r, &e) != FTK_OK) return ui_fail(NULL, &e);
    }
    return STATUS_GO_ON;
}

static int measure(recalling *r, const token_list *filler)
{
    const recall_plan *p = r->p;
    ui_progress progress = {0};
    uint64_t total = 0, done = 0;
    outcome (*out)[2] = calloc(r->n_sides, sizeof *out);
    int status = out ? STATUS_GO_ON : STATUS_FAILURE;
    size_t sittings = N_TASKS * N_DEPTHS * (size_t)p->trials;
    for (size_t l = 0; l < p->lengths->n; l++) total += (uint64_t)p->lengths->items[l] * sittings * r->n_sides;
    for (size_t l = 0; l < p->lengths->n; l++)
        for (size_t i = 0; status == STATUS_GO_ON && i < sittings; i++) {
            task t = (task)(i % N_TASKS);
            size_t depth = i / N_TASKS % N_DEPTHS;
            uint64_t state = 0x9e3779b97f4a7c15u * (i + 1);
            next_random(&state);
            exam x = {.text = {0}};
            size_t length = (size_t)p->lengths->items[l];
            status = t >= ARITHMETIC ? make_list(&x, t, p, length, depth, &state) : make_hidden(&x, t, p, filler, length, depth, &state);
            if (status == STATUS_GO_ON && x.answers[0].n + x.answers[1].n + x.question2.n + 2 > ANSWER_ROOM) {
                ui_error("recall: an answer has more tokens than there is room for");
                status = STATUS_FAILURE;
            }
            for (size_t s = 0; status == STATUS_GO_ON && s < r->n_sides; s++) {
                status = sit(&r->sides[s], &x, &r->info, r->logits, out[s]);
                done += length;
                if (status == STATUS_GO_ON && !ui_on_progress(&progress, "asking", done, total)) status = STATUS_INTERRUPTED;
            }
            if (status == STATUS_GO_ON) note_outcomes(r, l, t, depth, out);
            exam_free(&x);
        }
    ui_progress_clear(&progress);
    free(out);
    return status;
}

int recall_run(const recall_plan *p)
{
    recalling r = {.p = p};
    text_buffer text = {0};
    token_list filler = {0};
    ftk_model_get_info(p->model, &r.info);
    int status = text_read(&text, p->path);
    if (status == STATUS_GO_ON) status = text_check(p->path, text.data, text.len);
    if (status == STATUS_GO_ON) status = tokens_of(&filler, p->model, p->path, text.data, text.len, 0);
    if (status == STATUS_GO_ON) status = open_sides(&r);
    if (status == STATUS_GO_ON) status = measure(&r, &filler);
    if (status == STATUS_GO_ON) {
        if (p->json) status = print_json(&r);
        else print_text(&r);
    }
    for (size_t s = 0; s < r.n_sides; s++) ftk_session_close(r.sides[s].session);
    free(r.sides);
    free(r.cells);
    free(r.logits);
    tokens_free(&filler);
    text_free(&text);
    return status;
}

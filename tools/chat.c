// SPDX-License-Identifier: Apache-2.0
/* Chat loop: lines in, commands, answers out. The line editor is libedit. */
#include "chat.h"

#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "files.h"
#include "interrupt.h"
#include "machine.h"
#include "models.h"
#include "ui.h"

typedef enum line_kind { LINE_TEXT, LINE_END, LINE_INTERRUPTED, LINE_FAILED } line_kind;

typedef struct reader {
    EditLine *editor; /* NULL: standard input is no terminal */
    History *history;
    HistEvent event;
    char history_file[PATH_MAX]; /* "": none */
    bool continues;   /* the line goes on after a backslash */
    char prompt[2][32];
    char *plain;      /* getline's buffer */
    size_t plain_cap;
} reader;

static const char *prompt_of(EditLine *editor)
{
    reader *r = NULL;
    el_get(editor, EL_CLIENTDATA, &r);
    return r->prompt[r->continues];
}

/* One key for the editor; -1 after Ctrl-C. */
static int read_key(EditLine *editor, wchar_t *key)
{
    (void)editor;
    char bytes[MB_LEN_MAX];
    for (size_t n = 0;;) {
        struct pollfd wait[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = interrupt_descriptor(), .events = POLLIN}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR) return -1;
        if (interrupt_count()) return -1;
        if (!wait[0].revents) continue;
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got <= 0) return (int)got;
        mbstate_t state = {0};
        size_t len = mbrtowc(key, bytes, ++n, &state);
        if (len == (size_t)-2 && n < sizeof bytes) continue; /* more of the character to come */
        if (len != (size_t)-1 && len != (size_t)-2) return 1;
        n = 0; /* no character at all: dropped */
    }
}

static void reader_open(reader *r)
{
    memset(r, 0, sizeof *r);
    if (!isatty(STDIN_FILENO)) return;
    FILE *screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    /* \1 brackets what takes no room on the screen */
    const char *style = ui_style(screen, UI_CYAN), *plain = ui_style(screen, UI_PLAIN);
    for (int i = 0; i < 2; i++)
        snprintf(r->prompt[i], sizeof r->prompt[i], *style ? "\1%s\1%s\1%s\1 " : "%s%s%s ", style, i ? "." : ">", plain);
    r->editor = el_init("freetoken", stdin, screen, stderr);
    if (!r->editor) return;
    r->history = history_init();
    el_set(r->editor, EL_CLIENTDATA, r);
    el_set(r->editor, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(r->editor, EL_EDITOR, "emacs");
    el_set(r->editor, EL_SIGNAL, 0);
    el_set(r->editor, EL_GETCFN, read_key);
    if (!r->history) return;
    history(r->history, &r->event, H_SETSIZE, 1000);
    history(r->history, &r->event, H_SETUNIQUE, 1);
    el_set(r->editor, EL_HIST, history, r->history);
    char home[PATH_MAX];
    if (models_home(home) && files_make_folder(home) == STATUS_GO_ON) {
        snprintf(r->history_file, sizeof r->history_file, "%.*s/history", PATH_MAX - 16, home);
        history(r->history, &r->event, H_LOAD, r->history_file);
    }
    el_set(r->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(r->editor, NULL);
}

static void reader_close(reader *r)
{
    if (r->editor) el_end(r->editor);
    if (r->history) history_end(r->history);
    free(r->plain);
}

static void reader_remember(reader *r, const char *line)
{
    if (!r->history) return;
    history(r->history, &r->event, H_ENTER, line);
    if (r->history_file[0]) history(r->history, &r->event, H_SAVE, r->history_file);
}

/* One line without its newline, appended to *line. */
static line_kind read_one(reader *r, text_buffer *line)
{
    const char *got = NULL;
    int n = 0;
    errno = 0;
    if (r->editor) {
        /* before the prompt appears: a key typed in between would meet the terminal's own editing */
        el_set(r->editor, EL_PREP_TERM, 1);
        el_resize(r->editor);
        got = el_gets(r->editor, &n);
    } else {
        ssize_t len = getline(&r->plain, &r->plain_cap, stdin);
        n = (int)len;
        got = len < 0 ? NULL : r->plain;
    }
    if (interrupt_count()) {
        interrupt_clear();
        clearerr(stdin);
        if (r->editor) el_reset(r->editor);
        fprintf(stderr, "\n");
        return LINE_INTERRUPTED;
    }
    if (!got || n <= 0) {
        if (r->editor) fprintf(stderr, "\n");
        return LINE_END;
    }
    size_t len = (size_t)n;
    while (len && (got[len - 1] == '\n' || got[len - 1] == '\r')) len--;
    return text_add(line, got, len) ? LINE_TEXT : LINE_FAILED;
}

/* A turn: one line, or several joined by a backslash at the end of each but the last. */
static line_kind read_turn(reader *r, text_buffer *turn)
{
    text_free(turn);
    r->continues = false;
    for (;;) {
        line_kind kind = read_one(r, turn);
        if (kind != LINE_TEXT) return kind;
        if (!turn->len || turn->data[turn->len - 1] != '\\' || !r->editor) break;
        turn->data[turn->len - 1] = '\n';
        r->continues = true;
    }
    r->continues = false;
    return LINE_TEXT;
}

/* ---------------------------------------------------------------- commands */

static void print_stats(const talk *t)
{
    char a[UI_WORD], b[UI_WORD], c[UI_WORD];
    ftk_stats s;
    ftk_session_stats(t->session, &s);
    fprintf(stderr, "  conversation  %zu of %zu tokens, %zu turn%s\n", ftk_session_length(t->session),
            ftk_session_context(t->session), t->turns, t->turns == 1 ? "" : "s");
    fprintf(stderr, "  memory        weights %s, KV %s, process %s\n", ui_bytes(a, (double)t->info.weight_bytes),
            ui_bytes(b, (double)s.kv_bytes), ui_bytes(c, (double)machine_rss()));
    if (s.decode_tokens)
        fprintf(stderr, "  decode        %s tok/s over %llu tokens\n",
                ui_number(a, (double)s.decode_tokens / s.decode_seconds), (unsigned long long)s.decode_tokens);
    fprintf(stderr, "  kernels       %s\n", s.isa);
}

static void print_commands(void)
{
    fprintf(stderr,
            "  /reset          forget the conversation\n"
            "  /save [FILE]    write the conversation to a file\n"
            "  /load [FILE]    go on with a saved one\n"
            "  /stats          figures so far\n"
            "  /quit           leave (also Ctrl-D)\n"
            "Ctrl-C stops an answer. A \\ at the end of a line goes on to the next one.\n"
            "A text that begins with / needs a space in front.\n");
}

/* Runs a line that begins with a slash; true: leave. */
static bool run_command(talk *t, char *line, const char *session_file)
{
    static const char *const names[] = {"/help", "/reset", "/save", "/load", "/stats", "/quit"};
    enum { N = sizeof names / sizeof names[0] };
    size_t word = strcspn(line, " \t");
    char *rest = line + word + strspn(line + word, " \t");
    for (size_t end = strlen(rest); end && strchr(" \t", rest[end - 1]); end--) rest[end - 1] = 0;
    line[word] = 0;
    const char *file = *rest ? rest : session_file;
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) return true;
    if (strcmp(line, "/help") == 0) print_commands();
    else if (strcmp(line, "/stats") == 0) print_stats(t);
    else if (strcmp(line, "/reset") == 0) {
        talk_forget(t);
        ui_note("the conversation is forgotten");
    } else if (strcmp(line, "/save") == 0 || strcmp(line, "/load") == 0) {
        if (!file) ui_error("%s needs the name of a file", line);
        else if (line[1] == 'l') talk_restore(t, file, true);
        else if (t->turns == 0) ui_error("nothing has been said yet");
        else talk_save(t, file);
    } else {
        const char *near = args_nearest(line, names, N);
        if (near) ui_error("%s: no such command: did you mean %s?", line, near);
        else ui_error("%s: no such command: /help lists them", line);
    }
    return false;
}

/* Whether Ctrl-C stopped the answer. */
static bool answer(talk *t, const char *data, size_t len)
{
    token_list prompt = {0};
    int status = text_check("the text", data, len);
    if (status == STATUS_GO_ON) status = talk_prompt(t, data, len, &prompt);
    size_t turns = t->turns;
    if (status == STATUS_GO_ON) status = talk_answer(t, &prompt);
    if (t->turns > turns) talk_report(t);
    if (status == STATUS_INTERRUPTED) interrupt_clear();
    tokens_free(&prompt);
    return status == STATUS_INTERRUPTED;
}

int chat(talk *t, const char *first, const char *session_file)
{
    reader r;
    text_buffer turn = {0};
    int status = STATUS_OK, interrupts = 0;
    reader_open(&r);
    const char *slash = strrchr(t->o->word, '/');
    if (r.editor)
        ui_note("%s · %s · context %zu · kernels %s · /help for commands", slash ? slash + 1 : t->o->word,
                t->info.weight_type, ftk_session_context(t->session), t->info.isa);
    if (first) interrupts = answer(t, first, strlen(first));
    for (bool leave = false; !leave;) {
        line_kind kind = read_turn(&r, &turn);
        if (kind == LINE_INTERRUPTED) {
            if (++interrupts == 2 || !r.editor) {
                status = STATUS_INTERRUPTED;
                break;
            }
            ui_note("Ctrl-C again, /quit or Ctrl-D to leave");
            continue;
        }
        interrupts = 0;
        if (kind == LINE_END) break;
        if (kind == LINE_FAILED) {
            ui_error("out of memory");
            status = STATUS_FAILURE;
            break;
        }
        const char *text = turn.data;
        if (!turn.len || strspn(text, " \t\n") == turn.len) continue;
        reader_remember(&r, text);
        if (*text == '/') leave = run_command(t, turn.data, session_file);
        else { /* the Ctrl-C that stopped an answer counts: the next one leaves */
            size_t skip = text[0] == ' ' && text[1] == '/';
            interrupts = answer(t, text + skip, turn.len - skip);
        }
    }
    text_free(&turn);
    reader_close(&r);
    return status;
}

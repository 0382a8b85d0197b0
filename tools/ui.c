// SPDX-License-Identifier: Apache-2.0
/* Messages, progress line and words for sizes. Owns the decision what a stream can show. */
#include "ui.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "interrupt.h"

static bool quiet;
static void (*error_hook)(const char *message);

void ui_on_error(void (*fn)(const char *message))
{
    error_hook = fn;
}

void ui_quiet(void)
{
    quiet = true;
}

const char *ui_style(FILE *stream, ui_look look)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[33m", "\033[32m", "\033[36m"};
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (!isatty(fileno(stream)) || (no_color && *no_color) || !term || strcmp(term, "dumb") == 0) return "";
    return codes[look];
}

static void say(ui_look look, const char *word, const char *format, va_list list)
{
    fflush(stdout);
    fprintf(stderr, "%s%s%s", ui_style(stderr, look), word, *word ? ui_style(stderr, UI_PLAIN) : "");
    vfprintf(stderr, format, list);
    fprintf(stderr, "%s\n", *word ? "" : ui_style(stderr, UI_PLAIN));
}

void ui_error(const char *format, ...)
{
    va_list list;
    if (error_hook) {
        char message[1024];
        va_start(list, format);
        vsnprintf(message, sizeof message, format, list);
        va_end(list);
        error_hook(message);
    }
    va_start(list, format);
    say(UI_RED, "error: ", format, list);
    va_end(list);
}

void ui_warn(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(UI_YELLOW, "warning: ", format, list);
    va_end(list);
}

void ui_note(const char *format, ...)
{
    if (quiet) return;
    va_list list;
    va_start(list, format);
    say(UI_DIM, "", format, list);
    va_end(list);
}

int ui_fail(const char *subject, const ftk_error *e)
{
    if (e->code == FTK_CANCELLED) {
        ui_note("interrupted");
        return STATUS_INTERRUPTED;
    }
    const char *text = e->message[0] ? e->message : ftk_status_text(e->code);
    if (subject && !strstr(text, subject)) ui_error("%s: %s", subject, text);
    else ui_error("%s", text);
    return STATUS_FAILURE;
}

/* ------------------------------------------------------------------- words */

char *ui_number(char word[UI_WORD], double value)
{
    double size = fabs(value);
    int decimals = size >= 100 ? 0 : size >= 10 ? 1 : 2;
    snprintf(word, UI_WORD, "%.*f", decimals, value);
    return word;
}

char *ui_bytes(char word[UI_WORD], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1000 && unit < 4) bytes /= 1024, unit++;
    snprintf(word, UI_WORD, "%.*f %s", unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2, bytes, units[unit]);
    return word;
}

char *ui_seconds(char word[UI_WORD], double seconds)
{
    if (seconds < 0.001) snprintf(word, UI_WORD, "%.0f µs", seconds * 1e6);
    else if (seconds < 0.01) snprintf(word, UI_WORD, "%.1f ms", seconds * 1e3);
    else if (seconds < 1) snprintf(word, UI_WORD, "%.0f ms", seconds * 1e3);
    else if (seconds < 10) snprintf(word, UI_WORD, "%.1f s", seconds);
    else if (seconds < 120) snprintf(word, UI_WORD, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(word, UI_WORD, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else snprintf(word, UI_WORD, "%.0f h %02d min", floor(seconds / 3600), (int)fmod(seconds / 60, 60));
    return word;
}

double ui_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---------------------------------------------------------------- progress */

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/* What the library calls its phases, in words for people. */
static const char *phase_words(const char *phase)
{
    if (strcmp(phase, "packing") == 0) return "preparing weights";
    if (strcmp(phase, "prefill") == 0) return "reading the prompt";
    return phase;
}

static void compose(const ui_progress *p, uint64_t done, uint64_t total, double now, char *line, size_t cap)
{
    double taken = now - p->started, share = total ? (double)done / (double)total : 0;
    double rate = taken > 0 ? (double)(done - p->first) / taken : 0;
    char a[UI_WORD], b[UI_WORD], c[UI_WORD];
    int n = snprintf(line, cap, "%s %3.0f %%", phase_words(p->phase), 100 * share);
    bool bytes = p->unit && strcmp(p->unit, "bytes") == 0;
    if (bytes)
        n += snprintf(line + n, cap - (size_t)n, " · %s of %s · %s/s", ui_bytes(a, (double)done),
                      ui_bytes(b, (double)total), ui_bytes(c, rate));
    else if (p->unit)
        n += snprintf(line + n, cap - (size_t)n, " · %llu of %llu %s · %s %s/s", (unsigned long long)done,
                      (unsigned long long)total, p->unit, ui_number(a, rate),
                      strcmp(p->unit, "tokens") == 0 ? "tok" : p->unit);
    if (rate > 0 && done < total)
        snprintf(line + n, cap - (size_t)n, " · %s left", ui_seconds(a, (double)(total - done) / rate));
}

void ui_progress_draw(ui_progress *p, const char *phase, uint64_t done, uint64_t total)
{
    if (quiet) return;
    double now = ui_now();
    if (!p->phase || strcmp(p->phase, phase) != 0) {
        ui_progress_clear(p);
        p->phase = phase;
        p->started = now;
        p->first = done;
        p->drawn = now;
    }
    bool terminal = isatty(STDERR_FILENO);
    double wait = terminal ? (p->on_screen ? 0.1 : 0.5) : 10;
    if (now - p->drawn < wait || total == 0 || (done >= total && !p->on_screen)) return;
    p->drawn = now;
    char line[256];
    compose(p, done < total ? done : total, total, now, line, sizeof line);
    if (!terminal) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    size_t width = terminal_width(), cut = strlen(line);
    if (cut >= width) { /* never wrap: the line could not be taken back; whole characters only */
        cut = width - 1;
        while (cut > 0 && ((unsigned char)line[cut] & 0xc0) == 0x80) cut--;
    }
    fprintf(stderr, "\r%s%.*s\033[K%s", ui_style(stderr, UI_DIM), (int)cut, line, ui_style(stderr, UI_PLAIN));
    fflush(stderr);
    p->on_screen = true;
}

void ui_progress_clear(ui_progress *p)
{
    if (p->on_screen) fprintf(stderr, "\r\033[K");
    fflush(stderr);
    p->on_screen = false;
    p->phase = NULL;
}

bool ui_on_progress(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
    ui_progress_draw(ctx, phase, done, total);
    return interrupt_count() == 0;
}

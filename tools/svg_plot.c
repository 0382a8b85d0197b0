// SPDX-License-Identifier: Apache-2.0
/* Axes with round ticks, points, a legend of the series. */
#include "svg_plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "ui.h"

enum { PANEL_WIDTH = 520, PANEL_HEIGHT = 360, LEFT = 64, RIGHT = 16, TOP = 56, BOTTOM = 48, LEGEND_ROW = 18, MAX_SERIES = 64 };

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"};
enum { N_COLOURS = sizeof colours / sizeof colours[0] };

static void put_text(FILE *f, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(*text, f);
        }
}

typedef struct axis {
    double low, high, step;
    double from, to; /* pixels */
} axis;

/* Ends at round numbers around the values, with 4 to 8 ticks. */
static axis make_axis(double low, double high, double from, double to)
{
    if (!(high > low)) {
        double around = fabs(low) > 0 ? fabs(low) * 0.1 : 1;
        low -= around;
        high += around;
    }
    double raw = (high - low) / 5, size = pow(10, floor(log10(raw)));
    double step = raw / size < 1.5 ? size : raw / size < 3.5 ? 2 * size : raw / size < 7.5 ? 5 * size : 10 * size;
    return (axis){floor(low / step - 1e-9) * step, ceil(high / step + 1e-9) * step, step, from, to};
}

static double place(const axis *a, double value)
{
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

static size_t series_of(const char **names, size_t *n, const char *name)
{
    if (!name) name = "";
    for (size_t i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0) return i;
    if (*n < MAX_SERIES) names[(*n)++] = name;
    return *n - 1;
}

static void draw_axes(FILE *f, const plot_panel *p, const axis *x, const axis *y)
{
    for (double t = y->low; t <= y->high + y->step / 2; t += y->step)
        fprintf(f, "<line class='grid' x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f'/><text x='%.1f' y='%.1f' text-anchor='end'>%.4g</text>\n",
                x->from, x->to, place(y, t), place(y, t), x->from - 6, place(y, t) + 4, fabs(t) < y->step / 1e6 ? 0 : t);
    for (double t = x->low; t <= x->high + x->step / 2; t += x->step)
        fprintf(f, "<line class='grid' x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f'/><text x='%.1f' y='%.1f' text-anchor='middle'>%.6g</text>\n",
                place(x, t), place(x, t), y->from, y->to, place(x, t), y->from + 16, fabs(t) < x->step / 1e6 ? 0 : t);
    double middle = (x->from + x->to) / 2;
    fprintf(f, "<text x='%.1f' y='%.1f' text-anchor='middle' font-weight='bold'>", middle, y->to - 12);
    put_text(f, p->title);
    fprintf(f, "</text>\n<text x='%.1f' y='%.1f' text-anchor='middle'>", middle, y->from + 34);
    put_text(f, p->x_title);
    fprintf(f, "</text>\n<text transform='translate(%.1f %.1f) rotate(-90)' text-anchor='middle'>", x->from - 48, (y->from + y->to) / 2);
    put_text(f, p->y_title);
    fprintf(f, "</text>\n");
}

static int by_x(const void *a, const void *b)
{
    const plot_point *p = *(const plot_point *const *)a, *q = *(const plot_point *const *)b;
    return (p->x > q->x) - (p->x < q->x);
}

/* One series of a panel: its line, then its points. */
static void draw_series(FILE *f, const plot_panel *p, const axis *x, const axis *y, const char **names, size_t *n_names,
                        size_t which, const plot_point **sorted)
{
    const char *colour = colours[which % N_COLOURS];
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (series_of(names, n_names, p->points[i].series) == which) sorted[n++] = &p->points[i];
    qsort(sorted, n, sizeof *sorted, by_x);
    if (n > 1 && !p->bars) {
        fprintf(f, "<polyline fill='none' stroke='%s' stroke-opacity='.5' points='", colour);
        for (size_t i = 0; i < n; i++) fprintf(f, "%.1f,%.1f ", place(x, sorted[i]->x), place(y, sorted[i]->y));
        fprintf(f, "'/>\n");
    }
    double width = p->bars && p->n ? fmax(2, (x->to - x->from) / (double)p->n * 0.8) : 0;
    for (size_t i = 0; i < n; i++) {
        const plot_point *q = sorted[i];
        double px = place(x, q->x), py = place(y, q->y);
        fprintf(f, "<g fill='%s' stroke='%s'>", colour, colour);
        if (q->label) {
            fprintf(f, "<title>");
            put_text(f, q->label);
            fprintf(f, "</title>");
        }
        if (p->bars) fprintf(f, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' stroke='none'/>", px - width / 2, py, width, place(y, 0) - py);
        else fprintf(f, "<circle cx='%.1f' cy='%.1f' r='4' stroke='none'/>", px, py);
        if (q->high > q->low) fprintf(f, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f'/>", px, px, place(y, q->low), place(y, q->high));
        fprintf(f, "</g>\n");
    }
}

static void draw_panel(FILE *f, const plot_panel *p, double left, const char **names, size_t *n_names, const plot_point **sorted)
{
    double x_low = INFINITY, x_high = -INFINITY, y_low = 0, y_high = 0;
    for (size_t i = 0; i < p->n; i++) {
        const plot_point *q = &p->points[i];
        x_low = fmin(x_low, q->x);
        x_high = fmax(x_high, q->x);
        y_low = fmin(y_low, fmin(q->y, q->low < q->high ? q->low : q->y));
        y_high = fmax(y_high, fmax(q->y, q->low < q->high ? q->high : q->y));
    }
    if (p->n == 0) x_low = 0, x_high = 1;
    if (p->from_zero) x_low = fmin(0, x_low);
    axis x = make_axis(x_low, x_high, left + LEFT, left + PANEL_WIDTH - RIGHT);
    axis y = make_axis(y_low, y_high, TOP + PANEL_HEIGHT - BOTTOM, TOP);
    draw_axes(f, p, &x, &y);
    for (size_t i = 0; i < p->n; i++) series_of(names, n_names, p->points[i].series);
    for (size_t s = 0; s < *n_names; s++) draw_series(f, p, &x, &y, names, n_names, s, sorted);
}

int plot_write(const char *path, const char *title, const plot_panel *panels, size_t n)
{
    const char *names[MAX_SERIES];
    size_t n_names = 0, most = 1;
    for (size_t i = 0; i < n; i++) {
        if (panels[i].n > most) most = panels[i].n;
        for (size_t k = 0; k < panels[i].n; k++) series_of(names, &n_names, panels[i].points[k].series);
    }
    const plot_point **sorted = malloc(most * sizeof *sorted);
    FILE *f = sorted ? fopen(path, "w") : NULL;
    if (!f) {
        ui_error("%s: %s", path, sorted ? strerror(errno) : "out of memory");
        free(sorted);
        return STATUS_FAILURE;
    }
    bool legend = n_names > 1 || (n_names == 1 && names[0][0]);
    size_t rows = legend ? (n_names + 1) / 2 : 0;
    int width = PANEL_WIDTH * (int)n, height = TOP + PANEL_HEIGHT + LEGEND_ROW * (int)rows + 8;
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='12'>\n"
               "<style>svg{background:#fff;fill:#222}.grid{stroke:#ccc;stroke-width:.6}"
               "@media(prefers-color-scheme:dark){svg{background:#111;fill:#ddd}.grid{stroke:#444}}</style>\n"
               "<text x='%d' y='22' text-anchor='middle' font-size='15'>", width, height, width / 2);
    put_text(f, title);
    fprintf(f, "</text>\n");
    for (size_t i = 0; i < n; i++) draw_panel(f, &panels[i], (double)(PANEL_WIDTH * (int)i), names, &n_names, sorted);
    for (size_t i = 0; legend && i < n_names; i++) {
        int x = LEFT + (int)(i % 2) * (width - LEFT) / 2, y = TOP + PANEL_HEIGHT + LEGEND_ROW * (int)(i / 2) + 8;
        fprintf(f, "<circle cx='%d' cy='%d' r='4' fill='%s'/><text x='%d' y='%d'>", x, y, colours[i % N_COLOURS], x + 10, y + 4);
        put_text(f, names[i]);
        fprintf(f, "</text>\n");
    }
    fprintf(f, "</svg>\n");
    free(sorted);
    if (fclose(f) == 0) return STATUS_GO_ON;
    ui_error("%s: %s", path, strerror(errno));
    return STATUS_FAILURE;
}

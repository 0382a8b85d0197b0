// SPDX-License-Identifier: Apache-2.0
/* Small plots as SVG: panels side by side with points joined to lines by series, or bars. Readable on
 * light and dark pages; no scripts, no fonts of its own. */
#ifndef FREETOKEN_TOOLS_SVG_PLOT_H
#define FREETOKEN_TOOLS_SVG_PLOT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct plot_point {
    double x, y, low, high; /* low..high: drawn as a bar when low < high */
    const char *label;      /* shown when the mouse rests on it */
    const char *series;     /* points of one series are joined in order of x and share a colour */
} plot_point;

typedef struct plot_panel {
    const char *title, *x_title, *y_title;
    const plot_point *points; /* [n] */
    size_t n;
    bool bars; /* from 0 to y, instead of points */
    bool from_zero; /* the x axis starts at 0 */
} plot_panel;

/* Panels [n]. Reports what is wrong and returns an exit status. */
int plot_write(const char *path, const char *title, const plot_panel *panels, size_t n);

#endif
